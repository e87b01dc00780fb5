"""Scores of labels equal those of slow definitions, and of scikit-learn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.evaluation.labels import are_spans, confusion, span_f1, spans

LABELS = ["a", "b", "c", "d"]
TAGS = ["O", "B-X", "I-X", "B-Y", "I-Y"]
pairs = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30)
sentences = st.lists(st.lists(st.sampled_from(TAGS), max_size=8), max_size=4)


def slow_f1(label: int, right: list[int], said: list[int]) -> float | None:
    hits = sum(r == s == label for r, s in zip(right, said, strict=True))
    false = sum(s == label != r for r, s in zip(right, said, strict=True))
    missed = sum(r == label != s for r, s in zip(right, said, strict=True))
    if hits + false + missed == 0:
        return None
    precision = hits / (hits + false) if hits + false else 0.0
    recall = hits / (hits + missed) if hits + missed else 0.0
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


@given(pairs)
def test_scores_follow_from_their_definitions(examples: list[tuple[int, int]]) -> None:
    right, said = [list(column) for column in zip(*examples, strict=True)]
    found = confusion(LABELS, right, said)
    assert found.accuracy == sum(r == s for r, s in examples) / len(examples)
    slow = [slow_f1(label, right, said) for label in range(4)]
    assert np.allclose([score or 0 for score in found.f1.values()], [score or 0 for score in slow])
    assert [score is None for score in found.f1.values()] == [score is None for score in slow]
    assert found.counts.tolist() == [[examples.count((r, s)) for s in range(4)] for r in range(4)]
    known = [score for score in slow if score is not None]
    assert np.isclose(found.macro_f1, sum(known) / len(known))


@given(pairs)
def test_macro_f1_is_scikit_learns(examples: list[tuple[int, int]]) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    right, said = [list(column) for column in zip(*examples, strict=True)]
    found = confusion(LABELS, right, said)
    assert np.isclose(found.macro_f1, metrics.f1_score(right, said, average="macro", zero_division=0.0))


def slow_spans(tags: list[str]) -> set[tuple[int, int, str]]:
    """Every stretch of words that begins where a span may, continues by I- of its kind, and cannot go on."""
    found = set()
    for start in range(len(tags)):
        for end in range(start + 1, len(tags) + 1):
            kind = tags[start][2:]
            before = tags[start - 1] if start else "O"
            begins = tags[start].startswith("B-") or (tags[start].startswith("I-") and before[2:] != kind)
            goes_on = all(tag == f"I-{kind}" for tag in tags[start + 1 : end])
            stops = end == len(tags) or tags[end] != f"I-{kind}"
            if begins and goes_on and stops:
                found.add((start, end, kind))
    return found


@given(st.lists(st.sampled_from(TAGS), max_size=9))
def test_spans_are_the_stretches_that_tags_mark(tags: list[str]) -> None:
    assert spans(tags) == slow_spans(tags)


@given(sentences)
def test_right_spans_score_one_and_none_score_zero(right: list[list[str]]) -> None:
    marked = any(tag != "O" for tags in right for tag in tags)
    assert span_f1(right, right) == (1.0 if marked else 0.0)
    assert span_f1(right, [["O"] * len(tags) for tags in right]) == 0.0


def test_only_tags_of_spans_are_taken_for_spans() -> None:
    assert are_spans(["O", "B-PER", "I-PER"])
    assert not are_spans(["O"])
    assert not are_spans(["O", "B-"])
    assert not are_spans(["NOUN", "B-PER"])
