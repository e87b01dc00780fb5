"""Log-probabilities of texts equal those computed one prediction at a time."""

import math
from pathlib import Path
from unittest import mock

import pytest
import torch

import regard
from random_models import SMALL, saved
from regard.config import DecoderOnlyConfig, EncoderDecoderConfig, LearnedPositionsConfig
from regard.data.lines import InvalidLines
from regard.data.readers.base import Pair
from regard.decoding.results import TextScore
from regard.errors import DataError
from regard.evaluation import likelihood
from regard.evaluation.likelihood import (
    Likelihood,
    evaluate_language_model,
    scorable_pairs,
    score_pairs,
    score_texts,
    total_likelihood,
)
from regard.evaluation.translation import reference_likelihood

START, END = 2, 3
PAIRS = [Pair("w4 w5", "w6 w7 w8"), Pair("w9 w10 w11 w12", "w13"), Pair("w4", "w4 w5 w6 w7 w8 w9")]


def ids(text: str) -> list[int]:
    return [int(word.removeprefix("w")) for word in text.split()]


def no_progress(what: str, done: int, total: int | None) -> None:
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
def reference_scores(model: regard.Model, target: str, source: str | None = None) -> list[float]:
    """log P of each token given those before it, one prediction at a time."""
    memory = None if source is None else model.network.encode(torch.tensor([[*ids(source), END]]))
    inputs, log_probabilities = [START], []
    for token in [*ids(target), END]:
        hidden = model.network.decode(torch.tensor([inputs]), memory)[0, -1]
        log_probabilities.append(float(model.network.logits(hidden).log_softmax(-1)[token]))
        inputs.append(token)
    return log_probabilities


def test_score_pairs_gives_the_log_probability_of_each_target_token(translator: regard.Model) -> None:
    for pair, score in zip(PAIRS, score_pairs(translator, PAIRS), strict=True):
        assert score.tokens == [*pair.target.split(), "[EOS]"]
        assert score.log_probabilities == pytest.approx(
            reference_scores(translator, pair.target, pair.source), abs=1e-4
        )
        assert score.total == pytest.approx(sum(score.log_probabilities))
        assert score.mean == pytest.approx(score.total / (len(pair.target.split()) + 1))


def test_score_texts_gives_the_log_probability_of_each_token_even_of_an_empty_text(
    language_model: regard.Model,
) -> None:
    texts = ["w4 w5 w6", "", "w7"]
    for text, score in zip(texts, score_texts(language_model, texts), strict=True):
        assert score.tokens == [*text.split(), "[EOS]"]
        assert score.log_probabilities == pytest.approx(reference_scores(language_model, text), abs=1e-4)


def test_scores_equal_those_of_the_model(translator: regard.Model, language_model: regard.Model) -> None:
    sources, targets = [pair.source for pair in PAIRS], [pair.target for pair in PAIRS]
    assert score_pairs(translator, PAIRS) == translator.score_detailed(sources, targets)
    assert [score.total for score in score_pairs(translator, PAIRS)] == translator.score(sources, targets)
    texts = ["w4 w5 w6", "w7"]
    assert score_texts(language_model, texts) == language_model.score_detailed(texts)
    assert [score.total for score in score_texts(language_model, texts)] == language_model.score(texts)


def test_loss_is_the_mean_over_tokens_not_over_sentences(translator: regard.Model) -> None:
    scores = [reference_scores(translator, pair.target, pair.source) for pair in PAIRS]
    likelihood = reference_likelihood(translator, PAIRS, no_progress)
    assert likelihood.tokens == 4 + 2 + 7
    assert likelihood.loss == pytest.approx(-sum(map(sum, scores)) / 13, abs=1e-4)
    assert likelihood.perplexity == pytest.approx(math.exp(likelihood.loss))


def test_bits_per_byte_counts_utf8_bytes(language_model: regard.Model) -> None:
    documents = ["w4 w5 w6", "w7\u2003w8"]  # a space of three bytes
    likelihood = evaluate_language_model(
        language_model, [["w4 ", "w5 w6"], [], ["w7\u2003w8"]], "test", 16, no_progress
    )
    assert (likelihood.tokens, likelihood.bytes, likelihood.unknown) == (4 + 3, 8 + 7, 0)
    total = sum(language_model.score(documents))
    assert likelihood.bits_per_byte == pytest.approx(-total / math.log(2) / 15)
    assert likelihood.as_dict()["scores"]["bits_per_byte"] == likelihood.bits_per_byte
    assert "unknown" not in likelihood.as_dict()


