"""The words of a sentence, with the characters from which and up to which each stands in it."""

import re
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple


class Word(NamedTuple):
    """A word, or a sign; `start` and `end` count characters."""

    text: str
    start: int
    end: int


def words_of(sentence: str, *, split_signs: bool = False) -> list[Word]:
    """What spaces separate; with `split_signs`, the signs around words are words too, as corpora have them.

    >>> [word.text for word in words_of("(Ada's) friend, 5 €.", split_signs=True)]
    ['(', "Ada's", ')', 'friend', ',', '5', '€', '.']
    >>> words_of("in London.")
    [Word(text='in', start=0, end=2), Word(text='London.', start=3, end=10)]
    """
    found = (Word(match[0], *match.span()) for match in re.finditer(r"\S+", sentence))
    return [part for word in found for part in _parts(word)] if split_signs else list(found)


def _parts(word: Word) -> Iterator[Word]:
    """The signs before a word, the word, and the signs behind it."""
    text = word.text
    first = next((n for n, character in enumerate(text) if not _is_sign(character)), len(text))
    last = max((n + 1 for n, character in enumerate(text) if not _is_sign(character)), default=first)
    for start, end in [*_each(0, first), (first, last), *_each(last, len(text))]:
        if end > start:
            yield Word(text[start:end], word.start + start, word.start + end)


def _each(start: int, end: int) -> list[tuple[int, int]]:
    return [(n, n + 1) for n in range(start, end)]


def _is_sign(character: str) -> bool:
    """Punctuation or a symbol; marks that belong to letters are neither."""
    return unicodedata.category(character)[0] in "PS"
