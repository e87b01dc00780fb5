"""Log-probabilities are those computed by hand, token by token."""

import math
from pathlib import Path
from unittest import mock

import pytest
import torch

import regard
from random_models import SMALL, saved
from regard.config import DecoderOnlyConfig, EncoderDecoderConfig, LearnedPositionsConfig
from regard.data.corpus import Pair
from regard.data.lines import InvalidLines
from regard.errors import DataError
from regard.evaluation import language, scoring
from regard.evaluation.likelihood import Likelihood, Scored, together
from regard.evaluation.scoring import readable, score_pairs, score_texts
from regard.evaluation.translation import likelihood

START, END = 2, 3
PAIRS = [Pair("w4 w5", "w6 w7 w8"), Pair("w9 w10 w11 w12", "w13"), Pair("w4", "w4 w5 w6 w7 w8 w9")]


def ids(text: str) -> list[int]:
    return [int(word.removeprefix("w")) for word in text.split()]


def quiet(what: str, done: int, total: int | None) -> None:
    pass


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> regard.Model:
    folder = tmp_path_factory.mktemp("models") / "translator"
    saved(folder, EncoderDecoderConfig(**SMALL))
    return regard.load(folder)


@pytest.fixture(scope="module")
def language_model(tmp_path_factory: pytest.TempPathFactory) -> regard.Model:
    folder = tmp_path_factory.mktemp("models") / "language-model"
    saved(folder, DecoderOnlyConfig(**SMALL))
    return regard.load(folder)


@torch.no_grad()
def by_hand(model: regard.Model, target: str, source: str | None = None) -> list[float]:
    """log P of each token after those before it, one prediction at a time."""
    memory = None if source is None else model.network.encode(torch.tensor([[*ids(source), END]]))
    read, found = [START], []
    for token in [*ids(target), END]:
        hidden = model.network.decode(torch.tensor([read]), memory)[0, -1]
        found.append(float(model.network.logits(hidden).log_softmax(-1)[token]))
        read.append(token)
    return found


def test_each_token_of_a_translation_has_its_log_probability(translator: regard.Model) -> None:
    for pair, found in zip(PAIRS, score_pairs(translator, PAIRS), strict=True):
        assert found.tokens == [*pair.target.split(), "[EOS]"]
        assert found.scores == pytest.approx(by_hand(translator, pair.target, pair.source), abs=1e-4)
        assert found.total == pytest.approx(sum(found.scores))
        assert found.mean == pytest.approx(found.total / (len(pair.target.split()) + 1))


def test_each_token_of_a_text_has_its_log_probability_and_so_has_the_empty_text(language_model: regard.Model) -> None:
    texts = ["w4 w5 w6", "", "w7"]
    for text, found in zip(texts, score_texts(language_model, texts), strict=True):
        assert found.tokens == [*text.split(), "[EOS]"]
        assert found.scores == pytest.approx(by_hand(language_model, text), abs=1e-4)


def test_the_scores_are_those_of_the_model_itself(translator: regard.Model, language_model: regard.Model) -> None:
    own = translator.score([pair.source for pair in PAIRS], [pair.target for pair in PAIRS])
    assert [found.scores for found in score_pairs(translator, PAIRS)] == own
    texts = ["w4 w5 w6", "w7"]
    assert [found.scores for found in score_texts(language_model, texts)] == language_model.score(texts)


def test_the_loss_is_the_mean_over_all_tokens_and_not_over_sentences(translator: regard.Model) -> None:
    each = [by_hand(translator, pair.target, pair.source) for pair in PAIRS]
    found = likelihood(translator, PAIRS, quiet)
    assert found.tokens == 4 + 2 + 7
    assert found.loss == pytest.approx(-sum(map(sum, each)) / 13, abs=1e-4)
    assert found.perplexity == pytest.approx(math.exp(found.loss))


def test_bits_per_byte_count_the_bytes_of_the_text_whatever_its_tokens(language_model: regard.Model) -> None:
    documents = ["w4 w5 w6", "w7 è"]  # a token that it does not know, of two bytes
    found = language.evaluate(language_model, [["w4 ", "w5 w6"], [], ["w7 è"]], "test", 16, quiet)
    assert (found.tokens, found.bytes) == (4 + 3, 8 + 5)
    total = sum(sum(scores) for scores in language_model.score(documents))
    assert found.bits_per_byte == pytest.approx(-total / math.log(2) / 13)


def test_a_long_document_is_read_in_windows_of_the_context(language_model: regard.Model) -> None:
    text = " ".join(f"w{4 + n % 25}" for n in range(40))
    (narrow,), (wide,) = score_texts(language_model, [text], context=8), score_texts(language_model, [text])
    assert len(narrow.scores) == len(wide.scores) == 41
    assert narrow.scores[:8] == pytest.approx(wide.scores[:8], abs=1e-4)
    assert narrow.scores[8:] != pytest.approx(wide.scores[8:], abs=1e-4)
    assert language.evaluate(language_model, [[text]], "test", 8, quiet).total == pytest.approx(narrow.total)


def test_documents_without_text_are_a_sentence(language_model: regard.Model) -> None:
    with pytest.raises(DataError) as refused:
        language.evaluate(language_model, [[], [""]], "empty.txt", 8, quiet)
    assert str(refused.value) == "empty.txt: has no text to evaluate a model on; give some."


def test_a_pair_past_the_learned_positions_is_a_fault(tmp_path: Path) -> None:
    saved(tmp_path / "short", EncoderDecoderConfig(**SMALL, positions=LearnedPositionsConfig(max_length=5)))
    model = regard.load(tmp_path / "short")
    fits, too_long = Pair("w4 w5 w6 w7", "w4"), Pair("w4", "w4 w5 w6 w7 w8")
    with pytest.raises(DataError) as refused:
        list(readable(model, [fits, too_long], "a.tsv", InvalidLines()))
    assert str(refused.value) == (
        "a.tsv: pair 2 has a target of 6 tokens with its end, but this network learned 5 positions; shorten it, "
        "or skip such lines with --skip-invalid."
    )
    skipping = InvalidLines(skip=True)
    assert list(readable(model, [too_long, fits], "a.tsv", skipping)) == [fits]
    assert skipping.counts == {"too long": 1}
    assert score_pairs(model, [fits])[0].scores


def test_a_pair_that_would_fill_the_memory_is_a_fault(translator: regard.Model) -> None:
    with mock.patch.object(scoring, "LONGEST", 4), pytest.raises(DataError) as refused:
        list(readable(translator, [Pair("w4 w5 w6 w7", "w4")], "a.tsv", InvalidLines()))
    assert str(refused.value) == (
        "a.tsv: pair 1 has a source of 5 tokens with its end, but at most 4 can be scored; shorten it, "
        "or skip such lines with --skip-invalid."
    )


def test_likelihoods_add_up() -> None:
    found = together([Scored(["a", "b"], [-1.0, -2.0]), Scored(["c"], [-3.0])], bytes=12)
    assert found == Likelihood(tokens=3, total=-6.0, bytes=12)
    assert (found.loss, found.perplexity) == (2.0, math.exp(2.0))


def test_a_hopeless_model_has_a_perplexity_all_the_same() -> None:
    assert Likelihood(tokens=1, total=-1e6).perplexity == math.exp(700)
