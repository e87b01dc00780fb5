"""Inputs of encoders: `[start] text [end]`, and for two texts `[start] first [end] second [end]`.

An input that is longer than the network can read is truncated, of two texts the longer one first. A sentence whose
words are tagged is split between words instead, so that no word is lost.

B rows · S tokens
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.config import SpecialTokensConfig
from regard.data.batching import Ids, Mask
from regard.data.pair_batches import pad_sequences

MAX_TOKENS = 2**16 - 1  # of an input: token stores count them in 16 bits


@dataclass(frozen=True)
class EncoderInput:
    """The ids of an input, how many of its last tokens belong to the second text, and whether it was truncated."""

    ids: list[int]
    second_length: int = 0
    truncated: bool = False


@dataclass(frozen=True)
class InputTemplate:
    """Adds start and end tokens to texts, and limits their length."""

    start: int
    end: int
    max_length: int = MAX_TOKENS

    @classmethod
    def for_model(cls, tokens: SpecialTokensConfig, max_length: int | None) -> "InputTemplate":
        """Return the template of a network that reads at most `max_length` tokens; None: any number."""
        return cls(tokens.start, tokens.end, max(4, min(max_length or MAX_TOKENS, MAX_TOKENS)))

    def wrap(self, first: Sequence[int], second: Sequence[int] | None = None) -> EncoderInput:
        """Return the input of one or two texts.

        >>> InputTemplate(start=2, end=3).wrap([7, 8], [9])
        EncoderInput(ids=[2, 7, 8, 3, 9, 3], second_length=2, truncated=False)
        >>> InputTemplate(start=2, end=3, max_length=5).wrap([7, 8], [9])
        EncoderInput(ids=[2, 7, 3, 9, 3], second_length=2, truncated=True)
        """
        if second is None:
            kept = first[: self.max_length - 2]
            return EncoderInput([self.start, *kept, self.end], 0, len(kept) < len(first))
        budget = self.max_length - 3
        shorter = min(len(first), len(second), budget // 2)
        first_length, second_length = min(len(first), budget - shorter), min(len(second), budget - shorter)
        if first_length + second_length > budget:  # both are long: half for each
            first_length = budget - second_length
        ids = [self.start, *first[:first_length], self.end, *second[:second_length], self.end]
        return EncoderInput(ids, second_length + 1, first_length < len(first) or second_length < len(second))

    def wrap_words(self, words: Sequence[Sequence[int]], unknown: int) -> Iterator[tuple[list[int], list[int]]]:
        """Yield the inputs of a sentence, each with the positions of the first tokens of its words.

        A word without tokens becomes the unknown token; one that does not fit an input is truncated.

        >>> list(InputTemplate(start=2, end=3, max_length=5).wrap_words([[7, 8], [9], [5, 6]], unknown=1))
        [([2, 7, 8, 9, 3], [1, 3]), ([2, 5, 6, 3], [1])]
        """
        row, starts, budget = [self.start], list[int](), self.max_length - 2
        for ids in words:
            kept = list(ids[:budget]) or [unknown]
            if len(row) - 1 + len(kept) > budget:
                yield [*row, self.end], starts
                row, starts = [self.start], []
            starts.append(len(row))
            row.extend(kept)
        if starts:
            yield [*row, self.end], starts


@dataclass(frozen=True)
class EncoderBatch:
    """A padded batch of inputs."""

    ids: Ids  # (B, S)
    mask: Mask  # (B, S)
    segment_ids: Ids  # (B, S) 1 in second texts


def make_encoder_batch(rows: Sequence[NDArray[np.integer]], second_lengths: Sequence[int], pad_id: int) -> EncoderBatch:
    """Return the batch of inputs, given how many of the last tokens of each belong to its second text.

    >>> batch = make_encoder_batch([np.array([2, 7, 3, 9, 3]), np.array([2, 8, 3])], [2, 0], pad_id=0)
    >>> batch.segment_ids.tolist()
    [[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]]
    """
    ids, mask = pad_sequences(rows, pad_id=pad_id)
    lengths = mask.sum(1)[:, None]
    second = (np.arange(ids.shape[1]) >= lengths - np.asarray(second_lengths)[:, None]) & mask
    return EncoderBatch(ids, mask, second.astype(np.int64))


def words_with_spaces(words: Sequence[str]) -> list[str]:
    """Return the words of a sentence as a tokenizer sees them: with the space before each but the first.

    >>> words_with_spaces(["I", "see"])
    ['I', ' see']
    """
    return [f" {word}" if position else word for position, word in enumerate(words)]