def test_text_with_unknown_tokens_has_no_bits_per_byte(language_model: regard.Model) -> None:
    likelihood = evaluate_language_model(language_model, [["w4 è w5"], ["日"]], "test", 16, no_progress)
    assert (likelihood.tokens, likelihood.unknown, likelihood.bytes) == (4 + 2, 2, 8 + 3)
    assert likelihood.bits_per_byte is None
    record = likelihood.as_dict()
    assert (record["tokens"], record["unknown"]) == (6, 2)
    assert set(record["scores"]) == {"loss", "perplexity"}


def test_unknown_tokens_of_pairs_are_noted(translator: regard.Model) -> None:
    invalid = InvalidLines()
    pairs = [Pair("w4 è", "w5 w6"), Pair("w7", "日 w8")]
    assert list(scorable_pairs(translator, pairs, "test", invalid)) == pairs
    note = "2 of 7 tokens (28.6%) are unknown: the tokenizer has no token for their text, which the model cannot read"
    assert invalid.notes == [note]
    known = InvalidLines()
    assert list(scorable_pairs(translator, PAIRS, "test", known)) == PAIRS
    assert known.notes == []


def test_long_documents_are_scored_in_overlapping_windows(language_model: regard.Model) -> None:
    text = " ".join(f"w{4 + n % 25}" for n in range(40))
    (narrow,), (wide,) = score_texts(language_model, [text], context_length=8), score_texts(language_model, [text])
    assert len(narrow.log_probabilities) == len(wide.log_probabilities) == 41
    assert narrow.log_probabilities[:8] == pytest.approx(wide.log_probabilities[:8], abs=1e-4)
    assert narrow.log_probabilities[8:] != pytest.approx(wide.log_probabilities[8:], abs=1e-4)
    assert evaluate_language_model(language_model, [[text]], "test", 8, no_progress).total == pytest.approx(
        narrow.total
    )


def test_documents_without_text_are_rejected(language_model: regard.Model) -> None:
    with pytest.raises(DataError) as error:
        evaluate_language_model(language_model, [[], [""]], "empty.txt", 8, no_progress)
    assert str(error.value) == "empty.txt: contains no text to evaluate a model on; use a file with text."


def test_pairs_past_the_learned_positions_are_invalid(tmp_path: Path) -> None:
    saved(tmp_path / "short", EncoderDecoderConfig(**SMALL, positions=LearnedPositionsConfig(max_length=5)))
    model = regard.load(tmp_path / "short")
    fits, too_long = Pair("w4 w5 w6 w7", "w4"), Pair("w4", "w4 w5 w6 w7 w8")
    with pytest.raises(DataError) as error:
        list(scorable_pairs(model, [fits, too_long], "a.tsv", InvalidLines()))
    assert str(error.value) == (
        "a.tsv: pair 2 has a target of 6 tokens with its end, but this network learned 5 positions; shorten it, "
        "or skip such lines with --skip-invalid."
    )
    invalid = InvalidLines(skip=True)
    assert list(scorable_pairs(model, [too_long, fits], "a.tsv", invalid)) == [fits]
    assert invalid.counts == {"too long": 1}
    assert score_pairs(model, [fits])[0].log_probabilities


def test_pairs_longer_than_the_scoring_limit_are_invalid(translator: regard.Model) -> None:
    with mock.patch.object(likelihood, "MAX_SCORED_TOKENS", 4), pytest.raises(DataError) as error:
        list(scorable_pairs(translator, [Pair("w4 w5 w6 w7", "w4")], "a.tsv", InvalidLines()))
    assert str(error.value) == (
        "a.tsv: pair 1 has a source of 5 tokens with its end, but at most 4 can be scored; shorten it, "
        "or skip such lines with --skip-invalid."
    )


def test_total_likelihood_sums_scores() -> None:
    likelihood = total_likelihood([TextScore(["a", "b"], [-1.0, -2.0]), TextScore(["c"], [-3.0])], bytes=12)
    assert likelihood == Likelihood(tokens=3, total=-6.0, bytes=12)
    assert (likelihood.loss, likelihood.perplexity) == (2.0, math.exp(2.0))


def test_perplexity_of_a_huge_loss_is_finite() -> None:
    assert Likelihood(tokens=1, total=-1e6).perplexity == math.exp(700)
