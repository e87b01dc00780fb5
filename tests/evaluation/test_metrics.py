"""Translation metrics equal those of sacrebleu; label metrics equal slow reference definitions, and scikit-learn."""

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from regard.evaluation.metrics import (
    ALL_METRICS,
    are_span_tags,
    confusion_matrix,
    score_by_length,
    score_translations,
    sentence_chrf,
    span_f1,
    spans,
)
from regard.tasks.labeling import mean_nll

REFERENCES = ["Ti amo molto.", "Dov'è la stazione?", "Abbiamo comprato la macchina rossa ieri."]
SINGLE_REFERENCES = [[reference] for reference in REFERENCES]
OUTPUTS = ["Ti amo molto.", "Dov'è una stazione?", "Ieri abbiamo comprato la macchina rossa."]


def test_scores_and_signatures_equal_sacrebleu() -> None:
    scores = score_translations(OUTPUTS, SINGLE_REFERENCES, ALL_METRICS)
    for name, metric in (("bleu", BLEU()), ("chrf", CHRF()), ("ter", TER())):
        assert scores.values[name] == metric.corpus_score(OUTPUTS, [REFERENCES]).score
        assert scores.signatures[name] == str(metric.get_signature())
    assert scores.values["exact"] == pytest.approx(1 / 3)


def test_ter_is_not_computed_by_default() -> None:
    assert list(score_translations(OUTPUTS, SINGLE_REFERENCES).values) == ["bleu", "chrf", "exact"]


def test_bleu_tokenizer_none_scores_tokenized_text_unchanged() -> None:
    outputs, references = ["ein 10-jähriges kind rennt nach haus ."], ["ein 9-jähriges kind rennt nach haus ."]
    scores = score_translations(outputs, [references], bleu_tokenizer="none")
    assert scores.values["bleu"] == BLEU(tokenize="none", force=True).corpus_score(outputs, [references]).score
    assert scores.values["bleu"] != score_translations(outputs, [references]).values["bleu"]
    assert "tok:none" in scores.signatures["bleu"]


def test_sentences_may_have_different_numbers_of_references() -> None:
    references = [
        ["Ti amo tanto.", "Ti amo molto."],
        ["Dov'è la stazione?"],
        ["Ieri abbiamo comprato la macchina rossa."],
    ]
    scores = score_translations(OUTPUTS, references, ALL_METRICS)
    streams: list[list[str | None]] = [
        ["Ti amo tanto.", "Dov'è la stazione?", "Ieri abbiamo comprato la macchina rossa."],
        ["Ti amo molto.", None, None],
    ]
    for name, metric in (("bleu", BLEU()), ("chrf", CHRF()), ("ter", TER())):
        assert scores.values[name] == metric.corpus_score(OUTPUTS, streams).score  # type: ignore[arg-type]
    assert scores.values["exact"] == pytest.approx(2 / 3)


def test_sentence_chrf_equals_sacrebleu() -> None:
    sentences = zip(OUTPUTS, REFERENCES, strict=True)
    expected = [CHRF().sentence_score(output, [reference]).score for output, reference in sentences]
    assert sentence_chrf(OUTPUTS, SINGLE_REFERENCES) == expected


def test_length_buckets_cover_every_sentence_and_omit_empty_ones() -> None:
    lengths = [1, 5, 6, 10, 11, 20, 51, 300]
    sources = [" ".join(["word"] * length) for length in lengths]
    outputs = [f"output number {n} of this test" for n in range(len(sources))]
    buckets = score_by_length(sources, outputs, [[output] for output in outputs])
    assert [(bucket.words, bucket.sentences) for bucket in buckets] == [
        ("1–5", 2),
        ("6–10", 2),
        ("11–20", 2),
        ("51+", 2),
    ]
    assert sum(bucket.sentences for bucket in buckets) == len(sources)


def test_bucket_scores_are_those_of_its_sentences() -> None:
    sources = ["I love you.", "Where is the station then, please?", "We bought the red car yesterday, my friend."]
    short, long = score_by_length(sources, OUTPUTS, SINGLE_REFERENCES)
    assert (short.sentences, long.sentences) == (1, 2)
    assert long.bleu == BLEU().corpus_score(OUTPUTS[1:], [REFERENCES[1:]]).score
    assert long.chrf == CHRF().corpus_score(OUTPUTS[1:], [REFERENCES[1:]]).score


