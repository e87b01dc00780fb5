"""Traces of models with syntax positions."""

import re
from pathlib import Path

import pytest
import torch

import regard
from family import TOLERANCE
from random_models import SMALL, saved
from regard.config import EncoderDecoderConfig, SyntaxPositionsConfig
from regard.data.syntax import END_POSITION
from regard.errors import ConfigError, DataError, InputError
from regard.interpret.interventions import Intervention, apply_interventions
from toy_trees import conllu
from traces import TEXT, make_trace

TREE = conllu(TEXT.split(), [2, 0, 2, 3])
OTHER = conllu(TEXT.split(), [0, 1, 2, 3])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> regard.Model:
    folder = tmp_path_factory.mktemp("models") / "m"
    saved(folder, EncoderDecoderConfig(**SMALL, positions=SyntaxPositionsConfig()))
    return regard.load(folder)


@pytest.mark.slow
def test_output_equals_translate_with_the_same_parse(model: regard.Model) -> None:
    for tree in (TREE, OTHER):
        assert model.look(TEXT, parses=[tree]).output == model.translate([TEXT], parses=[tree], engine="torch")[0]


def test_forced_target_with_parse_has_the_log_probabilities_of_score(model: regard.Model, tmp_path: Path) -> None:
    path = tmp_path / "parses.conllu"
    path.write_text(TREE, "utf-8")
    trace = model.look(TEXT, target="w4 w20", parses=path)
    (score,) = model.score_detailed(TEXT, "w4 w20", parses=path)
    assert [step.log_probability for step in trace.steps] == pytest.approx(score.log_probabilities, abs=1e-4)


def test_features_cover_the_words_and_the_end_token(model: regard.Model) -> None:
    facts = model.look(TEXT, target="w4", parses=[TREE]).decoded.features
    assert facts["depth"] == [1, 0, 1, 2, END_POSITION.depth]
    assert [len(fact) for fact in facts.values()] == [5, 5, 5]


def test_depth_vectors_are_rows_of_the_depth_matrix() -> None:
    trace = make_trace("encoder-decoder, syntax")
    table = torch.from_numpy(trace.weight("encoder.embedding.depth_weight").values)
    rows = torch.tensor(trace.decoded.features["depth"]).clamp(max=len(table) - 1)
    torch.testing.assert_close(trace.activation("encoder.embedding.depth"), table[rows], atol=TOLERANCE, rtol=0)
    assert "encoder.embedding.depth" not in make_trace("encoder-decoder, syntax per head, window").points
    assert "decoder.embedding.depth" not in trace.points


def test_fused_positions_are_shown_with_their_matrix() -> None:
    trace = make_trace("encoder-decoder, syntax fused, edges")
    order, depth, fused = (
        trace.activation(f"encoder.embedding.{name}") for name in ("positions", "depth", "fused_positions")
    )
    weight, bias = (torch.from_numpy(trace.weight(f"encoder.embedding.{name}_fusion").values) for name in "Wb")
    expected = torch.tanh(torch.cat([order.expand_as(depth), depth], dim=-1) @ weight + bias)
    torch.testing.assert_close(fused, expected, atol=TOLERANCE, rtol=0)
    scaled, total = (trace.activation(f"encoder.embedding.{name}") for name in ("scaled", "sum"))
    torch.testing.assert_close(total, scaled + fused, atol=TOLERANCE, rtol=0)


def test_parse_changes_the_trace_and_is_used_by_interventions(model: regard.Model) -> None:
    first, second = (model.look(TEXT, target="w4 w20", parses=[tree]) for tree in (TREE, OTHER))
    assert first.log_probability != pytest.approx(second.log_probability, abs=1e-4)
    decoded = model.look(TEXT, parses=[TREE])
    change = Intervention.parse("encoder.0.attention")
    with apply_interventions(decoded, [change]):
        expected = model.look(TEXT, parses=[TREE]).output
    assert decoded.intervene(change).after == expected


def test_missing_and_unexpected_parses_are_errors(model: regard.Model, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as look_error:
        model.look(TEXT)
    with pytest.raises(ConfigError) as translate_error:
        model.translate([TEXT])
    assert str(look_error.value) == str(translate_error.value)
    assert str(look_error.value) == (
        "the model has syntax positions and needs a parse of every sentence; "
        "pass the parses as CoNLL-U (--parses on the command line)."
    )
    with pytest.raises(InputError) as input_error:
        model.look(" ", parses=[])
    assert str(input_error.value) == "The text is empty; give at least one word."
    with pytest.raises(DataError) as data_error:
        model.look(TEXT, parses=[TREE, OTHER])
    assert str(data_error.value) == (
        "parse 2:2: a parse without a line, because the text ends before it; pass one for every line."
    )
    saved(tmp_path / "plain", EncoderDecoderConfig(**SMALL))
    with pytest.raises(ConfigError) as config_error:
        regard.load(tmp_path / "plain").look(TEXT, parses=[TREE])
    assert str(config_error.value) == "the model has no syntax positions and uses no parses; remove them."


def test_page_shows_the_depth_of_each_word(model: regard.Model) -> None:
    page = model.look(TEXT, target="w4", parses=[TREE]).as_html()
    assert "the depth of its word in the dependency tree" in page
    depths = re.findall(r"<i>depth (\d+)</i>", page)
    assert [int(depth) for depth in depths] == [1, 0, 1, 2, END_POSITION.depth]
