"""Batches of training: examples as tensors, one per row, on the CPU or on the device of the network.

Fields of a batch are tensors, mappings from names to tensors, or None. Tasks build batches on the CPU.

`prefetched` builds them in a background thread while the device computes. The thread also takes the share of this
process and copies it to the GPU, from pinned memory, so that the copy does not wait. Batches arrive in order, each with
the position in the data that follows it. What is built ahead does not count: a run that is resumed continues after the
last batch it trained on.

B examples · S source length · T target length
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from queue import Full, Queue
from threading import Event, Thread
from typing import Any, Generic, Self, TypeVar, cast

import torch
from torch import Tensor

from regard.data.batching import DataPosition, PairBatch
from regard.nn.layout import Features, PaddingMask

IGNORED_LABEL = -1  # marks positions without a label
GPU_BATCHES = 2  # built ahead by default
POLL_SECONDS = 0.2  # after which the thread notices that it should end
Item = TypeVar("Item")
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

    @property
    def known_targets(self) -> int | None:
        """The same; None if only the rows tell, which a process does not read for that."""
        return self.targets

    @property
    def rows_read(self) -> "Batch":
        """Rows on the CPU that stand for the batch in estimates: all of them."""
        return self

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

    def features_of(self, name: str) -> Mapping[str, Tensor] | None:
        """A mapping of the batch from names to tensors, with its copies on the CPU; None if it is None."""
        features, host = getattr(self, name), None if self.host is None else getattr(self.host, name)
        return features if host is None else Features(features, host)

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

    How many targets the whole batch has follows from the lengths of its examples, or the processes add those of their
    rows (`total_targets` in `training/optimizers.py`).
    """

    num_examples: int
    num_targets: int | None  # None: only the rows tell
    lengths: Sequence[Tensor]  # (B,) number of tokens of each row, of each side; empty if only the rows tell
    gather: Callable[[int, int], BatchT]  # reads the rows of a process, by rank and number of processes

    @property
    def examples(self) -> int:
        """Number of rows."""
        return self.num_examples

    @property
    def targets(self) -> int:
        """Number of predictions that the loss is summed over; all rows are read if only they tell."""
        return self.gather(0, 1).targets if self.num_targets is None else self.num_targets

    @property
    def known_targets(self) -> int | None:
        """The same; None if only the rows tell."""
        return self.num_targets

    @property
    def rows_read(self) -> BatchT:
        """Rows on the CPU that stand for the batch in estimates: those this process has read, or else all."""
        for batch in self.memo.values():
            if isinstance(batch, Batch) and batch.examples:
                return cast(BatchT, batch.host or batch)
        return self.gather(0, 1)

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


PositionedBatch = tuple[DataPosition, Batch]


def prefetched(
    batches: Iterator[PositionedBatch], count: int | None, rank: int, world_size: int, device: torch.device
) -> Iterator[PositionedBatch]:
    """Batches with their positions, `count` of them built ahead in a thread; None: only on GPUs.

    The share of this process is on its device when a batch arrives (`Batch.local`).
    """
    if count is None:
        count = 0 if device.type == "cpu" else GPU_BATCHES
    if count == 0:
        return batches

    def place(item: PositionedBatch) -> PositionedBatch:
        item[1].local(rank, world_size, device)
        return item

    return Prefetcher(batches, count, place)


class Prefetcher(Iterator[Item]):
    """Iterates over items that a thread takes from another iterator, at most `count` ahead.

    An exception of the other iterator is raised at its place. The thread ends with the iterator, with `close`, and when
    nothing refers to the Prefetcher any more.
    """

    def __init__(self, items: Iterator[Item], count: int, function: Callable[[Item], Item] = lambda item: item) -> None:
        self._queue: Queue[_Entry] = Queue(count)  # while it is full, the thread builds one more
        self._stop = Event()
        arguments = (items, function, self._queue, self._stop)  # not self, which the thread would keep alive
        self.thread = Thread(target=_fill, args=arguments, name="regard-prefetch", daemon=True)
        self.thread.start()

    def __next__(self) -> Item:
        if self._stop.is_set():
            raise StopIteration
        is_item, value = self._queue.get()
        if not is_item:
            self.close()
            raise value
        item: Item = value
        return item

    def close(self) -> None:
        """End the thread."""
        self._stop.set()

    def __del__(self) -> None:
        self.close()


_Entry = tuple[bool, Any]  # True and an item, or False and an exception


def _fill(items: Iterator[Item], function: Callable[[Item], Item], queue: "Queue[_Entry]", stop: Event) -> None:
    try:
        for item in items:
            if not _put(queue, (True, function(item)), stop):
                return
        _put(queue, (False, StopIteration()), stop)
    except BaseException as error:
        _put(queue, (False, error), stop)


def _put(queue: "Queue[_Entry]", entry: _Entry, stop: Event) -> bool:
    """Add an entry as soon as there is room; False if the thread should end instead."""
    while not stop.is_set():
        try:
            queue.put(entry, timeout=POLL_SECONDS)
        except Full:
            continue
        return True
    return False
