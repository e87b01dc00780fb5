"""Texts that someone gives from Python: what is no text is told at once, by its number, and not deep inside."""

from collections.abc import Iterable, Iterator
from typing import Any

from regard.errors import ArgumentError


def given_texts(call: str, texts: Any) -> Iterator[str]:
    """The texts given to a call such as `translate`: one, or several, one by one as they are asked for.

    >>> list(given_texts("translate", "Hello.")), list(given_texts("translate", ["Hello.", "Bye."]))
    (['Hello.'], ['Hello.', 'Bye.'])
    """
    if isinstance(texts, str):
        return iter([texts])
    if isinstance(texts, bytes | bytearray) or not isinstance(texts, Iterable):
        raise ArgumentError(f"{call}: should be given a str or several, not {_named(texts)}.")
    return _each(call, texts)


def _each(call: str, texts: Iterable[Any]) -> Iterator[str]:
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise ArgumentError(f"{call}: text {number:,} should be a str, not {_named(text)}.")
        yield text


def _named(value: object) -> str:
    if value is None:
        return "None"
    kind = type(value).__name__
    remedy = "; decode them first" if isinstance(value, bytes | bytearray) else ""
    return f"{kind}{remedy}" if remedy else f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
