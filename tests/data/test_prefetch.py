"""Things as they arrive: at once for someone who waits, many at a time from a file, never too many."""

import threading
from collections.abc import Iterator
from queue import Queue

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.prefetch import prefetch


@given(st.integers(0, 50), st.integers(1, 7))
def test_everything_arrives_once_and_in_order(count: int, most: int) -> None:
    found = list(prefetch(range(count), most))
    assert [n for several in found for n in several] == list(range(count))
    assert all(1 <= len(several) <= most for several in found)


def test_a_single_thing_does_not_wait_for_the_next() -> None:
    source: Queue[int | None] = Queue()

    def things() -> Iterator[int]:
        while (thing := source.get()) is not None:
            yield thing

    found = prefetch(things(), max_items=10)
    for n in range(3):
        source.put(n)
        assert next(found) == [n]
    source.put(None)
    assert list(found) == []


def test_what_came_before_a_failure_is_given_first() -> None:
    def things() -> Iterator[int]:
        yield from (1, 2)
        raise ValueError("broken")

    found = prefetch(things(), max_items=10)
    given: list[int] = []
    with pytest.raises(ValueError, match="broken"):
        given.extend(n for several in found for n in several)
    assert given == [1, 2]


def test_no_more_is_read_ahead_than_fits() -> None:
    read = 0
    enough = threading.Event()

    def endless() -> Iterator[int]:
        nonlocal read
        while True:
            read += 1
            if read > 12:
                enough.set()
            yield read

    found = prefetch(endless(), max_items=10)
    next(found)
    enough.wait(timeout=10)
    assert read <= 10 + 10 + 2  # what was given, what waits, and what is in hand
