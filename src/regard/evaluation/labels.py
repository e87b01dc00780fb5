"""How good labels are: accuracy, macro-F1, the confusion matrix, and F1 of spans for tags such as B-PER and I-PER.

L labels
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Span = tuple[int, int, str]  # the first word, the one after the last, and what it is


@dataclass(frozen=True)
class Confusion:
    """How often each label was given where each was right: a row for the right one, a column for the one given."""

    labels: Sequence[str]
    counts: NDArray[np.int64]  # (L, L)

    @property
    def accuracy(self) -> float:
        """The share that is right."""
        return float(self.counts.trace() / max(1, self.counts.sum()))

    @property
    def macro_f1(self) -> float:
        """The mean of the labels' F1, each with equal weight; a label that neither is nor was given has none."""
        found = [score for score in self.f1.values() if score is not None]
        return sum(found) / max(1, len(found))

    @property
    def f1(self) -> dict[str, float | None]:
        """F1 of each label: 2·right / (given + true); None where it neither is nor was given."""
        right, true, given = self.counts.diagonal(), self.counts.sum(1), self.counts.sum(0)
        return {
            label: 2 * int(right[n]) / int(true[n] + given[n]) if true[n] + given[n] else None
            for n, label in enumerate(self.labels)
        }

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"labels": list(self.labels), "counts": self.counts.tolist()}


def confusion(labels: Sequence[str], right: Iterable[int], given: Iterable[int]) -> Confusion:
    """The confusion of labels, by their numbers.

    >>> found = confusion(["no", "yes"], right=[0, 0, 1, 1], given=[0, 1, 1, 1])
    >>> found.counts.tolist(), found.accuracy, round(found.macro_f1, 3)
    ([[1, 1], [0, 2]], 0.75, 0.733)
    """
    counts = np.zeros((len(labels), len(labels)), np.int64)
    np.add.at(counts, (np.fromiter(right, np.int64), np.fromiter(given, np.int64)), 1)
    return Confusion(labels, counts)


def are_spans(tags: Iterable[str]) -> bool:
    """Whether tags mark spans: `O`, and `B-` or `I-` with what the span is.

    >>> are_spans(["O", "B-PER", "I-PER"]), are_spans(["NOUN", "VERB"])
    (True, False)
    """
    marked = [tag for tag in tags if tag != "O"]
    return bool(marked) and all(tag[:2] in ("B-", "I-") and len(tag) > 2 for tag in marked)


def spans(tags: Sequence[str]) -> set[Span]:
    """The spans that tags mark; an `I-` that continues nothing of its kind begins a span too.

    >>> sorted(spans(["B-PER", "I-PER", "O", "I-LOC", "B-LOC"]))
    [(0, 2, 'PER'), (3, 4, 'LOC'), (4, 5, 'LOC')]
    """
    found: set[Span] = set()
    start, kind = 0, ""
    for place, tag in enumerate([*tags, "O"]):
        mark, _, of = tag.partition("-")
        if kind and (mark != "I" or of != kind):
            found.add((start, place, kind))
            kind = ""
        if mark in ("B", "I") and not kind:
            start, kind = place, of
    return found


def span_f1(right: Iterable[Sequence[str]], given: Iterable[Sequence[str]]) -> float:
    """F1 of spans over sentences: a span counts where it has the right words and is of the right kind.

    >>> round(span_f1([["B-A", "I-A", "O", "B-B"]], [["B-A", "O", "O", "B-B"]]), 3)
    0.5
    """
    hits = total = 0
    for wanted, found in zip(right, given, strict=True):
        ours, theirs = spans(found), spans(wanted)
        hits, total = hits + len(ours & theirs), total + len(ours) + len(theirs)
    return 2 * hits / total if total else 0.0


@dataclass(frozen=True)
class LabelScores:
    """What was measured on labelled texts or tagged sentences."""

    scores: Mapping[str, float]
    confusion: Confusion
    examples: int
    counted: Mapping[str, int] = field(default_factory=dict)  # what was cut or divided

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "scores": dict(self.scores),
            "f1": self.confusion.f1,
            "confusion": self.confusion.as_dict(),
            "sentences": self.examples,
            **self.counted,
        }


def class_scores(loss: float, found: Confusion) -> dict[str, float]:
    """The scores of a classifier by name."""
    return {"loss": loss, "accuracy": found.accuracy, "macro_f1": found.macro_f1}


def tag_scores(
    loss: float, found: Confusion, right: Sequence[Sequence[str]], given: Sequence[Sequence[str]]
) -> dict[str, float]:
    """The scores of a tagger by name; those of spans where the tags mark such."""
    scores = class_scores(loss, found)
    return scores | ({"span_f1": span_f1(right, given)} if are_spans(found.labels) else {})
