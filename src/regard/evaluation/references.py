"""Sentences with several right translations, which corpora give as several pairs of the same source."""

from collections.abc import Iterable
from dataclasses import dataclass

from regard.data.corpus import Pair
from regard.evaluation.scores import References


@dataclass(frozen=True)
class Asked:
    """A sentence to translate, its first pair, and all of its right translations."""

    pair: Pair
    references: References


def apart(pairs: Iterable[Pair]) -> list[Asked]:
    """Every pair by itself."""
    return [Asked(pair, [pair.target]) for pair in pairs]


def together(pairs: Iterable[Pair]) -> list[Asked]:
    """Pairs of the same source as one sentence, in the order of their first ones.

    >>> found = together([Pair("Hi.", "Ciao."), Pair("Yes.", "Sì."), Pair("Hi.", "Salve.")])
    >>> [(asked.pair.source, asked.references) for asked in found]
    [('Hi.', ['Ciao.', 'Salve.']), ('Yes.', ['Sì.'])]
    """
    found: dict[str, list[Pair]] = {}
    for pair in pairs:
        found.setdefault(pair.source, []).append(pair)
    return [Asked(same[0], [pair.target for pair in same]) for same in found.values()]
