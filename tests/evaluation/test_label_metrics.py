"""Label metrics equal slow reference definitions, and scikit-learn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.evaluation.label_metrics import are_span_tags, confusion_matrix, span_f1, spans

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
