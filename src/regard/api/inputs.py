"""Checks of the texts that are passed to API calls, and batching of iterators."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from regard.errors import ArgumentError

Item = TypeVar("Item")
Result = TypeVar("Result")


def check_texts(call: str, texts: object) -> Iterator[str]:
    """Yield one or more texts; raise ArgumentError at the first that is not a str.

    >>> list(check_texts("translate", "Hello.")), list(check_texts("translate", ["Hello.", "Bye."]))
    (['Hello.'], ['Hello.', 'Bye.'])
    """
    if isinstance(texts, str):
        return iter([texts])
    if isinstance(texts, bytes | bytearray) or not isinstance(texts, Iterable):
        raise ArgumentError(f"{call}: expected a str or an iterable of str, not {_type_name(texts)}.")
    return _check_each(call, texts)


def map_batches(
    function: Callable[[list[Item]], Sequence[Result]], items: Iterable[Item], size: int
) -> Iterator[Result]:
    """Yield the results of a function that takes a batch, reading at most `size` items ahead.

    >>> list(map_batches(lambda batch: [sum(batch)] * len(batch), range(5), 2))
    [1, 1, 5, 5, 4]
    """
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield from function(batch)


def _check_each(call: str, texts: Iterable[object]) -> Iterator[str]:
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise ArgumentError(f"{call}: text {number:,} should be a str, not {_type_name(text)}.")
        yield text


def _type_name(value: object) -> str:
    if value is None:
        return "None"
    name = type(value).__name__
    if isinstance(value, bytes | bytearray):
        return f"{name}; decode them first"
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
