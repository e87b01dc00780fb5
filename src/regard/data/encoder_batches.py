"""Inputs and batches of encoders: `[start] text [end]`, and for two texts `[start] first [end] second [end]`.

An input that is longer than the network can read is truncated, of two texts the longer one first. A sentence whose
words are tagged is split between words instead, so that no word is lost. For pretraining, documents of a store are cut
into passages, each an input of its own.

B rows · S tokens of an input · T tokens of a passage
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.config import SpecialTokensConfig
from regard.data.batching import DATA_START, BatchSampler, DataPosition, Ids, Mask, pad_sequences
from regard.data.language_batches import BlockBatches, LanguageBatch, split_documents, validation_batches
from regard.data.store import TokenColumn
from regard.errors import DataError

MAX_TOKENS = 2**16 - 1  # of an input: token stores count them in 16 bits
NUM_SPECIAL_TOKENS = 2  # start and end
TextOrPair = str | tuple[str, str]
"""A text, or a pair of texts."""


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


@dataclass(frozen=True)
class PassageBatch:
    """A padded batch of passages."""

    ids: Ids  # (B, T)
    mask: Mask  # (B, T) False at padding


@dataclass(frozen=True)
class PassageSource(ABC):
    """Batches of about `max_tokens`, padding included, which follow from the seed and the number of the epoch."""

    column: TokenColumn
    length: int  # maximum of a passage, with its start and end
    max_tokens: int
    special: SpecialTokensConfig
    seed: int = 0

    def __post_init__(self) -> None:
        if not len(self.column.ids):
            raise DataError("there is no text to make batches of; pass some.")

    @property
    @abstractmethod
    def batches_per_epoch(self) -> int:
        """Number of batches of the first epoch."""

    @abstractmethod
    def iterate(self, position: DataPosition = DATA_START) -> Iterator[tuple[DataPosition, PassageBatch]]:
        """Yield batches from a position on, epoch after epoch without end, each with the position after it."""

    @abstractmethod
    def validation_batches(self) -> Iterator[PassageBatch]:
        """Yield every token once, always in the same batches."""


class JoinedPassages(PassageSource):
    """One stream of text with `[EOS]` between documents, cut into passages of equal length, elsewhere each epoch."""

    @cached_property
    def _blocks(self) -> BlockBatches:
        return BlockBatches(self.column, self.length - NUM_SPECIAL_TOKENS, self._budget, self.special, self.seed)

    @property
    def _budget(self) -> int:
        return self.max_tokens * (self.length - NUM_SPECIAL_TOKENS) // self.length

    @property
    def batches_per_epoch(self) -> int:
        """Number of batches of the first epoch."""
        return self._blocks.num_batches(0)

    def iterate(self, position: DataPosition = DATA_START) -> Iterator[tuple[DataPosition, PassageBatch]]:
        """Yield passages in random order."""
        return ((after, self._to_passages(batch)) for after, batch in self._blocks.iterate(position))

    def validation_batches(self) -> Iterator[PassageBatch]:
        """Yield passages in the order of the text."""
        blocks = validation_batches(self.column, self.length - NUM_SPECIAL_TOKENS, self._budget, self.special)
        return map(self._to_passages, blocks)

    def _to_passages(self, batch: LanguageBatch) -> PassageBatch:
        """Return the labels of blocks, which are the stream itself, as passages."""
        rows = [row if batch.mask is None else row[batch.mask[n]] for n, row in enumerate(batch.labels)]
        end = self.special.end
        return wrap_passages([row[:-1] if row[-1] == end else row for row in rows], self.special)


class SeparatePassages(PassageSource):
    """Each document separately; longer ones are cut into passages. Passages of similar length share a batch."""

    @cached_property
    def _spans(self) -> Ids:
        return split_documents(self.column.ends, self.length - NUM_SPECIAL_TOKENS)

    @cached_property
    def _sampler(self) -> BatchSampler:
        lengths = self._spans[:, 1] - self._spans[:, 0] + NUM_SPECIAL_TOKENS
        return BatchSampler(lengths[None], self.max_tokens, self.seed)

    @property
    def batches_per_epoch(self) -> int:
        """Number of batches of the first epoch."""
        return len(self._sampler.epoch(0))

    def iterate(self, position: DataPosition = DATA_START) -> Iterator[tuple[DataPosition, PassageBatch]]:
        """Yield passages in random order."""
        return ((after, self._batch(examples)) for after, examples in self._sampler.iterate(position))

    def validation_batches(self) -> Iterator[PassageBatch]:
        """Yield the batches of the first epoch."""
        return map(self._batch, self._sampler.epoch(0))

    def _batch(self, examples: Ids) -> PassageBatch:
        rows = [self.column.ids[start:end] for start, end in self._spans[examples].tolist()]
        return wrap_passages(rows, self.special)


def wrap_passages(texts: Sequence[NDArray[np.integer[Any]]], special: SpecialTokensConfig) -> PassageBatch:
    """Return texts as a batch, each between start and end tokens.

    >>> wrap_passages([np.array([7, 8, 9]), np.array([5])], SpecialTokensConfig()).ids.tolist()
    [[2, 7, 8, 9, 3], [2, 5, 3, 0, 0]]
    """
    lengths = np.array([len(text) for text in texts]) + NUM_SPECIAL_TOKENS
    mask = np.arange(lengths.max()) < lengths[:, None]
    start, end = np.array([special.start]), np.array([special.end])
    ids = np.full(mask.shape, special.pad, np.int64)
    ids[mask] = np.concatenate([part for text in texts for part in (start, text, end)])
    return PassageBatch(ids, mask)
