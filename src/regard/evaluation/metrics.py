"""Metrics of translations and labels, from texts and counts alone.

Translations: BLEU, chrF and TER by sacrebleu with their signatures, exact matches, and scores by length. Labels:
accuracy, macro-F1, the confusion matrix, and F1 of spans for tags such as B-PER and I-PER.

L labels
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric

References = Sequence[str]  # the reference translations of one sentence
LabeledSpan = tuple[int, int, str]  # index of the first word, index after the last word, label
FAST_METRICS = ("bleu", "chrf")
ALL_METRICS = (*FAST_METRICS, "ter")  # TER searches for shifted words, which is slow on poor translations
LENGTH_BUCKETS = ((1, 5), (6, 10), (11, 20), (21, 30), (31, 50), (51, None))  # source words, separated by spaces


@dataclass(frozen=True)
class TranslationScores:
    """Corpus scores of translations."""

    values: dict[str, float]
    """Score by metric; `exact` is the fraction of translations that equal one of their references."""
    signatures: dict[str, str]
    """sacrebleu's signature by metric."""


def score_translations(
    outputs: Sequence[str],
    references: Sequence[References],
    metrics: Sequence[str] = FAST_METRICS,
    bleu_tokenizer: str = "13a",
) -> TranslationScores:
    """Score detokenized translations against their references.

    Args:
        outputs: One translation per sentence.
        references: One or more references per sentence.
        metrics: Names from `ALL_METRICS`.
        bleu_tokenizer: sacrebleu's tokenizer for BLEU.

    >>> scores = score_translations(["Ti amo molto."], [["Ti amo molto.", "Ti voglio molto bene."]], ALL_METRICS)
    >>> {name: round(value) for name, value in scores.values.items()}
    {'bleu': 100, 'chrf': 100, 'ter': 0, 'exact': 1}
    """
    scorers = {name: _metric(name, bleu_tokenizer) for name in metrics}
    streams = [list(stream) for stream in zip_longest(*references)]  # first reference of each sentence, second, …
    results = {name: scorer.corpus_score(list(outputs), streams) for name, scorer in scorers.items()}
    exact = sum(output in accepted for output, accepted in zip(outputs, references, strict=True))
    return TranslationScores(
        {**{name: result.score for name, result in results.items()}, "exact": exact / len(outputs)},
        {name: str(scorer.get_signature()) for name, scorer in scorers.items()},
    )


def sentence_chrf(outputs: Sequence[str], references: Sequence[References]) -> list[float]:
    """Return chrF of each translation; unlike BLEU, it is meaningful for a single sentence."""
    chrf = _metric("chrf")
    return [chrf.sentence_score(output, accepted).score for output, accepted in zip(outputs, references, strict=True)]


@dataclass(frozen=True)
class LengthBucket:
    """Scores of the sentences whose sources have `min_words` to `max_words` words (None: no upper bound)."""

    min_words: int
    max_words: int | None
    sentences: int
    bleu: float
    chrf: float

    @property
    def words(self) -> str:
        """The range of lengths as text.

        >>> LengthBucket(6, 10, 1, 0.0, 0.0).words, LengthBucket(51, None, 1, 0.0, 0.0).words
        ('6–10', '51+')
        """
        return f"{self.min_words}+" if self.max_words is None else f"{self.min_words}–{self.max_words}"

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)


def score_by_length(
    sources: Sequence[str], outputs: Sequence[str], references: Sequence[References], bleu_tokenizer: str = "13a"
) -> list[LengthBucket]:
    """Score translations by the length of their sources; empty buckets are omitted.

    >>> [bucket.words for bucket in score_by_length(["a b", "a " * 60], ["x", "y"], [["x"], ["z"]])]
    ['1–5', '51+']
    """
    lengths = [len(source.split()) for source in sources]
    buckets = []
    for low, high in LENGTH_BUCKETS:
        indices = [n for n, words in enumerate(lengths) if low <= words and (high is None or words <= high)]
        if indices:
            scores = score_translations(
                [outputs[n] for n in indices], [references[n] for n in indices], bleu_tokenizer=bleu_tokenizer
            ).values
            buckets.append(LengthBucket(low, high, len(indices), scores["bleu"], scores["chrf"]))
    return buckets


def _metric(name: str, bleu_tokenizer: str = "13a") -> "Metric":
    from sacrebleu.metrics.bleu import BLEU  # slow to import, and only translation needs it
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    if name == "bleu":
        return BLEU(tokenize=bleu_tokenizer, force=True)  # no warning about text that looks tokenized
    metrics: dict[str, Callable[[], Metric]] = {"chrf": CHRF, "ter": TER}
    return metrics[name]()


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

    @property
    def majority_label(self) -> str:
        """The most frequent true label; of several, the first."""
        return self.labels[int(self.counts.sum(1).argmax())]

    def majority_scores(self) -> dict[str, float]:
        """Return accuracy and macro-F1 of the majority baseline, which predicts the most frequent label everywhere.

        >>> matrix = confusion_matrix(["no", "yes"], true=[0, 0, 0, 1], predicted=[0, 1, 1, 1])
        >>> matrix.majority_label, matrix.majority_scores()
        ('no', {'accuracy': 0.75, 'macro_f1': 0.42857142857142855})
        """
        true = self.counts.sum(1)
        counts = np.zeros_like(self.counts)
        counts[:, true.argmax()] = true
        baseline = ConfusionMatrix(self.labels, counts)
        return {"accuracy": baseline.accuracy, "macro_f1": baseline.macro_f1}


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


def spans(tags: Sequence[str]) -> set[LabeledSpan]:
    """Return the spans that tags mark; an `I-` that does not continue a span of its label starts a new one.

    >>> sorted(spans(["B-PER", "I-PER", "O", "I-LOC", "B-LOC"]))
    [(0, 2, 'PER'), (3, 4, 'LOC'), (4, 5, 'LOC')]
    """
    marked: set[LabeledSpan] = set()
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
            "majority": {"label": self.confusion.majority_label, **self.confusion.majority_scores()},
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
