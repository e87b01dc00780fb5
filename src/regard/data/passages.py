"""Batches of passages for encoders, from a store of documents: each passage is `[SOS] … [EOS]`, as any encoder input.

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
from regard.data.batching import DATA_START, BatchSampler, DataPosition, Ids, Mask
from regard.data.language_batches import BlockBatches, LanguageBatch, split_documents, validation_batches
from regard.data.store import TokenColumn
from regard.errors import DataError

NUM_SPECIAL_TOKENS = 2  # start and end


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
