"""Packing: things of different lengths into as few rows of one length as may be."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from regard.config import SpecialTokensConfig
from regard.data.batching import DATA_START, DataPosition
from regard.data.store import TokenColumn
from regard.errors import DataError


def pack_sequences(lengths: NDArray[np.int64], capacity: int) -> NDArray[np.int64]:
    """The row that each thing goes into: long ones first, each where it leaves the least space (best fit decreasing).

    Lengths are from 1 to `capacity`.

    >>> pack_sequences(np.array([3, 5, 2, 4, 1]), capacity=5).tolist()
    [2, 0, 2, 1, 1]
    """
    order = np.argsort(-lengths, kind="stable")
    rows = np.empty(len(lengths), np.int64)
    full = int((lengths == capacity).sum())
    rows[order[:full]] = np.arange(full)
    count = full
    with_space: list[list[int]] = [[] for _ in range(capacity)]  # by how much
    spaces = 0  # bit n is set where there is a row with space n
    for thing, length in zip(order[full:].tolist(), lengths[order[full:]].tolist(), strict=True):
        if fitting := spaces >> length:
            space = length + (fitting & -fitting).bit_length() - 1  # the lowest bit: the least space that is enough
            row = with_space[space].pop()
            if not with_space[space]:
                spaces ^= 1 << space
        else:
            row, space = count, capacity
            count += 1
        rows[thing] = row
        if rest := space - length:
            with_space[rest].append(row)
            spaces |= 1 << rest
    return rows


Ids = NDArray[np.int64]
BLOCKS_PER_SEGMENT = 32  # blocks that are cut out of the stream side by side; one of them has a seam


@dataclass(frozen=True)
class LanguageBatch:
    """A batch for predicting the next token."""

    ids: Ids  # (B, T) what is read
    labels: Ids  # (B, T) the token that follows each
    mask: NDArray[np.bool_] | None = None  # (B, T) where there is something to predict; None: everywhere
    document_ids: Ids | None = None  # (B, T) numbers those that share a row unseen by each other, from 1; 0 for pads

    def rows(self, start: int, step: int) -> "LanguageBatch":
        """Every `step`-th row from `start` on.

        >>> LanguageBatch(np.array([[5], [6], [7]]), np.array([[6], [7], [8]])).rows(1, 2).ids.tolist()
        [[6]]
        """
        real, documents = self.mask, self.document_ids
        return LanguageBatch(
            self.ids[start::step],
            self.labels[start::step],
            None if real is None else real[start::step],
            None if documents is None else documents[start::step],
        )


@dataclass(frozen=True)
class TokenStream:
    """All documents one after the other, read from the store where they are needed."""

    column: TokenColumn
    special: SpecialTokensConfig

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    @cached_property
    def ends(self) -> Ids:
        """Where each document ends in the stream, its `[EOS]` included."""
        return self.column.ends + np.arange(1, len(self.column.ends) + 1)

    def read(self, start: int, end: int) -> tuple[Ids, Ids]:
        """What is read and what is to be predicted in a span that is not empty."""
        first, last = (int(n) for n in np.searchsorted(self.ends, (start, end), side="right"))
        final = self.ends[first:last] - 1 - start  # the last places of documents that end in the span
        begin = start - first  # in the column: each document before has a place more here
        tokens = self.column.ids[begin : begin + end - start - len(final)]
        predicted = np.full(end - start, self.special.end, np.int64)
        if len(final):
            inside = np.ones(end - start, np.bool_)
            inside[final] = False
            predicted[inside] = tokens
        else:
            predicted[:] = tokens
        begins = start == (self.ends[first - 1] if first else 0)  # a document, with the span
        ids = np.empty_like(predicted)
        ids[0] = self.special.start if begins else self.column.ids[begin - 1]
        ids[1:] = predicted[:-1]
        ids[final[final < len(ids) - 1] + 1] = self.special.start
        return ids, predicted

    def batch(self, spans: Ids, *, apart: bool) -> LanguageBatch:
        """The batch of a table of spans (K, 3): row, start and end, rows rising; `apart` numbers them as documents."""
        rows, starts, ends = spans.T
        rows = rows - rows[0]
        lengths = np.bincount(rows, ends - starts).astype(np.int64)
        shape = (len(lengths), int(lengths.max()))
        ids, predicted = (np.full(shape, self.special.pad, np.int64) for _ in range(2))
        documents = np.zeros(shape, np.int64) if apart else None
        before, place, number = -1, 0, 0
        for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
            if row != before:
                before, place, number = row, 0, 0
            here = slice(place, place + end - start)
            ids[row, here], predicted[row, here] = self.read(start, end)
            place, number = here.stop, number + 1
            if documents is not None:
                documents[row, here] = number
        real = None if lengths.min() == shape[1] else np.arange(shape[1]) < lengths[:, None]
        return LanguageBatch(ids, predicted, real, documents)


@dataclass(frozen=True)
class _EpochBatches(ABC):
    """Batches of `tokens // length` rows. Everything follows from the seed and the number of the epoch."""

    column: TokenColumn
    length: int  # tokens in a row
    max_tokens: int  # in a batch; a row that is longer by itself makes a batch of its own
    special: SpecialTokensConfig
    seed: int = 0

    @abstractmethod
    def spans(self, epoch: int) -> Ids:
        """The spans of all rows of an epoch (K, 3): row, start and end, rows rising from 0."""

    @abstractmethod
    def batch(self, spans: Ids) -> LanguageBatch:
        """The batch of some rows."""

    @cached_property
    def stream(self) -> TokenStream:
        """The documents that rows are cut from."""
        return TokenStream(self.column, self.special)

    def epoch(self, number: int, first: int = 0) -> Iterator[LanguageBatch]:
        """The batches of an epoch, from the `first` on."""
        for spans in self._plan(number)[first:]:
            yield self.batch(spans)

    def num_batches(self, epoch: int) -> int:
        """How many batches an epoch has."""
        return len(self._plan(epoch))

    def iterate(self, place: DataPosition = DATA_START) -> Iterator[tuple[DataPosition, LanguageBatch]]:
        """Batches from a place on, epoch after epoch without end, each with the place that follows it."""
        while True:
            for batch in self.epoch(place.epoch, place.batch):
                place = replace(place, batch=place.batch + 1)
                yield place, batch
            place = DataPosition(place.epoch + 1)

    def _plan(self, epoch: int) -> list[Ids]:
        """The spans of each batch."""
        if not len(self.stream):
            raise DataError("there is no text to make batches of; give some.")
        spans = self.spans(epoch)
        most = max(1, self.max_tokens // self.length)
        cuts = np.searchsorted(spans[:, 0], np.arange(most, int(spans[-1, 0]) + 1, most))
        return np.split(spans, cuts)


@dataclass(frozen=True)
class BlockBatches(_EpochBatches):
    """Blocks of `length` tokens from the stream, whatever documents they are of; a block can see all of itself.

    Each epoch cuts the stream elsewhere: every segment of some blocks begins at a random place of its own within one
    length, and where the segment ends, it goes on at its beginning. If all blocks began alike, a text in records of one
    width would have the same thing at the same place of every block. Every token is predicted once an epoch: the last
    block, where tokens are too few to fill it, is shorter, and padded where it shares a batch.
    """

    def spans(self, epoch: int) -> Ids:
        """The blocks of an epoch in random order, one in each row."""
        random = np.random.default_rng([self.seed, epoch])
        size = len(self.stream)
        segments = max(1, size // (BLOCKS_PER_SEGMENT * self.length))
        phases = random.integers(self.length if size > self.length else 1, size=segments)
        blocks = _blocks(size, self.length, phases)
        return _in_rows(blocks, random.permutation(blocks[:, 0].max() + 1)[blocks[:, 0]])

    def batch(self, spans: Ids) -> LanguageBatch:
        """The batch of some blocks."""
        return self.stream.batch(spans, apart=False)


@dataclass(frozen=True)
class PackedBatches(_EpochBatches):
    """Whole documents, as many in a row as fit `length`, none seeing another.

    A document that is longer is cut into pieces of `length`, which cannot see each other either, though each but the
    first still begins by reading the token before it. Every token is predicted once an epoch. Rows are as long as the
    fullest of their batch; what is not filled is padding.
    """

    def spans(self, epoch: int) -> Ids:
        """The documents of an epoch, packed, the rows in random order."""
        random = np.random.default_rng([self.seed, epoch])
        pieces = split_documents(self.stream.ends, self.length)
        pieces = pieces[random.permutation(len(pieces))]  # among equally long ones, chance decides who shares a row
        rows = pack_sequences(pieces[:, 1] - pieces[:, 0], self.length)
        return _in_rows(np.column_stack([rows, pieces]), random.permutation(rows.max() + 1)[rows])

    def batch(self, spans: Ids) -> LanguageBatch:
        """The batch of some rows of documents."""
        return self.stream.batch(spans, apart=True)


def validation_batches(
    column: TokenColumn, length: int, tokens: int, special: SpecialTokensConfig, *, apart: bool = False
) -> Iterator[LanguageBatch]:
    """Every token once, always in the same batches, for validation: in order, or packed, with documents apart."""
    if apart:
        return PackedBatches(column, length, tokens, special).epoch(0)
    return _SequentialBlocks(column, length, tokens, special).epoch(0)


@dataclass(frozen=True)
class _SequentialBlocks(BlockBatches):
    def spans(self, epoch: int) -> Ids:
        return _blocks(len(self.stream), self.length, np.zeros(1, np.int64))


def _blocks(size: int, length: int, phases: Ids) -> Ids:
    """Blocks of a stream in as many segments as there are phases: (K, 3), number, start and end.

    All segments but the last hold `SEGMENT` blocks. Each begins at its phase, and goes round.

    >>> _blocks(size=8, length=3, phases=np.array([2])).tolist()
    [[0, 2, 5], [1, 5, 8], [2, 0, 2]]
    """
    numbers = np.arange(-(-size // length))
    segment = np.minimum(numbers // BLOCKS_PER_SEGMENT, len(phases) - 1)
    first = segment * BLOCKS_PER_SEGMENT * length
    last = np.where(segment < len(phases) - 1, first + BLOCKS_PER_SEGMENT * length, size)
    starts = numbers * length + phases[segment]
    ends = np.minimum(starts + length, last + phases[segment])
    until = np.column_stack([numbers, starts, np.minimum(ends, last)])[starts < last]
    again = np.column_stack([numbers, first + np.maximum(starts - last, 0), first + ends - last])[ends > last]
    return np.concatenate([until, again])


def split_documents(ends: Ids, length: int) -> Ids:
    """Documents that end at these places, in pieces of at most `length`: (K, 2), start and end.

    >>> split_documents(np.array([2, 7]), length=3).tolist()
    [[0, 2], [2, 5], [5, 7]]
    """
    starts = np.concatenate([[0], ends[:-1]])
    counts = -(-(ends - starts) // length)
    first = np.repeat(counts.cumsum() - counts, counts)
    begins = np.repeat(starts, counts) + (np.arange(counts.sum()) - first) * length
    return np.column_stack([begins, np.minimum(begins + length, np.repeat(ends, counts))])


def _in_rows(spans: Ids, rows: Ids) -> Ids:
    """The spans in other rows, sorted by them; within a row, the order stays."""
    order = np.argsort(rows, kind="stable")
    return np.column_stack([rows[order], spans[order, 1:]])
