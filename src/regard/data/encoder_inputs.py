"""A text as an encoder reads it: `[start] text [end]`, and of two texts `[start] one [end] other [end]`.

What is longer than the network can read is cut at its end, of two texts the longer one first. A sentence whose words
are each to be tagged is divided instead, between words, so that none is lost.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.config import SpecialTokensConfig
from regard.data.pair_batches import Ids, Mask, pad_sequences

MAX_TOKENS = 2**16 - 1  # tokens of a text, however many a network can read: a store counts them in 16 bits


@dataclass(frozen=True)
class EncoderInput:
    """The ids of a text with its frame, how many of the last of them are the second text's, and whether it was cut."""

    ids: list[int]
    second_length: int = 0
    truncated: bool = False


@dataclass(frozen=True)
class InputTemplate:
    """What stands around texts, and how long all of it may be."""

    start: int
    end: int
    max_length: int = MAX_TOKENS

    @classmethod
    def for_model(cls, tokens: SpecialTokensConfig, longest: int | None) -> "InputTemplate":
        """The frame of a network that reads so many tokens; None: any number."""
        return cls(tokens.start, tokens.end, max(4, min(longest or MAX_TOKENS, MAX_TOKENS)))

    def wrap(self, first: Sequence[int], second: Sequence[int] | None = None) -> EncoderInput:
        """A text, or two, in their frame.

        >>> InputTemplate(start=2, end=3).wrap([7, 8], [9])
        EncoderInput(ids=[2, 7, 8, 3, 9, 3], second_length=2, truncated=False)
        >>> InputTemplate(start=2, end=3, max_length=5).wrap([7, 8], [9])
        EncoderInput(ids=[2, 7, 3, 9, 3], second_length=2, truncated=True)
        """
        if second is None:
            kept = first[: self.max_length - 2]
            return EncoderInput([self.start, *kept, self.end], 0, len(kept) < len(first))
        room = self.max_length - 3
        shorter = min(len(first), len(second), room // 2)
        ours, theirs = min(len(first), room - shorter), min(len(second), room - shorter)
        if ours + theirs > room:  # both are long: half for each
            ours = room - theirs
        ids = [self.start, *first[:ours], self.end, *second[:theirs], self.end]
        return EncoderInput(ids, theirs + 1, ours < len(first) or theirs < len(second))

    def wrap_words(self, words: Sequence[Sequence[int]], unknown: int) -> Iterator[tuple[list[int], list[int]]]:
        """Words, each in its sub-words, as one framed row or several, each with the places of its words' first ones.

        A word without a sub-word is unknown; one that is longer than a row by itself is cut.

        >>> list(InputTemplate(start=2, end=3, max_length=5).wrap_words([[7, 8], [9], [5, 6]], unknown=1))
        [([2, 7, 8, 9, 3], [1, 3]), ([2, 5, 6, 3], [1])]
        """
        row, places, room = [self.start], list[int](), self.max_length - 2
        for pieces in words:
            kept = list(pieces[:room]) or [unknown]
            if len(row) - 1 + len(kept) > room:
                yield [*row, self.end], places
                row, places = [self.start], []
            places.append(len(row))
            row.extend(kept)
        if places:
            yield [*row, self.end], places


@dataclass(frozen=True)
class EncoderBatch:
    """Framed rows as a rectangle. B rows · S tokens"""

    ids: Ids  # (B, S)
    mask: Mask  # (B, S) where it is not padding
    segment_ids: Ids  # (B, S) 1 in second texts


def make_encoder_batch(rows: Sequence[NDArray[np.integer]], seconds: Sequence[int], pad_id: int) -> EncoderBatch:
    """Rows of ids, and how many of the last tokens of each belong to its second text.

    >>> batch = make_encoder_batch([np.array([2, 7, 3, 9, 3]), np.array([2, 8, 3])], [2, 0], pad_id=0)
    >>> batch.segment_ids.tolist()
    [[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]]
    """
    ids, real = pad_sequences(rows, pad_id=pad_id)
    lengths = real.sum(1)[:, None]
    place = np.arange(ids.shape[1])
    segments = (place >= lengths - np.asarray(seconds)[:, None]) & real
    return EncoderBatch(ids, real, segments.astype(np.int64))


def words_with_spaces(words: Sequence[str]) -> list[str]:
    """The words of a sentence as a tokenizer meets them in it: with the space before each but the first.

    >>> words_with_spaces(["I", "see"])
    ['I', ' see']
    """
    return [f" {word}" if place else word for place, word in enumerate(words)]
