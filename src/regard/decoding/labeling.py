"""Labels of texts, each with its probability. N texts · L labels"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from regard.config import ClassHeadConfig, TagHeadConfig
from regard.data.encoder_inputs import EncoderInput
from regard.decoding.text_encoder import TextEncoder, TextOrPair, labels_of_head


@dataclass(frozen=True)
class Classification:
    """What a text was taken for."""

    label: str
    probabilities: dict[str, float]  # of every label
    cut: bool = False  # whether the text was longer than the network can read

    @property
    def probability(self) -> float:
        """How sure the network is."""
        return self.probabilities[self.label]


def classify(reader: TextEncoder, texts: Sequence[TextOrPair], who: str = "the model") -> list[Classification]:
    """The label of each text."""
    labels = labels_of_head(reader, ClassHeadConfig, who)
    found, cut = label_probabilities(reader, texts)
    return [
        Classification(labels[int(row.argmax())], dict(zip(labels, row.tolist(), strict=True)), one)
        for row, one in zip(found, cut, strict=True)
    ]


@torch.no_grad()
def label_probabilities(reader: TextEncoder, texts: Sequence[TextOrPair]) -> tuple[NDArray[np.float64], list[bool]]:
    """The probability of each label for each text (N, L), and which texts were cut."""
    rows = reader.framed(texts)
    labels = labels_of_head(reader, ClassHeadConfig, "the model")
    found = np.zeros((len(rows), len(labels)))
    for some, memory in reader.read(rows):
        logits = reader.network.logits(reader.network.pool(memory))
        found[some] = logits.double().softmax(-1).cpu().numpy()
    return found, [row.truncated for row in rows]


def tag(reader: TextEncoder, sentences: Sequence[Sequence[str]], who: str = "the model") -> list[list[str]]:
    """The tag of each word of each sentence."""
    labels = labels_of_head(reader, TagHeadConfig, who)
    return [[labels[int(row.argmax())] for row in found] for found in tag_probabilities(reader, sentences)]


@torch.no_grad()
def tag_probabilities(reader: TextEncoder, sentences: Sequence[Sequence[str]]) -> list[NDArray[np.float64]]:
    """The probability of each tag for each word (N, L), sentence by sentence.

    A sentence that is longer than the network can read is read in several parts, each without sight of the others.
    """
    divided = list(reader.divided(sentences))
    rows = [row for parts in divided for row in parts]
    found: dict[int, NDArray[np.float64]] = {}
    for some, memory in reader.read([EncoderInput(ids) for ids, _ in rows]):
        for place, n in enumerate(some):
            words = memory.states[place, rows[n][1]]  # (N, C): the first sub-word of each word
            found[int(n)] = reader.network.logits(words).double().softmax(-1).cpu().numpy()
    parts = iter(found[n] for n in range(len(rows)))
    empty = np.zeros((0, len(labels_of_head(reader, TagHeadConfig, "the model"))))
    return [np.concatenate([empty, *(next(parts) for _ in several)]) for several in divided]


class Word(NamedTuple):
    """A word, or a sign; `start` and `end` count characters."""

    text: str
    start: int
    end: int


def split_words(sentence: str, *, split_signs: bool = False) -> list[Word]:
    """What spaces separate; with `split_signs`, the signs around words are words too, as corpora have them.

    >>> [word.text for word in split_words("(Ada's) friend, 5 €.", split_signs=True)]
    ['(', "Ada's", ')', 'friend', ',', '5', '€', '.']
    >>> split_words("in London.")
    [Word(text='in', start=0, end=2), Word(text='London.', start=3, end=10)]
    """
    found = (Word(match[0], *match.span()) for match in re.finditer(r"\S+", sentence))
    return [part for word in found for part in _split_punctuation(word)] if split_signs else list(found)


def _split_punctuation(word: Word) -> Iterator[Word]:
    """The signs before a word, the word, and the signs behind it."""
    text = word.text
    first = next((n for n, character in enumerate(text) if not _is_punctuation(character)), len(text))
    last = max((n + 1 for n, character in enumerate(text) if not _is_punctuation(character)), default=first)
    for start, end in [*_single_characters(0, first), (first, last), *_single_characters(last, len(text))]:
        if end > start:
            yield Word(text[start:end], word.start + start, word.start + end)


def _single_characters(start: int, end: int) -> list[tuple[int, int]]:
    return [(n, n + 1) for n in range(start, end)]


def _is_punctuation(character: str) -> bool:
    """Punctuation or a symbol; marks that belong to letters are neither."""
    return unicodedata.category(character)[0] in "PS"
