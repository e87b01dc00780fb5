"""Inputs and batches of encoders: `[start] text [end]`, and for two texts `[start] first [end] second [end]`.

An input that is longer than the network can read is truncated, of two texts the longer one first. A sentence whose
words are tagged is split between words instead, so that no word is lost. For pretraining, documents of a store are cut
into passages, each an input of its own.

B rows · S tokens of an input · T tokens of a passage
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.config import SpecialTokensConfig
from regard.data.batching import (
    DATA_START,
    BatchSampler,
    CorpusWeights,
    DataPosition,
    EpochSampler,
    Ids,
    Mask,
    pad_sequences,
)
from regard.data.language_batches import BlockBatches, row_lengths, split_documents, validation_source
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
    return with_segments(*pad_sequences(rows, pad_id=pad_id), np.asarray(second_lengths))


def with_segments(ids: Ids, mask: Mask, second_lengths: NDArray[np.integer[Any]]) -> EncoderBatch:
    """Return the batch of padded inputs (B, S), given how many of the last tokens of each are its second text (B,)."""
    lengths = mask.sum(1)[:, None]
    second = (np.arange(ids.shape[1]) >= lengths - second_lengths[:, None]) & mask
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
class PassagePlan:
    """A batch of passages that is read when a process takes its rows."""

    lengths: Ids  # (B,) tokens of each passage, with its start and end
    read: Callable[[int, int], PassageBatch]  # the rows of a process, by rank and number of processes

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the whole batch: (B, T)."""
        return len(self.lengths), int(self.lengths.max())


@dataclass(frozen=True)
class PassageSource(ABC):
    """Batches of about `max_tokens`, padding included, which follow from the seed and the number of the epoch."""

    column: TokenColumn
    length: int  # maximum of a passage, with its start and end
    max_tokens: int
    special: SpecialTokensConfig
    seed: int = 0
    weights: CorpusWeights | None = None  # of corpora of documents

    def __post_init__(self) -> None:
        if not len(self.column.ids):
            raise DataError("there is no text to make batches of; pass some.")

    @property
    @abstractmethod
    def batches_per_epoch(self) -> int:
        """Number of batches of the first epoch."""

    @abstractmethod
    def iterate(self, position: DataPosition = DATA_START) -> Iterator[tuple[DataPosition, PassagePlan]]:
        """Yield batches from a position on, epoch after epoch without end, each with the position after it."""

    @abstractmethod
    def validation_batches(self) -> Iterator[PassagePlan]:
        """Yield every token once, always in the same batches."""


class JoinedPassages(PassageSource):
    """One stream of text with `[EOS]` between documents, cut into passages of equal length, elsewhere each epoch."""

    @cached_property
    def _blocks(self) -> BlockBatches:
        return BlockBatches(
            self.column, self.length - NUM_SPECIAL_TOKENS, self._budget, self.special, self.seed, self.weights
        )

    @property
    def _budget(self) -> int:
        return self.max_tokens * (self.length - NUM_SPECIAL_TOKENS) // self.length

    @property
    def batches_per_epoch(self) -> int:
        """Number of batches of the first epoch."""
        return self._blocks.num_batches(0)

    def iterate(self, position: DataPosition = DATA_START) -> Iterator[tuple[DataPosition, PassagePlan]]:
        """Yield passages in random order."""
        return ((after, self._passages(spans)) for after, spans in self._blocks.iterate_spans(position))

    def validation_batches(self) -> Iterator[PassagePlan]:
        """Yield passages in the order of the text."""
        blocks = validation_source(self.column, self.length - NUM_SPECIAL_TOKENS, self._budget, self.special)
        return map(self._passages, blocks.plan(0))

    def _passages(self, spans: Ids) -> PassagePlan:
        """Return the labels of blocks, which are the stream itself, as passages; without `[EOS]` at their end."""
        stream = self._blocks.stream
        last = spans[np.flatnonzero(np.diff(spans[:, 0], append=-1)), 2]  # where the last span of each row ends
        ends_document = stream.ends[np.searchsorted(stream.ends, last)] == last
        lengths = row_lengths(spans) - ends_document

        def read(rank: int, world_size: int) -> PassageBatch:
            labels = stream.batch(spans, separate=False, rank=rank, world_size=world_size).labels
            rows = [row[:length] for row, length in zip(labels, lengths[rank::world_size], strict=True)]
            return wrap_passages(rows, self.special, int(lengths.max()))

        return PassagePlan(lengths + NUM_SPECIAL_TOKENS, read)


class SeparatePassages(PassageSource):
    """Each document separately; longer ones are cut into passages. Passages of similar length share a batch."""

    @cached_property
    def _pieces(self) -> TokenColumn:
        return TokenColumn(
            self.column.ids, split_documents(self.column.ends, self.length - NUM_SPECIAL_TOKENS)[:, 1].copy()
        )

    @cached_property
    def _sampler(self) -> EpochSampler:
        weights = self.weights
        if weights is not None:
            weights = weights.of_parts(-(-self.column.lengths // (self.length - NUM_SPECIAL_TOKENS)))
        return EpochSampler([self._pieces], self.max_tokens, self.seed, NUM_SPECIAL_TOKENS, weights)

    @property
    def batches_per_epoch(self) -> int:
        """Number of batches of the first epoch."""
        return self._sampler.batches_per_epoch

    def iterate(self, position: DataPosition = DATA_START) -> Iterator[tuple[DataPosition, PassagePlan]]:
        """Yield passages in random order."""
        return ((after, self._passages(examples)) for after, examples in self._sampler.iterate(position))

    def validation_batches(self) -> Iterator[PassagePlan]:
        """Yield the batches of the first epoch."""
        lengths = self._pieces.lengths[None] + NUM_SPECIAL_TOKENS
        return map(self._passages, BatchSampler(lengths, self.max_tokens, self.seed).epoch(0))

    def _passages(self, examples: Ids) -> PassagePlan:
        lengths = self._pieces.lengths_of(examples)

        def read(rank: int, world_size: int) -> PassageBatch:
            texts = [self._pieces[n] for n in examples[rank::world_size]]
            return wrap_passages(texts, self.special, int(lengths.max()))

        return PassagePlan(lengths + NUM_SPECIAL_TOKENS, read)


def wrap_passages(
    texts: Sequence[NDArray[np.integer[Any]]], special: SpecialTokensConfig, longest: int | None = None
) -> PassageBatch:
    """Return texts as a batch, each between start and end tokens; `longest` is the length of the longest text.

    >>> wrap_passages([np.array([7, 8, 9]), np.array([5])], SpecialTokensConfig()).ids.tolist()
    [[2, 7, 8, 9, 3], [2, 5, 3, 0, 0]]
    """
    ids, mask = pad_sequences(texts, before=[special.start], after=[special.end], pad_id=special.pad, longest=longest)
    return PassageBatch(ids, mask)
