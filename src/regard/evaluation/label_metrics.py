"""Label metrics: accuracy, macro-F1, the confusion matrix, and F1 of spans for tags such as B-PER and I-PER.

L labels
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Span = tuple[int, int, str]  # index of the first word, index after the last word, label


@dataclass(frozen=True)
class ConfusionMatrix:
    """Counts of predicted labels (columns) by true label (rows)."""

    labels: Sequence[str]
    counts: NDArray[np.int64]  # (L, L)

    @property
    def accuracy(self) -> float:
        """Fraction of correct predictions."""
        return float(self.counts.trace() / max(1, self.counts.sum()))

    @property
    def macro_f1(self) -> float:
        """Mean F1 over the labels that are true or predicted at least once."""
        values = [value for value in self.f1.values() if value is not None]
        return sum(values) / max(1, len(values))

    @property
    def f1(self) -> dict[str, float | None]:
        """F1 of each label, 2·correct / (true + predicted); None if it is neither true nor predicted anywhere."""
        correct, true, predicted = self.counts.diagonal(), self.counts.sum(1), self.counts.sum(0)
        return {
            label: 2 * int(correct[n]) / int(true[n] + predicted[n]) if true[n] + predicted[n] else None
            for n, label in enumerate(self.labels)
        }

    def as_dict(self) -> dict[str, Any]:
        """Return labels and counts for JSON."""
        return {"labels": list(self.labels), "counts": self.counts.tolist()}


def confusion_matrix(labels: Sequence[str], true: Iterable[int], predicted: Iterable[int]) -> ConfusionMatrix:
    """Count label indices.

    >>> matrix = confusion_matrix(["no", "yes"], true=[0, 0, 1, 1], predicted=[0, 1, 1, 1])
    >>> matrix.counts.tolist(), matrix.accuracy, round(matrix.macro_f1, 3)
    ([[1, 1], [0, 2]], 0.75, 0.733)
    """
    counts = np.zeros((len(labels), len(labels)), np.int64)
    np.add.at(counts, (np.fromiter(true, np.int64), np.fromiter(predicted, np.int64)), 1)
    return ConfusionMatrix(labels, counts)


def are_span_tags(tags: Iterable[str]) -> bool:
    """Return whether tags mark spans: `O`, and `B-` or `I-` followed by a label.

    >>> are_span_tags(["O", "B-PER", "I-PER"]), are_span_tags(["NOUN", "VERB"])
    (True, False)
    """
    inside = [tag for tag in tags if tag != "O"]
    return bool(inside) and all(tag[:2] in ("B-", "I-") and len(tag) > 2 for tag in inside)


def spans(tags: Sequence[str]) -> set[Span]:
    """Return the spans that tags mark; an `I-` that does not continue a span of its label starts a new one.

    >>> sorted(spans(["B-PER", "I-PER", "O", "I-LOC", "B-LOC"]))
    [(0, 2, 'PER'), (3, 4, 'LOC'), (4, 5, 'LOC')]
    """
    marked: set[Span] = set()
    start, label = 0, ""
    for index, tag in enumerate([*tags, "O"]):
        prefix, _, tag_label = tag.partition("-")
        if label and (prefix != "I" or tag_label != label):
            marked.add((start, index, label))
            label = ""
        if prefix in ("B", "I") and not label:
            start, label = index, tag_label
    return marked


def span_f1(true: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]) -> float:
    """Return F1 of spans over sentences; a span is correct if its words and its label are.

    >>> round(span_f1([["B-A", "I-A", "O", "B-B"]], [["B-A", "O", "O", "B-B"]]), 3)
    0.5
    """
    correct = total = 0
    for true_tags, predicted_tags in zip(true, predicted, strict=True):
        expected, actual = spans(true_tags), spans(predicted_tags)
        correct, total = correct + len(expected & actual), total + len(expected) + len(actual)
    return 2 * correct / total if total else 0.0


@dataclass(frozen=True)
class LabelScores:
    """Scores of a classifier on texts, or of a tagger on sentences."""

    scores: Mapping[str, float]
    confusion: ConfusionMatrix
    examples: int
    counts: Mapping[str, int] = field(default_factory=dict)
    """Other counts, such as `truncated` texts."""

    def as_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {
            "scores": dict(self.scores),
            "f1": self.confusion.f1,
            "confusion": self.confusion.as_dict(),
            "sentences": self.examples,
            **self.counts,
        }


def class_scores(loss: float, confusion: ConfusionMatrix) -> dict[str, float]:
    """Return the scores of a classifier by name."""
    return {"loss": loss, "accuracy": confusion.accuracy, "macro_f1": confusion.macro_f1}


def tag_scores(
    loss: float, confusion: ConfusionMatrix, true: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Return the scores of a tagger by name, with `span_f1` if the tags mark spans."""
    scores = class_scores(loss, confusion)
    return scores | ({"span_f1": span_f1(true, predicted)} if are_span_tags(confusion.labels) else {})
