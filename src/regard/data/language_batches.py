"""Batches for language models, from a store of documents.

All documents form one stream. Each has one position more than tokens: the network reads `[SOS] …` and predicts
`… [EOS]`, as in the decoder of a translation model. A batch is a table of spans of the stream.

B rows · T their length · K spans
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from regard.config import SpecialTokensConfig
from regard.data.batching import DATA_START, CorpusWeights, DataPosition, Ids, Mask
from regard.data.store import TokenColumn
from regard.errors import DataError

BLOCKS_PER_SEGMENT = 32  # blocks that share a random offset
NO_SPANS = np.empty((0, 3), np.int64)


@dataclass(frozen=True)
class LanguageBatch:
    """A batch for next-token prediction."""

    ids: Ids  # (B, T)
    labels: Ids  # (B, T) the token after each
    mask: Mask | None = None  # (B, T) True at tokens; None: no padding
    document_ids: Ids | None = None  # (B, T) numbers of documents that cannot attend to each other, from 1; 0: padding

    def rows(self, start: int, step: int) -> "LanguageBatch":
        """Return every `step`-th row from `start` on.

        >>> LanguageBatch(np.array([[5], [6], [7]]), np.array([[6], [7], [8]])).rows(1, 2).ids.tolist()
        [[6]]
        """
        mask, document_ids = self.mask, self.document_ids
        return LanguageBatch(
            self.ids[start::step],
            self.labels[start::step],
            None if mask is None else mask[start::step],
            None if document_ids is None else document_ids[start::step],
        )


@dataclass(frozen=True)
class TokenStream:
    """All documents, concatenated; tokens are read from the store when they are needed."""

    column: TokenColumn
    special: SpecialTokensConfig

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    @cached_property
    def ends(self) -> Ids:
        """Where each document ends in the stream, its `[EOS]` included."""
        return self.column.ends + np.arange(1, len(self.column.ends) + 1)

    def read(self, start: int, end: int) -> tuple[Ids, Ids]:
        """Return the ids and labels of a span, which must not be empty."""
        first, last = (int(n) for n in np.searchsorted(self.ends, (start, end), side="right"))
        final = self.ends[first:last] - 1 - start  # last positions of documents that end in the span
        begin = start - first  # in the column, where each document before has one position less
        tokens = self.column.ids[begin : begin + end - start - len(final)]
        labels = np.full(end - start, self.special.end, np.int64)
        if len(final):
            is_token = np.ones(end - start, np.bool_)
            is_token[final] = False
            labels[is_token] = tokens
        else:
            labels[:] = tokens
        starts_document = start == (self.ends[first - 1] if first else 0)
        ids = np.empty_like(labels)
        ids[0] = self.special.start if starts_document else self.column.ids[begin - 1]
        ids[1:] = labels[:-1]
        ids[final[final < len(ids) - 1] + 1] = self.special.start
        return ids, labels

    def batch(self, spans: Ids, *, separate: bool, rank: int = 0, world_size: int = 1) -> LanguageBatch:
        """Return the batch of a table of spans (K, 3): row, start and end, sorted by row.

        With `separate`, the spans of a row are numbered as documents. One of several processes gets every
        `world_size`-th row from `rank` on; only these are read, and padded as in the whole batch.
        """
        lengths = row_lengths(spans)
        full = lengths.min() == lengths.max()
        width = int(lengths.max())
        if world_size > 1:
            spans = spans[(spans[:, 0] - spans[0, 0]) % world_size == rank] - [spans[0, 0] + rank, 0, 0]
            spans[:, 0] //= world_size
            lengths = lengths[rank::world_size]
        else:
            spans = spans - [spans[0, 0], 0, 0]
        rows, starts, ends = spans.T
        shape = (len(lengths), width)
        ids, labels = (np.full(shape, self.special.pad, np.int64) for _ in range(2))
        document_ids = np.zeros(shape, np.int64) if separate else None
        previous_row, position, number = -1, 0, 0
        for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
            if row != previous_row:
                previous_row, position, number = row, 0, 0
            span = slice(position, position + end - start)
            ids[row, span], labels[row, span] = self.read(start, end)
            position, number = span.stop, number + 1
            if document_ids is not None:
                document_ids[row, span] = number
        mask = None if full else np.arange(shape[1]) < lengths[:, None]
        return LanguageBatch(ids, labels, mask, document_ids)


def row_lengths(spans: Ids) -> Ids:
    """Return the number of tokens of each row of a table of spans (K, 3).

    >>> row_lengths(np.array([[4, 0, 3], [4, 7, 8], [5, 3, 5]])).tolist()
    [4, 2]
    """
    return np.bincount(spans[:, 0] - spans[0, 0], spans[:, 2] - spans[:, 1]).astype(np.int64)


@dataclass(frozen=True)
class _EpochBatches(ABC):
    """Batches of `max_tokens // length` rows, which follow from the seed and the number of the epoch."""

    column: TokenColumn
    length: int  # tokens of a row
    max_tokens: int  # of a batch; a row that is longer makes a batch of its own
    special: SpecialTokensConfig
    seed: int = 0
    weights: CorpusWeights | None = None  # of corpora of documents

    @abstractmethod
    def spans(self, epoch: int) -> Ids:
        """Return the spans of all rows of an epoch (K, 3): row, start and end, sorted by row from 0."""

    @abstractmethod
    def batch(self, spans: Ids, rank: int = 0, world_size: int = 1) -> LanguageBatch:
        """Return the batch of the spans of some rows, or those of its rows that one of several processes takes."""

    @cached_property
    def stream(self) -> TokenStream:
        """The documents that rows are cut from."""
        return TokenStream(self.column, self.special)

    def epoch(self, number: int, first: int = 0) -> Iterator[LanguageBatch]:
        """Yield the batches of an epoch, beginning with batch `first`."""
        return map(self.batch, self.plan(number)[first:])

    def num_batches(self, epoch: int) -> int:
        """Return the number of batches of an epoch."""
        return len(self.plan(epoch))

    def iterate(self, position: DataPosition = DATA_START) -> Iterator[tuple[DataPosition, LanguageBatch]]:
        """Yield batches from a position on, epoch after epoch without end, each with the position after it."""
        return ((after, self.batch(spans)) for after, spans in self.iterate_spans(position))

    def iterate_spans(self, position: DataPosition = DATA_START) -> Iterator[tuple[DataPosition, Ids]]:
        """Yield the spans of batches, which `batch` reads, from a position on, each with the position after it."""
        while True:
            for spans in self.plan(position.epoch)[position.batch :]:
                position = replace(position, batch=position.batch + 1)
                yield position, spans
            position = DataPosition(position.epoch + 1)

    def plan(self, epoch: int) -> list[Ids]:
        """Return the spans of each batch of an epoch."""
        if not len(self.stream):
            raise DataError("there is no text to make batches of; pass some.")
        spans = self.spans(epoch)
        if not len(spans):  # all weights are below 1, and by chance no document is in this epoch
            return []
        rows_per_batch = max(1, self.max_tokens // self.length)
        cuts = np.searchsorted(spans[:, 0], np.arange(rows_per_batch, int(spans[-1, 0]) + 1, rows_per_batch))
        return np.split(spans, cuts)

    def parts(self, length: int, epoch: int) -> Ids:
        """Return documents in parts of at most `length`, as often as their corpora weigh in an epoch: (K, 2).

        All parts are followed by the second copies, and so on: a text is not repeated next to itself.
        """
        parts = split_documents(self.stream.ends, length)
        if self.weights is None:
            return parts
        weights = self.weights.of_parts(-(-np.diff(self.stream.ends, prepend=0) // length))
        copies = weights.copies(np.arange(len(parts)), self.seed, epoch)
        number = np.arange(copies.sum()) - np.repeat(copies.cumsum() - copies, copies)  # of each copy
        return np.repeat(parts, copies, axis=0)[np.argsort(number, kind="stable")]


@dataclass(frozen=True)
class BlockBatches(_EpochBatches):
    """Blocks of `length` tokens of the stream, across documents; attention covers the whole block.

    Each epoch cuts the stream at other positions: every segment of blocks begins at a random offset within one length,
    and wraps around. With fixed offsets, text in records of equal width would always have the same content at the same
    position of a block. Every token is predicted once per epoch; the last block may be shorter, and is padded. With
    weights, parts of `BLOCKS_PER_SEGMENT` blocks are repeated or left out.
    """

    def spans(self, epoch: int) -> Ids:
        """Return the blocks of an epoch in random order, one per row."""
        random = np.random.default_rng([self.seed, epoch])
        parts = None if self.weights is None else self.parts(BLOCKS_PER_SEGMENT * self.length, epoch)
        size = len(self.stream) if parts is None else int(np.diff(parts).sum())
        if not size:
            return NO_SPANS
        segments = max(1, size // (BLOCKS_PER_SEGMENT * self.length))
        offsets = random.integers(self.length if size > self.length else 1, size=segments)
        blocks = _cut_blocks(size, self.length, offsets)
        if parts is not None:
            blocks = _locate(blocks, parts)
        return _assign_rows(blocks, random.permutation(blocks[:, 0].max() + 1)[blocks[:, 0]])

    def batch(self, spans: Ids, rank: int = 0, world_size: int = 1) -> LanguageBatch:
        """Return the batch of some blocks."""
        return self.stream.batch(spans, separate=False, rank=rank, world_size=world_size)


@dataclass(frozen=True)
class PackedBatches(_EpochBatches):
    """Whole documents, packed into rows of `length`; documents of a row do not attend to each other.

    A longer document is cut into pieces of `length`, which do not attend to each other either, though each but the
    first begins with the token before it. Every token is predicted once per epoch. Rows are as long as the longest of
    their batch.
    """

    def spans(self, epoch: int) -> Ids:
        """Return the documents of an epoch, packed into rows in random order."""
        random = np.random.default_rng([self.seed, epoch])
        pieces = self.parts(self.length, epoch)
        if not len(pieces):
            return NO_SPANS
        pieces = pieces[random.permutation(len(pieces))]  # so that equally long ones share rows at random
        rows = pack_sequences(pieces[:, 1] - pieces[:, 0], self.length)
        return _assign_rows(np.column_stack([rows, pieces]), random.permutation(rows.max() + 1)[rows])

    def batch(self, spans: Ids, rank: int = 0, world_size: int = 1) -> LanguageBatch:
        """Return the batch of some rows of documents."""
        return self.stream.batch(spans, separate=True, rank=rank, world_size=world_size)


@dataclass(frozen=True)
class _SequentialBlocks(BlockBatches):
    """Blocks in the order of the stream."""

    def spans(self, epoch: int) -> Ids:
        return _cut_blocks(len(self.stream), self.length, np.zeros(1, np.int64))


def validation_source(
    column: TokenColumn, length: int, max_tokens: int, special: SpecialTokensConfig, *, separate: bool = False
) -> BlockBatches | PackedBatches:
    """Return batches whose epoch 0 has every token once: blocks in order, or with `separate` packed documents."""
    kind = PackedBatches if separate else _SequentialBlocks
    return kind(column, length, max_tokens, special)


def pack_sequences(lengths: NDArray[np.int64], capacity: int) -> NDArray[np.int64]:
    """Pack sequences into few rows: the longest first, each into the row with the least sufficient space (best fit).

    Args:
        lengths: from 1 to `capacity`.
        capacity: length of a row.

    Returns:
        The row of each sequence.

    >>> pack_sequences(np.array([3, 5, 2, 4, 1]), capacity=5).tolist()
    [2, 0, 2, 1, 1]
    """
    order = np.argsort(-lengths, kind="stable")
    rows = np.empty(len(lengths), np.int64)
    full = int((lengths == capacity).sum())
    rows[order[:full]] = np.arange(full)
    num_rows = full
    rows_with_space: list[list[int]] = [[] for _ in range(capacity)]  # by the amount of space
    spaces = 0  # bit n is set if there is a row with space n
    for sequence, length in zip(order[full:].tolist(), lengths[order[full:]].tolist(), strict=True):
        if fitting := spaces >> length:
            space = length + (fitting & -fitting).bit_length() - 1  # lowest set bit: the least sufficient space
            row = rows_with_space[space].pop()
            if not rows_with_space[space]:
                spaces ^= 1 << space
        else:
            row, space = num_rows, capacity
            num_rows += 1
        rows[sequence] = row
        if rest := space - length:
            rows_with_space[rest].append(row)
            spaces |= 1 << rest
    return rows


def split_documents(ends: Ids, length: int) -> Ids:
    """Split documents that end at these positions into pieces of at most `length`: (K, 2), start and end.

    >>> split_documents(np.array([2, 7]), length=3).tolist()
    [[0, 2], [2, 5], [5, 7]]
    """
    starts = np.concatenate([[0], ends[:-1]])
    counts = -(-(ends - starts) // length)
    first = np.repeat(counts.cumsum() - counts, counts)
    begins = np.repeat(starts, counts) + (np.arange(counts.sum()) - first) * length
    return np.column_stack([begins, np.minimum(begins + length, np.repeat(ends, counts))])


def _cut_blocks(size: int, length: int, offsets: Ids) -> Ids:
    """Cut a stream into blocks, in as many segments as there are offsets: (K, 3), number, start and end.

    All segments but the last have `BLOCKS_PER_SEGMENT` blocks. Each begins at its offset, and wraps around.

    >>> _cut_blocks(size=8, length=3, offsets=np.array([2])).tolist()
    [[0, 2, 5], [1, 5, 8], [2, 0, 2]]
    """
    numbers = np.arange(-(-size // length))
    segment = np.minimum(numbers // BLOCKS_PER_SEGMENT, len(offsets) - 1)
    first = segment * BLOCKS_PER_SEGMENT * length
    last = np.where(segment < len(offsets) - 1, first + BLOCKS_PER_SEGMENT * length, size)
    starts = numbers * length + offsets[segment]
    ends = np.minimum(starts + length, last + offsets[segment])
    before_wrap = np.column_stack([numbers, starts, np.minimum(ends, last)])[starts < last]
    wrapped_starts = first + np.maximum(starts - last, 0)
    after_wrap = np.column_stack([numbers, wrapped_starts, first + ends - last])[ends > last]
    return np.concatenate([before_wrap, after_wrap])


def _locate(blocks: Ids, parts: Ids) -> Ids:
    """Return blocks of concatenated parts (K, 2) of a stream as spans of the stream itself.

    >>> _locate(np.array([[0, 0, 4], [1, 4, 6]]), np.array([[10, 13], [20, 23]])).tolist()
    [[0, 10, 13], [0, 20, 21], [1, 21, 23]]
    """
    ends = np.diff(parts).sum(1).cumsum()
    first = np.searchsorted(ends, blocks[:, 1], side="right")
    counts = np.searchsorted(ends, blocks[:, 2]) - first + 1  # parts that each block has tokens of
    rows, starts, stops = np.repeat(blocks, counts, axis=0).T
    part = np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts - first, counts)
    (begins, last), shift = parts[part].T, parts[part, 1] - ends[part]
    return np.column_stack([rows, np.maximum(starts + shift, begins), np.minimum(stops + shift, last)])


def _assign_rows(spans: Ids, rows: Ids) -> Ids:
    """Return the spans with new rows, sorted by them; the order within a row stays."""
    order = np.argsort(rows, kind="stable")
    return np.column_stack([rows[order], spans[order, 1:]])
