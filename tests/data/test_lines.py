"""Prefetching: items without delay, several at a time, and bounded."""

import threading
from collections.abc import Iterator
from queue import Queue

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.lines import prefetch


@given(st.integers(0, 50), st.integers(1, 7))
def test_items_are_yielded_once_in_order(count: int, max_items: int) -> None:
    batches = list(prefetch(range(count), max_items))
    assert [n for batch in batches for n in batch] == list(range(count))
    assert all(1 <= len(batch) <= max_items for batch in batches)


def test_single_item_is_yielded_without_waiting() -> None:
    source: Queue[int | None] = Queue()

    def items() -> Iterator[int]:
        while (item := source.get()) is not None:
            yield item

    batches = prefetch(items(), max_items=10)
    for n in range(3):
        source.put(n)
        assert next(batches) == [n]
    source.put(None)
    assert list(batches) == []


def test_items_before_an_exception_are_yielded_first() -> None:
    def items() -> Iterator[int]:
        yield from (1, 2)
        raise ValueError("broken")

    batches = prefetch(items(), max_items=10)
    received: list[int] = []
    with pytest.raises(ValueError, match="broken"):
        received.extend(n for batch in batches for n in batch)
    assert received == [1, 2]


def test_prefetching_is_bounded() -> None:
    read = 0
    enough = threading.Event()

    def endless() -> Iterator[int]:
        nonlocal read
        while True:
            read += 1
            if read > 12:
                enough.set()
            yield read

    batches = prefetch(endless(), max_items=10)
    next(batches)
    enough.wait(timeout=10)
    assert read <= 10 + 10 + 2  # yielded, queued, and in progress
