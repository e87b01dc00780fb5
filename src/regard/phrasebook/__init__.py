"""A phrasebook of our own making: English and Italian sentences from a small grammar, with their true word alignment.

    from regard import phrasebook

    for pair in phrasebook.split("train"):
        pair.source, pair.target, pair.alignment

English to Italian is a function here, so that a perfect translator can be told from a good one. What Italian leaves
open is settled once: `you` is tu and `you two` voi; I, we and they are masculine, and so are the doctor and the friend
unless the sentence says otherwise; the past is the passato prossimo, `I am eating` is `sto mangiando`; pronouns climb
to the finite verb, `ti voglio vedere`; an `it` that points back has the gender of its noun, any other is `lo`.
Statements and requests end with a full stop three times in four, questions always with `?`.

An alignment pairs the words of `split_words`. Every word has a partner: a subject pronoun or an auxiliary that Italian
does without is aligned to the verb whose ending says it, an article or preposition that one language lacks to its noun.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import get_args

from regard.data import corpus
from regard.errors import ConfigError
from regard.phrasebook.dice import Dice
from regard.phrasebook.grammar import sentences
from regard.phrasebook.splits import Split, split_pairs
from regard.phrasebook.words import Word, align, spell, split_words

__all__ = ["Pair", "pairs", "split", "split_words"]

COUNT = 70_000
_STUTTER = re.compile(r"\b(\w+) \1\b")  # `I gave you two two books` is right, and nobody says it
_LONGEST = 14  # words of English, so that a small model can read all of it


@dataclass(frozen=True)
class Pair(corpus.Pair):
    """An English sentence, its Italian, and which of their words belong together."""

    alignment: tuple[tuple[int, int], ...]
    topic: str = field(default="", repr=False, compare=False)  # the chapter of the grammar that it is from


def pairs() -> Iterator[Pair]:
    """All pairs, in an order that is the same everywhere.

    >>> next(pairs())
    Pair(source='I love you very much', target='Ti amo molto', alignment=((0, 1), (1, 1), (2, 0), (3, 2), (4, 2)))
    """
    translations: dict[str, str] = {}
    stops = Dice(seed=2)
    for sentence in sentences():
        english, italian = sentence.phrase.english, sentence.phrase.italian
        source, target = spell(english), spell(italian)
        if len(english) > _LONGEST or _STUTTER.search(source) or _STUTTER.search(target) or source in translations:
            assert translations.get(source, target) == target, f"{source!r} is {translations[source]!r} and {target!r}"
            continue
        full_stop = bool(translations) and stops.chance(75)  # the first sentence is said without one
        mark = sentence.mark if sentence.mark != "." or full_stop else ""
        end = (Word(mark, ("mark",)),) if mark else ()
        translations[source] = target
        yield Pair(source + mark, target + mark, align(english + end, italian + end), sentence.topic)
        if len(translations) == COUNT:
            return


def split(name: Split) -> list[Pair]:
    """The pairs of `train`, `dev` or `test`. No sentence of dev or test is in train, in either language.

    >>> any(pair.source == "I love you very much" for pair in split("test"))
    True
    """
    if name not in get_args(Split):
        raise ConfigError(f"The phrasebook has no split {name!r}; it has train, dev and test.")
    return list(_splits()[name])


@cache
def _splits() -> dict[Split, list[Pair]]:
    everything = list(pairs())
    return split_pairs(everything, tested=everything[0])
