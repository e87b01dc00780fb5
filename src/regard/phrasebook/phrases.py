"""Phrases in both languages, whose words carry glosses; numbers, ages and the time of day.

A gloss is a label of what a word expresses. An English and an Italian word are aligned if they share a gloss.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple


class GlossedWord(NamedTuple):
    """A word and its glosses: `del` has those of a preposition and of an article."""

    text: str
    glosses: tuple[str, ...]


Words = tuple[GlossedWord, ...]


@dataclass(frozen=True, eq=False)
class Phrase:
    """A phrase in both languages."""

    english: Words
    italian: Words

    def with_role(self, role: str) -> "Phrase":
        """Return the phrase with `role` before each gloss, so that its glosses differ from those of other phrases."""
        return Phrase(with_role(role, self.english), with_role(role, self.italian))

    def __add__(self, other: "Phrase") -> "Phrase":
        return Phrase(self.english + other.english, self.italian + other.italian)


def with_role(role: str, words: Iterable[GlossedWord]) -> Words:
    """Return the words with `role` before each of their glosses."""
    return tuple([GlossedWord(text, _role_glosses(role, glosses)) for text, glosses in words])


@cache
def _role_glosses(role: str, glosses: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{role}.{gloss}" for gloss in glosses)


@cache
def phrase(english: str, italian: str) -> Phrase:
    """Return a phrase from its words, with glosses after `/`.

    Without glosses, words are aligned in order if both sides have equally many; otherwise all words are aligned.

    >>> last_week = phrase("last/2 week/1", "la/1 settimana/1 scorsa/2")
    >>> align(last_week.english, last_week.italian)
    ((0, 2), (1, 0), (1, 1))
    """
    sides = english.split(), italian.split()
    in_order = len(sides[0]) == len(sides[1])

    def read(side: list[str]) -> Words:
        parts = [word.partition("/") for word in side]
        return tuple(
            GlossedWord(text, (mark or (str(n) if in_order else "0"),)) for n, (text, _, mark) in enumerate(parts)
        )

    return Phrase(read(sides[0]), read(sides[1]))


def align(english: Sequence[GlossedWord], italian: Sequence[GlossedWord]) -> tuple[tuple[int, int], ...]:
    """Return the pairs (i, j) for which English word i and Italian word j share a gloss."""
    where: dict[str, list[int]] = {}
    for j, word in enumerate(italian):
        for gloss in word.glosses:
            where.setdefault(gloss, []).append(j)
    pairs = ((i, j) for i, word in enumerate(english) for gloss in word.glosses for j in where.get(gloss, ()))
    return tuple(sorted(set(pairs)))


def spell(words: Iterable[GlossedWord], capital: bool = True) -> str:
    """Return the words as text; each sentence begins with a capital letter, the first one only if `capital`.

    >>> spell(phrase("where is the water ?", "dov' è l' acqua ?").italian)
    "Dov'è l'acqua?"
    """
    line, glued = "", True
    for text, _ in words:
        if not glued and text not in {",", ".", "?", "!"} and not text.startswith("'"):
            line += " "
        line += text[0].upper() + text[1:] if capital else text
        capital = text in {".", "?", "!"}
        glued = text.endswith("'") and text != "po'"
    return line


_ENDING = r"'(?:s|t|m|re|ll|d)\b"  # of possessives and contractions
_WORD = re.compile(rf"\w+(?:-\w+)*(?={_ENDING})|{_ENDING}|\w+(?:-\w+)*'?|[^\w\s]")


def words_and_punctuation(text: str) -> list[str]:
    """Return the words and punctuation marks of a line, as alignments count them: the inverse of `spell`.

    >>> words_and_punctuation("L'amica di Anna ha trent'anni.")
    ["L'", 'amica', 'di', 'Anna', 'ha', "trent'", 'anni', '.']
    >>> words_and_punctuation("Anna's friend is thirty-one?")
    ['Anna', "'s", 'friend', 'is', 'thirty-one', '?']
    >>> words_and_punctuation("I don't know.")
    ['I', 'don', "'t", 'know', '.']
    """
    return _WORD.findall(text)


_ENGLISH_UNITS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_ENGLISH_TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_ITALIAN_UNITS = (
    "zero", "uno", "due", "tre", "quattro", "cinque", "sei", "sette", "otto", "nove", "dieci", "undici", "dodici",
    "tredici", "quattordici", "quindici", "sedici", "diciassette", "diciotto", "diciannove",
)  # fmt: skip
_ITALIAN_TENS = (
    "", "", "venti", "trenta", "quaranta", "cinquanta", "sessanta", "settanta", "ottanta", "novanta",
)  # fmt: skip

_MINUTES = {  # minutes past the hour, as (English before the hour, Italian after it)
    0: ("", ""),
    5: ("five/2 past/1", "e/1 cinque/2"),
    10: ("ten/2 past/1", "e/1 dieci/2"),
    15: ("a/2 quarter/3 past/1", "e/1 un/2 quarto/3"),
    20: ("twenty/2 past/1", "e/1 venti/2"),
    30: ("half/2 past/1", "e/1 mezza/2"),
    40: ("twenty/2 to/1", "meno/1 venti/2"),
    45: ("a/2 quarter/3 to/1", "meno/1 un/2 quarto/3"),
    50: ("ten/2 to/1", "meno/1 dieci/2"),
}
MINUTES = tuple(_MINUTES)


def english_number(n: int) -> str:
    """Return an English number from 0 to 100.

    >>> english_number(12), english_number(30), english_number(48), english_number(100)
    ('twelve', 'thirty', 'forty-eight', 'a hundred')
    """
    if n == 100:
        return "a hundred"
    if n < 20:
        return _ENGLISH_UNITS[n]
    return _ENGLISH_TENS[n // 10] + (f"-{_ENGLISH_UNITS[n % 10]}" if n % 10 else "")


def italian_number(n: int) -> str:
    """Return an Italian number from 0 to 100.

    >>> [italian_number(n) for n in (12, 23, 28, 41, 100)]
    ['dodici', 'ventitré', 'ventotto', 'quarantuno', 'cento']
    """
    if n == 100:
        return "cento"
    if n < 20:
        return _ITALIAN_UNITS[n]
    tens, unit = _ITALIAN_TENS[n // 10], n % 10
    if unit in (1, 8):
        tens = tens[:-1]
    return tens + ("" if unit == 0 else "tré" if unit == 3 else _ITALIAN_UNITS[unit])


def years(n: int) -> Phrase:
    """Return an age. Before `anni`, numbers lose an unstressed final -a, -i or -o: trent'anni, ventun anni.

    >>> from regard.phrasebook.phrases import spell
    >>> [spell(years(n).italian) for n in (8, 20, 31, 45)]
    ['Otto anni', "Vent'anni", 'Trentun anni', 'Quarantacinque anni']
    """
    italian = italian_number(n)
    if n >= 20 and n % 10 == 0:
        italian = italian[:-1] + "'"
    elif n > 20 and n % 10 == 1:
        italian = italian[:-1]
    english = tuple(GlossedWord(text, ("number",)) for text in english_number(n).split())
    english_words = (*english, GlossedWord("years", ("years",)), GlossedWord("old", ("years",)))
    return Phrase(english_words, (GlossedWord(italian, ("number",)), GlossedWord("anni", ("years",))))


def clock(hour: int, minute: int = 0) -> Phrase:
    """Return a time of day. Italian hours are feminine plurals with an article, except `l'una`.

    Past the half hour, both languages count back from the next hour, which is then `hour`.

    >>> from regard.phrasebook.phrases import spell
    >>> spell(clock(5, 45).english), spell(clock(5, 45).italian)
    ('A quarter to five', 'Le cinque meno un quarto')
    """
    article = "l'/hour una/hour" if hour == 1 else f"le/hour {italian_number(hour)}/hour"
    before, after = _MINUTES[minute]
    return phrase(f"{before} {english_number(hour)}/hour", f"{article} {after}")
