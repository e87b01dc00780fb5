"""Batches for encoders, out of a store of documents: passages of text, each wrapped `[SOS] … [EOS]`.

Whatever an encoder is used for later, it is given a text from `[SOS]` to `[EOS]`; so that is what it reads here.

B rows · T their length
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.config import SpecialTokensConfig
from regard.data.batching import DATA_START, BatchSampler, DataPosition
from regard.data.language_batches import BlockBatches, LanguageBatch, split_documents, validation_batches
from regard.data.store import TokenColumn
from regard.errors import DataError

NUM_SPECIAL_TOKENS = 2  # start and end
Ids = NDArray[np.int64]


@dataclass(frozen=True)
class PassageBatch:
    """Passages, and where their tokens are."""

    ids: Ids  # (B, T)
    mask: NDArray[np.bool_]  # (B, T) False at pads


@dataclass(frozen=True)
class PassageSource(ABC):
    """Batches of about `tokens`, pads included. Everything follows from the seed and the number of the epoch."""

    column: TokenColumn
    length: int  # of a passage at most, its start and end included
    max_tokens: int
    special: SpecialTokensConfig
    seed: int = 0

    def __post_init__(self) -> None:
        if not len(self.column.ids):
            raise DataError("there is no text to make batches of; give some.")

    @property
    @abstractmethod
    def batches_per_epoch(self) -> int:
        """As many as the first epoch has."""

    @abstractmethod
    def iterate(self, place: DataPosition = DATA_START) -> Iterator[tuple[DataPosition, PassageBatch]]:
        """Batches from a place on, epoch after epoch without end, each with the place that follows it."""

    @abstractmethod
    def validation_batches(self) -> Iterator[PassageBatch]:
        """Every token once, always in the same batches, for validation."""


class JoinedPassages(PassageSource):
    """One stream of text, cut into passages of equal length, elsewhere each epoch; `[EOS]` stands between documents."""

    @cached_property
    def _blocks(self) -> BlockBatches:
        return BlockBatches(self.column, self.length - NUM_SPECIAL_TOKENS, self._budget, self.special, self.seed)

    @property
    def _budget(self) -> int:
        return self.max_tokens * (self.length - NUM_SPECIAL_TOKENS) // self.length

    @property
    def batches_per_epoch(self) -> int:
        """As many as the first epoch has."""
        return self._blocks.num_batches(0)

    def iterate(self, place: DataPosition = DATA_START) -> Iterator[tuple[DataPosition, PassageBatch]]:
        """Passages in random order."""
        return ((after, self._wrapped(batch)) for after, batch in self._blocks.iterate(place))

    def validation_batches(self) -> Iterator[PassageBatch]:
        """As the text runs."""
        blocks = validation_batches(self.column, self.length - NUM_SPECIAL_TOKENS, self._budget, self.special)
        return map(self._wrapped, blocks)

    def _wrapped(self, batch: LanguageBatch) -> PassageBatch:
        """What the blocks predict is the stream itself, with an end after each document."""
        text = batch.labels
        rows = [row if batch.mask is None else row[batch.mask[n]] for n, row in enumerate(text)]
        end = self.special.end
        return wrap_passages([row[:-1] if row[-1] == end else row for row in rows], self.special)


class SeparatePassages(PassageSource):
    """Each document by itself; one that is too long is cut into passages. Those of about equal length share a batch."""

    @cached_property
    def _spans(self) -> Ids:
        return split_documents(self.column.ends, self.length - NUM_SPECIAL_TOKENS)

    @cached_property
    def _plan(self) -> BatchSampler:
        lengths = self._spans[:, 1] - self._spans[:, 0] + NUM_SPECIAL_TOKENS
        return BatchSampler(lengths[None], self.max_tokens, self.seed)

    @property
    def batches_per_epoch(self) -> int:
        """As many as the first epoch has."""
        return len(self._plan.epoch(0))

    def iterate(self, place: DataPosition = DATA_START) -> Iterator[tuple[DataPosition, PassageBatch]]:
        """Passages in random order."""
        return ((after, self._batch(examples)) for after, examples in self._plan.iterate(place))

    def validation_batches(self) -> Iterator[PassageBatch]:
        """As in the first epoch."""
        return map(self._batch, self._plan.epoch(0))

    def _batch(self, examples: Ids) -> PassageBatch:
        rows = [self.column.ids[start:end] for start, end in self._spans[examples].tolist()]
        return wrap_passages(rows, self.special)


def wrap_passages(texts: Sequence[NDArray[np.integer[Any]]], special: SpecialTokensConfig) -> PassageBatch:
    """Texts as a batch, each between its start and its end.

    >>> wrap_passages([np.array([7, 8, 9]), np.array([5])], SpecialTokensConfig()).ids.tolist()
    [[2, 7, 8, 9, 3], [2, 5, 3, 0, 0]]
    """
    lengths = np.array([len(text) for text in texts]) + NUM_SPECIAL_TOKENS
    real = np.arange(lengths.max()) < lengths[:, None]
    ends = np.array([special.end])
    whole = [part for text in texts for part in (np.array([special.start]), text, ends)]
    ids = np.full(real.shape, special.pad, np.int64)
    ids[real] = np.concatenate(whole)
    return PassageBatch(ids, real)
