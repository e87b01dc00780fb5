"""Batches that a background thread builds while the device computes.

The thread also takes the share of this process and copies it to the GPU, from pinned memory, so that the copy does not
wait. Batches arrive in order, each with the position in the data that follows it. What is built ahead does not count: a
run that is resumed continues after the last batch it trained on.
"""

from collections.abc import Callable, Iterator
from queue import Full, Queue
from threading import Event, Thread
from typing import Any, TypeVar

import torch

from regard.data.batching import DataPosition
from regard.training.batches import Batch

GPU_BATCHES = 2  # built ahead by default
POLL_SECONDS = 0.2  # after which the thread notices that it should end
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
