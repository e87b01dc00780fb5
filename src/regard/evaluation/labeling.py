"""Evaluation of classifiers and taggers on labeled data."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from regard.config import ClassHeadConfig, TagHeadConfig
from regard.data.encoder_batches import words_with_spaces
from regard.data.lines import InvalidLines
from regard.data.prepare_labeled import with_known_labels
from regard.data.readers.base import LabeledExample, TaggedExample
from regard.data.store import chunked
from regard.data.tokenizer import unknown_note
from regard.decoding.encoder_inference import TextEncoder, label_probabilities, labels_of_head, tag_probabilities
from regard.errors import DataError
from regard.evaluation.likelihood import ProgressCallback
from regard.evaluation.metrics import LabelScores, class_scores, confusion_matrix, tag_scores

LABELING_BATCH = 1024  # examples per forward pass


def evaluate_classifier(
    encoder: TextEncoder,
    examples: Iterable[LabeledExample],
    name: str,
    invalid: InvalidLines,
    progress: ProgressCallback,
) -> LabelScores:
    """Return loss, accuracy, macro-F1 and the confusion matrix of a classifier.

    Args:
        encoder: A text encoder with a classification head.
        examples: Texts with their true labels.
        name: What the data are called in error messages.
        invalid: Receives the examples whose label the model does not have.
        progress: Called after each batch with the number of texts so far.
    """
    labels = labels_of_head(encoder, ClassHeadConfig, name)
    index = {label: n for n, label in enumerate(labels)}
    true: list[int] = []
    batches: list[NDArray[np.float64]] = []
    truncated, unknown = 0, _UnknownTokens(encoder)
    for batch in chunked(with_known_labels(examples, index, invalid), LABELING_BATCH):
        texts = [example.text if example.second is None else (example.text, example.second) for example in batch]
        probabilities, is_truncated = label_probabilities(encoder, texts)
        true += [index[example.label] for example in batch]
        batches.append(probabilities)
        truncated += sum(is_truncated)
        unknown.count(text for example in batch for text in (example.text, example.second) if text is not None)
        progress("classifying", len(true), None)
    if not true:
        raise DataError(f"{name}: contains no texts to evaluate a model on; use a file with labeled texts.")
    unknown.report(invalid)
    p = np.concatenate(batches)
    matrix = confusion_matrix(labels, true, p.argmax(1).tolist())
    counts = {"truncated": truncated} if truncated else {}
    return LabelScores(class_scores(_mean_nll(p, true), matrix), matrix, len(true), counts)


def evaluate_tagger(
    encoder: TextEncoder,
    examples: Iterable[TaggedExample],
    name: str,
    invalid: InvalidLines,
    progress: ProgressCallback,
) -> LabelScores:
    """Return loss, accuracy, macro-F1 and the confusion matrix over words, and F1 of spans if the tags mark spans.

    The arguments are those of `evaluate_classifier`; the examples are sentences with a tag per word.
    """
    labels = labels_of_head(encoder, TagHeadConfig, name)
    index = {label: n for n, label in enumerate(labels)}
    true: list[Sequence[str]] = []
    predicted: list[list[str]] = []
    sentences: list[NDArray[np.float64]] = []
    unknown = _UnknownTokens(encoder)
    for batch in chunked(with_known_labels(examples, index, invalid), LABELING_BATCH):
        batch_probabilities = tag_probabilities(encoder, [example.words for example in batch])
        for example, probabilities in zip(batch, batch_probabilities, strict=True):
            true.append(example.tags)
            predicted.append([labels[n] for n in probabilities.argmax(1)])
            sentences.append(probabilities)
        unknown.count(text for example in batch for text in words_with_spaces(example.words))
        progress("tagging", len(true), None)
    if not true:
        raise DataError(f"{name}: contains no sentences to evaluate a model on; use a file with tagged sentences.")
    unknown.report(invalid)
    p, true_indices = np.concatenate(sentences), [index[tag] for tags in true for tag in tags]
    matrix = confusion_matrix(labels, true_indices, p.argmax(1).tolist())
    return LabelScores(tag_scores(_mean_nll(p, true_indices), matrix, true, predicted), matrix, len(true))


class _UnknownTokens:
    """Counts the tokens of text that the tokenizer of an encoder does not know."""

    def __init__(self, encoder: TextEncoder) -> None:
        self._tokenizer = encoder.tokenizer
        self._unknown = self._total = 0

    def count(self, texts: Iterable[str]) -> None:
        """Count the tokens of texts."""
        if self._tokenizer.unknown_id is not None:
            for ids in self._tokenizer.encode_batch(list(texts)):
                self._unknown += self._tokenizer.num_unknown(ids)
                self._total += len(ids)

    def report(self, invalid: InvalidLines) -> None:
        """Add a note if there were any."""
        if self._unknown:
            invalid.note(unknown_note(self._unknown, self._total))


def _mean_nll(p: NDArray[np.float64], true: Sequence[int]) -> float:
    """Return the mean negative log-likelihood in nats."""
    return float(-np.log(np.maximum(p[np.arange(len(true)), list(true)], 1e-300)).mean())
