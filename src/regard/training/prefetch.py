"""Batches that a background thread builds while the device computes.

The thread also takes the share of this process and copies it to the GPU, from pinned memory, so that the copy does not
wait. Batches arrive in order, each with the position in the data that follows it. What is built ahead does not count: a
run that is resumed continues after the last batch it trained on.
"""

from collections.abc import Callable, Iterator
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import Any, TypeVar

import torch

from regard.data.batching import DataPosition
from regard.training.batches import Batch

GPU_BATCHES = 2  # built ahead by default
POLL_SECONDS = 0.2
PositionedBatch = tuple[DataPosition, Batch]
Item = TypeVar("Item")


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

    An exception of the other iterator is raised at its place. The thread ends with `close`, with the iterator, and with
    the program.
    """

    def __init__(self, items: Iterator[Item], count: int, function: Callable[[Item], Item] = lambda item: item) -> None:
        self._items = items
        self._function = function
        self._queue: Queue[tuple[bool, Any]] = Queue(count)
        self._stop = Event()
        self._thread = Thread(target=self._run, name="regard-prefetch", daemon=True)
        self._thread.start()

    def __next__(self) -> Item:
        while True:
            try:
                is_item, value = self._queue.get(timeout=POLL_SECONDS)
            except Empty:
                if self._stop.is_set():
                    raise StopIteration from None
                continue
            if is_item:
                item: Item = value
                return item
            self.close()
            raise value

    def close(self) -> None:
        """End the thread."""
        self._stop.set()

    def __del__(self) -> None:
        self.close()

    def _run(self) -> None:
        # The queue has room for `count` items. One more is built while it is full.
        try:
            for item in self._items:
                if not self._put((True, self._function(item))):
                    return
            self._put((False, StopIteration()))
        except BaseException as error:
            self._put((False, error))

    def _put(self, entry: tuple[bool, Any]) -> bool:
        """Add an entry as soon as there is room; False if the thread should end instead."""
        while not self._stop.is_set():
            try:
                self._queue.put(entry, timeout=POLL_SECONDS)
            except Full:
                continue
            return True
        return False
