"""Classification of texts and tagging of words.

N texts, or words of a sentence · C model width · L labels
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from regard.config import ClassHeadConfig, EncoderConfig, TagHeadConfig
from regard.data.encoder_batches import EncoderInput
from regard.decoding.results import Classification, TaggedWord
from regard.decoding.text_encoder import TextEncoder, TextOrPair
from regard.errors import ConfigError


def labels_of_head(
    encoder: TextEncoder, head: type[ClassHeadConfig] | type[TagHeadConfig], name: str
) -> tuple[str, ...]:
    """Return the labels of a network with such a head; raise ConfigError for the model `name` if it has none."""
    model = encoder.config.model
    model_head = model.head if isinstance(model, EncoderConfig) else None
    if isinstance(model_head, head):
        return model_head.labels
    what, command = ("texts", "classify") if head is ClassHeadConfig else ("words", "tag")
    if model_head is not None and model_head.kind != "none":
        reason = f"its head is for {model_head.kind}"
    else:
        reason = "it has no head"
    raise ConfigError(f"{name}: cannot label {what}, because {reason}; train a model with regard train {command}.")


def classify(encoder: TextEncoder, texts: Sequence[TextOrPair], name: str = "the model") -> list[Classification]:
    """Return the label of each text; `name` is what the model is called in errors."""
    labels = labels_of_head(encoder, ClassHeadConfig, name)
    probabilities, truncated = label_probabilities(encoder, texts)
    return [
        Classification(labels[int(row.argmax())], dict(zip(labels, row.tolist(), strict=True)), is_truncated)
        for row, is_truncated in zip(probabilities, truncated, strict=True)
    ]


@torch.no_grad()
def label_probabilities(encoder: TextEncoder, texts: Sequence[TextOrPair]) -> tuple[NDArray[np.float64], list[bool]]:
    """Return the probability of each label for each text (N, L), and which texts were truncated."""
    inputs = encoder.tokenize(texts)
    labels = labels_of_head(encoder, ClassHeadConfig, "the model")
    probabilities = np.zeros((len(inputs), len(labels)))
    for indices, memory in encoder.encode(inputs):
        logits = encoder.network.logits(encoder.network.pool(memory))
        probabilities[indices] = logits.double().softmax(-1).cpu().numpy()
    return probabilities, [row.truncated for row in inputs]


def tag(encoder: TextEncoder, sentences: Sequence[Sequence[str]], name: str = "the model") -> list[list[TaggedWord]]:
    """Return the words of each sentence with their tags; `name` is what the model is called in errors."""
    labels = labels_of_head(encoder, TagHeadConfig, name)
    return [
        [TaggedWord(word, labels[int(row.argmax())], float(row.max())) for word, row in zip(words, rows, strict=True)]
        for words, rows in zip(sentences, tag_probabilities(encoder, sentences), strict=True)
    ]


@torch.no_grad()
def tag_probabilities(encoder: TextEncoder, sentences: Sequence[Sequence[str]]) -> list[NDArray[np.float64]]:
    """Return the probability of each tag for each word (N, L), sentence by sentence.

    A sentence longer than the network's maximum length is tagged in several independent parts.
    """
    sentence_inputs = list(encoder.tokenize_words(sentences))
    inputs = [row for rows in sentence_inputs for row in rows]
    probabilities: dict[int, NDArray[np.float64]] = {}
    for indices, memory in encoder.encode([EncoderInput(ids) for ids, _ in inputs]):
        for row, n in enumerate(indices):
            word_states = memory.states[row, inputs[n][1]]  # (N, C): the first token of each word
            probabilities[int(n)] = encoder.network.logits(word_states).double().softmax(-1).cpu().numpy()
    parts = iter(probabilities[n] for n in range(len(inputs)))
    empty = np.zeros((0, len(labels_of_head(encoder, TagHeadConfig, "the model"))))
    return [np.concatenate([empty, *(next(parts) for _ in rows)]) for rows in sentence_inputs]


class Word(NamedTuple):
    """A word or punctuation mark with its range of characters."""

    text: str
    start: int
    end: int


def split_words(sentence: str, *, split_punctuation: bool = False) -> list[Word]:
    """Split a sentence at spaces; with `split_punctuation`, punctuation around words becomes words of its own.

    >>> [word.text for word in split_words("(Ada's) friend, 5 €.", split_punctuation=True)]
    ['(', "Ada's", ')', 'friend', ',', '5', '€', '.']
    >>> split_words("in London.")
    [Word(text='in', start=0, end=2), Word(text='London.', start=3, end=10)]
    """
    words = (Word(match[0], *match.span()) for match in re.finditer(r"\S+", sentence))
    return [part for word in words for part in _split_punctuation(word)] if split_punctuation else list(words)


def _split_punctuation(word: Word) -> Iterator[Word]:
    """Yield the punctuation before a word, the word, and the punctuation after it."""
    text = word.text
    first = next((n for n, character in enumerate(text) if not _is_punctuation(character)), len(text))
    last = max((n + 1 for n, character in enumerate(text) if not _is_punctuation(character)), default=first)
    for start, end in [*_single_characters(0, first), (first, last), *_single_characters(last, len(text))]:
        if end > start:
            yield Word(text[start:end], word.start + start, word.start + end)


def _single_characters(start: int, end: int) -> list[tuple[int, int]]:
    return [(n, n + 1) for n in range(start, end)]


def _is_punctuation(character: str) -> bool:
    """Return whether a character is punctuation or a symbol; combining marks are neither."""
    return unicodedata.category(character)[0] in "PS"
