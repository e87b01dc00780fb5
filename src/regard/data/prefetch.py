"""Things as they arrive, several at a time: all that are there by now, without waiting for more.

Someone who types a line gets an answer at once, and a large file goes through in large batches. What is read ahead is
bounded, so that endless input takes no more memory than short input.
"""

import threading
from collections.abc import Iterable, Iterator
from queue import Empty, Queue
from typing import TypeVar

T = TypeVar("T")
_END = object()


def prefetch(things: Iterable[T], most: int) -> Iterator[list[T]]:
    """Lists of at most so many things; whatever goes wrong in reading them is raised after those that came before it.

    >>> [len(several) <= 2 for several in prefetch(range(5), most=2)].count(False)
    0
    """
    queue: Queue[object] = Queue(maxsize=most)
    threading.Thread(target=_read, args=(things, queue), daemon=True).start()
    failure: object = None
    while failure is None:
        several: list[T] = []
        while len(several) < most:
            try:
                found = queue.get(block=not several)
            except Empty:
                break
            if found is _END or isinstance(found, _Failure):
                failure = found
                break
            several.append(found)  # type: ignore[arg-type]
        if several:
            yield several
    if isinstance(failure, _Failure):
        raise failure.error


class _Failure:
    def __init__(self, error: BaseException) -> None:
        self.error = error


def _read(things: Iterable[T], queue: Queue[object]) -> None:
    try:
        for thing in things:
            queue.put(thing)
    except BaseException as error:
        queue.put(_Failure(error))
    else:
        queue.put(_END)
