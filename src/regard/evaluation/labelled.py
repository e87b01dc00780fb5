"""How well a classifier or a tagger does on labelled data."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from regard.config import ClassHeadConfig, TagHeadConfig
from regard.data.labelled import LabeledExample
from regard.data.lines import InvalidLines
from regard.data.readers.conll import TaggedExample
from regard.data.store import chunked
from regard.decoding.labeling import label_probabilities, tag_probabilities
from regard.decoding.text_encoder import TextEncoder, labels_of_head
from regard.errors import DataError
from regard.evaluation.labels import LabelScores, class_scores, confusion, tag_scores

Report = Callable[[str, int, int | None], None]
TOGETHER = 1024  # texts that are read at once
E = TypeVar("E", LabeledExample, TaggedExample)


def evaluate_texts(
    reader: TextEncoder, examples: Iterable[LabeledExample], name: str, faults: InvalidLines, report: Report
) -> LabelScores:
    """Loss, accuracy, macro-F1 and confusion of a classifier."""
    labels = labels_of_head(reader, ClassHeadConfig, name)
    number = {label: n for n, label in enumerate(labels)}
    right: list[int] = []
    given: list[NDArray[np.float64]] = []
    cut = 0
    for some in chunked(_known(examples, labels, faults), TOGETHER):
        texts = [one.text if one.second is None else (one.text, one.second) for one in some]
        found, long = label_probabilities(reader, texts)
        right += [number[one.label] for one in some]
        given.append(found)
        cut += sum(long)
        report("classifying", len(right), None)
    if not right:
        raise DataError(f"{name}: has no texts to evaluate a model on; give some.")
    p = np.concatenate(given)
    table = confusion(labels, right, p.argmax(1).tolist())
    return LabelScores(class_scores(_loss(p, right), table), table, len(right), {"cut": cut} if cut else {})


def evaluate_tags(
    reader: TextEncoder, examples: Iterable[TaggedExample], name: str, faults: InvalidLines, report: Report
) -> LabelScores:
    """Loss, accuracy, macro-F1 and confusion of a tagger, word by word; F1 of spans where the tags mark such."""
    labels = labels_of_head(reader, TagHeadConfig, name)
    number = {label: n for n, label in enumerate(labels)}
    right: list[Sequence[str]] = []
    given: list[list[str]] = []
    each: list[NDArray[np.float64]] = []
    for some in chunked(_known(examples, labels, faults), TOGETHER):
        for one, found in zip(some, tag_probabilities(reader, [one.words for one in some]), strict=True):
            right.append(one.tags)
            given.append([labels[n] for n in found.argmax(1)])
            each.append(found)
        report("tagging", len(right), None)
    if not right:
        raise DataError(f"{name}: has no sentences to evaluate a model on; give some.")
    p, wanted = np.concatenate(each), [number[tag] for tags in right for tag in tags]
    table = confusion(labels, wanted, p.argmax(1).tolist())
    return LabelScores(tag_scores(_loss(p, wanted), table, right, given), table, len(right))


def _loss(p: NDArray[np.float64], right: Sequence[int]) -> float:
    """The mean negative log-likelihood, in nats."""
    return float(-np.log(np.maximum(p[np.arange(len(right)), list(right)], 1e-300)).mean())


def _known(examples: Iterable[E], labels: Sequence[str], faults: InvalidLines) -> Iterator[E]:
    for one in examples:
        unknown = next((label for label in one.labels if label not in labels), None)
        if unknown is None:
            yield one
        else:
            faults.add(
                "unknown label", f"{one.location}: has the label {unknown!r}, which the model does not know; correct it"
            )
