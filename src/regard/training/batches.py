"""Batches of training: examples as tensors, one per row, on the CPU or on the device of the network.

Fields of a batch are tensors, mappings from names to tensors, or None. Tasks build batches on the CPU.

B examples · S source length · T target length
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Generic, Self, TypeVar

import torch
from torch import Tensor

from regard.data.batching import PairBatch
from regard.nn.layout import PaddingMask

IGNORED_LABEL = -1  # marks positions without a label
BatchT = TypeVar("BatchT", bound="Batch")


@dataclass(frozen=True)
class Batch:
    """Examples, one per row.

    A batch on a GPU has the same batch on the CPU as its `host`, so that sizes and places of tokens are known without
    waiting for the GPU.
    """

    host: Any = field(default=None, kw_only=True, repr=False, compare=False)
    memo: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)  # computed once

    @property
    def examples(self) -> int:
        """Number of rows."""
        raise NotImplementedError

    @property
    def targets(self) -> int:
        """Number of predictions that the loss is summed over."""
        raise NotImplementedError

    def shard(self, rank: int, world_size: int) -> Self:
        """The examples of one process: rows `rank`, `rank + world_size`, …"""
        return self if world_size == 1 else self._map(lambda tensor: tensor[rank::world_size])

    def repeated(self) -> Self:
        """All rows followed by all rows again, as R-Drop needs them."""
        return self._map(lambda tensor: torch.cat([tensor, tensor]))

    def to(self, device: torch.device) -> Self:
        """The batch on another device; it is copied to a GPU in the background."""
        if device.type == "cpu":
            return self if self.host is None else replace(self._map(lambda tensor: tensor.cpu()), host=None)
        if device.type != "cuda":
            return replace(self._map(lambda tensor: tensor.to(device)), host=self)
        pinned = self._map(lambda tensor: tensor.contiguous().pin_memory())
        return replace(pinned._map(lambda tensor: tensor.to(device, non_blocking=True)), host=self)

    def local(self, rank: int, world_size: int, device: torch.device) -> Self:
        """The examples of one process, on its device; the first call may be in another thread, ahead of time."""
        key = (rank, world_size, device)
        if key not in self.memo:
            self.memo[key] = self.shard(rank, world_size).to(device)
        local: Self = self.memo[key]
        return local

    def mask_of(self, name: str) -> PaddingMask | None:
        """A boolean tensor of the batch with its copy on the CPU; None if it is None."""
        if name not in self.memo:
            tokens, host = getattr(self, name), None if self.host is None else getattr(self.host, name)
            self.memo[name] = None if tokens is None else PaddingMask.of(tokens, host)
        mask: PaddingMask | None = self.memo[name]
        return mask

    def _map(self, function: Callable[[Tensor], Tensor]) -> Self:
        """The batch with a function applied to all tensors, also to those of its host."""

        def mapped(value: Any) -> Any:
            if isinstance(value, Mapping):
                return {name: function(tensor) for name, tensor in value.items()}
            if isinstance(value, Batch):
                return value._map(function)
            return None if value is None else function(value)

        return type(self)(**{item.name: mapped(getattr(self, item.name)) for item in fields(self) if item.init})


@dataclass(frozen=True)
class LazyBatch(Batch, Generic[BatchT]):
    """A batch that is read when a process takes its rows: each process reads only its own.

    How many targets the whole batch has is known from the lengths of its examples.
    """

    num_examples: int
    num_targets: int
    lengths: Sequence[Tensor]  # (B,) number of tokens of each row, of each side
    gather: Callable[[int, int], BatchT]  # reads the rows of a process, by rank and number of processes

    @property
    def examples(self) -> int:
        """Number of rows."""
        return self.num_examples

    @property
    def targets(self) -> int:
        """Number of predictions that the loss is summed over."""
        return self.num_targets

    def shard(self, rank: int, world_size: int) -> BatchT:  # type: ignore[override]  # the rows themselves
        """The examples of one process: rows `rank`, `rank + world_size`, …, padded as in the whole batch."""
        return self.gather(rank, world_size)

    def to(self, device: torch.device) -> BatchT:  # type: ignore[override]
        """All rows on a device."""
        return self.gather(0, 1).to(device)

    def repeated(self) -> BatchT:  # type: ignore[override]
        """All rows followed by all rows again."""
        return self.gather(0, 1).repeated()


@dataclass(frozen=True)
class TokenBatch(Batch):
    """Texts whose next tokens are predicted. A mask that is None means that there is no padding."""

    target: Tensor  # (B, T) decoder input
    labels: Tensor  # (B, T) the token that follows each input token
    target_mask: Tensor | None = None
    source: Tensor | None = None  # (B, S), for networks with an encoder
    source_mask: Tensor | None = None
    features: Mapping[str, Tensor] | None = None  # (B, T) features of the target tokens
    source_features: Mapping[str, Tensor] | None = None  # (B, S) features of the source tokens

    @property
    def examples(self) -> int:
        """Number of texts, or of pairs."""
        return len(self.target)

    @property
    def targets(self) -> int:
        """Number of tokens to predict."""
        return int(self.labels.numel() if self.target_mask is None else self.target_mask.sum())


def pair_tensors(batch: PairBatch) -> TokenBatch:
    """Return a batch of sentence pairs as tensors, which share its memory."""
    return TokenBatch(
        target=torch.from_numpy(batch.target),
        labels=torch.from_numpy(batch.labels),
        target_mask=torch.from_numpy(batch.target_mask),
        source=torch.from_numpy(batch.source),
        source_mask=torch.from_numpy(batch.source_mask),
        source_features={name: torch.from_numpy(feature) for name, feature in batch.source_features.items()} or None,
    )


@dataclass(frozen=True)
class BidirectionalBatch(TokenBatch):
    """Texts of which every token is predicted twice: from its left and from its right context."""

    @property
    def targets(self) -> int:
        """Number of predictions of both directions."""
        return 2 * super().targets


@dataclass(frozen=True)
class MaskedBatch(Batch):
    """Passages some of whose tokens are masked."""

    ids: Tensor  # (B, T) encoder input
    original: Tensor  # (B, T) the tokens before masking
    selected: Tensor  # (B, T) True at tokens to predict
    mask: Tensor  # (B, T) False at padding

    @property
    def examples(self) -> int:
        """Number of passages."""
        return len(self.ids)

    @property
    def targets(self) -> int:
        """Number of tokens to predict."""
        return int(self.selected.sum())


@dataclass(frozen=True)
class LabelBatch(Batch):
    """Texts with one label each, or one for each word."""

    ids: Tensor  # (B, S)
    mask: Tensor  # (B, S) False at padding
    labels: Tensor  # (B, 1) per text, or (B, S) per token; IGNORED_LABEL where there is none
    features: Mapping[str, Tensor] | None = None  # (B, S)

    @property
    def examples(self) -> int:
        """Number of texts."""
        return len(self.ids)

    @property
    def targets(self) -> int:
        """Number of labels to predict."""
        return int(self.labeled.sum())

    @property
    def labeled(self) -> Tensor:
        """True where there is a label, in the shape of the labels."""
        return self.labels != IGNORED_LABEL

    @property
    def lengths(self) -> Tensor:
        """Number of tokens of each text (B,)."""
        return self.mask.sum(1)
