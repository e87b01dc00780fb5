"""Prefetching: read items in a background thread, and yield those that have arrived without waiting for more.

An interactive user gets an answer to each line at once, while a large file is processed in large batches. The queue is
bounded, so that endless input takes no more memory than short input.
"""

import threading
from collections.abc import Iterable, Iterator
from queue import Empty, Queue
from typing import TypeVar

T = TypeVar("T")
_END = object()


def prefetch(items: Iterable[T], max_items: int) -> Iterator[list[T]]:
    """Yield lists of at most `max_items` items; an exception of the source is raised after the items before it.

    >>> all(len(batch) <= 2 for batch in prefetch(range(5), max_items=2))
    True
    """
    queue: Queue[object] = Queue(maxsize=max_items)
    threading.Thread(target=_fill, args=(items, queue), daemon=True).start()
    end: object = None
    while end is None:
        batch: list[T] = []
        while len(batch) < max_items:
            try:
                item = queue.get(block=not batch)
            except Empty:
                break
            if item is _END or isinstance(item, _Failure):
                end = item
                break
            batch.append(item)  # type: ignore[arg-type]
        if batch:
            yield batch
    if isinstance(end, _Failure):
        raise end.error


class _Failure:
    """An exception of the source, passed through the queue."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


def _fill(items: Iterable[T], queue: Queue[object]) -> None:
    try:
        for item in items:
            queue.put(item)
    except BaseException as error:
        queue.put(_Failure(error))
    else:
        queue.put(_END)