def test_sacrebleu_is_imported_lazily() -> None:
    program = """
import sys
from regard.evaluation import metrics
assert "sacrebleu" not in sys.modules
metrics.score_translations(["a"], ["a"])
assert "sacrebleu" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


LABELS = ["a", "b", "c", "d"]
TAGS = ["O", "B-X", "I-X", "B-Y", "I-Y"]
pairs = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30)
sentences = st.lists(st.lists(st.sampled_from(TAGS), max_size=8), max_size=4)


def slow_f1(label: int, true: list[int], predicted: list[int]) -> float | None:
    pairs = list(zip(true, predicted, strict=True))
    hits = sum(t == p == label for t, p in pairs)
    false = sum(p == label != t for t, p in pairs)
    missed = sum(t == label != p for t, p in pairs)
    if hits + false + missed == 0:
        return None
    precision = hits / (hits + false) if hits + false else 0.0
    recall = hits / (hits + missed) if hits + missed else 0.0
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


@given(pairs)
def test_scores_equal_their_definitions(examples: list[tuple[int, int]]) -> None:
    true, predicted = [list(column) for column in zip(*examples, strict=True)]
    matrix = confusion_matrix(LABELS, true, predicted)
    assert matrix.accuracy == sum(t == p for t, p in examples) / len(examples)
    slow = [slow_f1(label, true, predicted) for label in range(4)]
    assert np.allclose([score or 0 for score in matrix.f1.values()], [score or 0 for score in slow])
    assert [score is None for score in matrix.f1.values()] == [score is None for score in slow]
    assert matrix.counts.tolist() == [[examples.count((t, p)) for p in range(4)] for t in range(4)]
    known = [score for score in slow if score is not None]
    assert np.isclose(matrix.macro_f1, sum(known) / len(known))


@given(pairs)
def test_macro_f1_equals_scikit_learn(examples: list[tuple[int, int]]) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    true, predicted = [list(column) for column in zip(*examples, strict=True)]
    matrix = confusion_matrix(LABELS, true, predicted)
    assert np.isclose(matrix.macro_f1, metrics.f1_score(true, predicted, average="macro", zero_division=0.0))


def slow_spans(tags: list[str]) -> set[tuple[int, int, str]]:
    """Every range of words that begins where a span may, continues by I- of its label, and cannot be extended."""
    ranges = set()
    for start in range(len(tags)):
        for end in range(start + 1, len(tags) + 1):
            label = tags[start][2:]
            before = tags[start - 1] if start else "O"
            starts = tags[start].startswith("B-") or (tags[start].startswith("I-") and before[2:] != label)
            continues = all(tag == f"I-{label}" for tag in tags[start + 1 : end])
            stops = end == len(tags) or tags[end] != f"I-{label}"
            if starts and continues and stops:
                ranges.add((start, end, label))
    return ranges


@given(st.lists(st.sampled_from(TAGS), max_size=9))
def test_spans_equal_their_definition(tags: list[str]) -> None:
    assert spans(tags) == slow_spans(tags)


@given(sentences)
def test_correct_spans_score_one_and_no_spans_score_zero(true: list[list[str]]) -> None:
    marked = any(tag != "O" for tags in true for tag in tags)
    assert span_f1(true, true) == (1.0 if marked else 0.0)
    assert span_f1(true, [["O"] * len(tags) for tags in true]) == 0.0


def test_are_span_tags() -> None:
    assert are_span_tags(["O", "B-PER", "I-PER"])
    assert not are_span_tags(["O"])
    assert not are_span_tags(["O", "B-"])
    assert not are_span_tags(["NOUN", "B-PER"])


def test_the_loss_of_labels_is_in_nats() -> None:
    p = np.array([[0.5, 0.5], [0.25, 0.75]])
    assert mean_nll(p, [0, 0]) == pytest.approx((math.log(2) + math.log(4)) / 2)
    assert math.isfinite(mean_nll(np.array([[0.0, 1.0]]), [0]))
