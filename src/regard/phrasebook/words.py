"""Words that know what they stand for, and phrases in two languages.

Each word of a phrase carries the meanings it expresses, as labels. The labels say nothing to the reader of a sentence;
they are how the alignment is known: an English and an Italian word are aligned where they share a meaning.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple


class Word(NamedTuple):
    """A word as it is written, and what it stands for: `del` stands for a preposition and an article."""

    text: str
    means: tuple[str, ...]


Words = tuple[Word, ...]


@dataclass(frozen=True, eq=False)
class Phrase:
    """The same thing said in both languages."""

    english: Words
    italian: Words

    def under(self, role: str) -> "Phrase":
        """The phrase in a role of its own, so that its meanings are not taken for another phrase's."""
        return Phrase(under(role, self.english), under(role, self.italian))

    def __add__(self, other: "Phrase") -> "Phrase":
        return Phrase(self.english + other.english, self.italian + other.italian)


def under(role: str, words: Iterable[Word]) -> Words:
    """The words with `role` before each of their meanings."""
    return tuple([Word(text, _under(role, means)) for text, means in words])


@cache
def _under(role: str, means: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{role}.{meaning}" for meaning in means)


@cache
def phrase(english: str, italian: str) -> Phrase:
    """A phrase from its words; `/` marks words that belong together.

    Without marks, words are paired in order if there are as many on both sides, else all stand for one thing.

    >>> last_week = phrase("last/2 week/1", "la/1 settimana/1 scorsa/2")
    >>> align(last_week.english, last_week.italian)
    ((0, 2), (1, 0), (1, 1))
    """
    sides = english.split(), italian.split()
    in_order = len(sides[0]) == len(sides[1])

    def read(side: list[str]) -> Words:
        parts = [word.partition("/") for word in side]
        return tuple(Word(text, (mark or (str(n) if in_order else "0"),)) for n, (text, _, mark) in enumerate(parts))

    return Phrase(read(sides[0]), read(sides[1]))


def align(english: Sequence[Word], italian: Sequence[Word]) -> tuple[tuple[int, int], ...]:
    """The pairs (i, j) for which English word i and Italian word j share a meaning."""
    where: dict[str, list[int]] = {}
    for j, word in enumerate(italian):
        for meaning in word.means:
            where.setdefault(meaning, []).append(j)
    pairs = ((i, j) for i, word in enumerate(english) for meaning in word.means for j in where.get(meaning, ()))
    return tuple(sorted(set(pairs)))


def spell(words: Iterable[Word]) -> str:
    """The words as a line of text, each sentence with a capital.

    >>> spell(phrase("where is the water ?", "dov' è l' acqua ?").italian)
    "Dov'è l'acqua?"
    """
    line, capital, glued = "", True, True
    for text, _ in words:
        if not glued and text not in {",", ".", "?", "!", "'s"}:
            line += " "
        line += text[0].upper() + text[1:] if capital else text
        capital = text in {".", "?", "!"}
        glued = text.endswith("'") and text != "po'"
    return line


_WORD = re.compile(r"\w+(?:-\w+)*(?='s\b)|'s\b|\w+(?:-\w+)*'?|[^\w\s]")


def split_words(text: str) -> list[str]:
    """The words and marks of a line, as alignments count them: the inverse of `spell`, up to capitals.

    >>> split_words("L'amica di Anna ha trent'anni.")
    ["L'", 'amica', 'di', 'Anna', 'ha', "trent'", 'anni', '.']
    >>> split_words("Anna's friend is thirty-one?")
    ['Anna', "'s", 'friend', 'is', 'thirty-one', '?']
    """
    return _WORD.findall(text)
