"""A network that reads parses is looked into with one, in everything that reads the source again."""

import re
from pathlib import Path

import pytest
import torch

import regard
from family import TOLERANCE
from looking import TEXT, traced
from random_models import SMALL, saved
from regard.config import EncoderDecoderConfig, SyntaxPositionsConfig
from regard.data.syntax import END_POSITION
from regard.errors import ConfigError, DataError, InputError
from regard.interpret.interventions import Intervention, apply_interventions
from toy_trees import conllu

TREE = conllu(TEXT.split(), [2, 0, 2, 3])
OTHER = conllu(TEXT.split(), [0, 1, 2, 3])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> regard.Model:
    folder = tmp_path_factory.mktemp("models") / "m"
    saved(folder, EncoderDecoderConfig(**SMALL, positions=SyntaxPositionsConfig()))
    return regard.load(folder)


def test_what_is_decoded_is_what_translate_gives_with_the_parse(model: regard.Model) -> None:
    for tree in (TREE, OTHER):
        assert model.look(TEXT, parses=[tree]).output == model.translate([TEXT], parses=[tree], engine="torch")[0]


def test_a_forced_target_is_scored_as_score_scores_it(model: regard.Model, tmp_path: Path) -> None:
    path = tmp_path / "parses.conllu"
    path.write_text(TREE, "utf-8")
    trace = model.look(TEXT, target="w4 w20", parses=path)
    (scores,) = model.score([TEXT], ["w4 w20"], parses=path)
    assert [step.log_probability for step in trace.steps] == pytest.approx(scores, abs=1e-4)


def test_the_facts_are_those_of_the_words_and_of_the_end(model: regard.Model) -> None:
    facts = model.look(TEXT, target="w4", parses=[TREE]).decoded.features
    assert facts["depth"] == [1, 0, 1, 2, END_POSITION.depth]
    assert [len(fact) for fact in facts.values()] == [5, 5, 5]


def test_depths_are_rows_of_their_matrix() -> None:
    trace = traced("encoder-decoder, syntax")
    table = torch.from_numpy(trace.weight("encoder.embedding.depth_weight").values)
    rows = torch.tensor(trace.decoded.features["depth"]).clamp(max=len(table) - 1)
    torch.testing.assert_close(trace.activation("encoder.embedding.depth"), table[rows], atol=TOLERANCE, rtol=0)
    assert "encoder.embedding.depth" not in traced("encoder-decoder, syntax per head, window").points
    assert "decoder.embedding.depth" not in trace.points


def test_another_tree_is_another_trace_and_a_change_is_decoded_with_the_tree(model: regard.Model) -> None:
    one, other = (model.look(TEXT, target="w4 w20", parses=[tree]) for tree in (TREE, OTHER))
    assert one.log_probability != pytest.approx(other.log_probability, abs=1e-4)
    decoded = model.look(TEXT, parses=[TREE])
    change = Intervention.parse("encoder.0.attention")
    with apply_interventions(decoded, [change]):
        expected = model.look(TEXT, parses=[TREE]).output
    assert decoded.intervene(change).after == expected


def test_a_parse_is_asked_for_and_refused_as_translate_does(model: regard.Model, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as wrong:
        model.look(TEXT)
    with pytest.raises(ConfigError) as expected:
        model.translate([TEXT])
    assert str(wrong.value) == str(expected.value)
    assert str(wrong.value) == (
        "the model has syntax positions and reads a parse with every sentence; "
        "give them as CoNLL-U with --parses (in Python, parses=…)."
    )
    with pytest.raises(InputError) as empty:
        model.look(" ", parses=[])
    assert str(empty.value) == "The text is empty; give at least one word."
    with pytest.raises(DataError) as several:
        model.look(TEXT, parses=[TREE, OTHER])
    assert str(several.value) == (
        "parse 2:2: a parse without a line, because the text ends before it; pass one for every line."
    )
    saved(tmp_path / "plain", EncoderDecoderConfig(**SMALL))
    with pytest.raises(ConfigError) as given:
        regard.load(tmp_path / "plain").look(TEXT, parses=[TREE])
    assert str(given.value) == "the model has no syntax positions and reads no parses; leave --parses out."


def test_the_page_shows_the_depth_of_each_word(model: regard.Model) -> None:
    page = model.look(TEXT, target="w4", parses=[TREE]).as_html()
    assert "the depth of its word in the dependency tree" in page
    shown = re.findall(r"<i>depth (\d+)</i>", page)
    assert [int(depth) for depth in shown] == [1, 0, 1, 2, END_POSITION.depth]
