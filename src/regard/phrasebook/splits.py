"""Train, dev and test: sentences kept apart so that a test sentence was never seen, in either language.

`He eats`, `She eats` and `Does he eat` have the same Italian words, so they stay together. A pair with a word that
training sees too seldom is moved there: the test is of grammar, not of unseen words.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Literal, TypeVar

from regard.data.corpus import Pair
from regard.phrasebook.words import split_words

Split = Literal["train", "dev", "test"]
FAMILIAR = 5  # how often training sees every word of dev and test
_THOUSANDTHS: dict[Split, range] = {"test": range(20), "dev": range(20, 40)}


P = TypeVar("P", bound=Pair)


def split_pairs(pairs: Sequence[P], tested: P) -> dict[Split, list[P]]:
    """The pairs by split, each in the order given; `tested` is in test."""
    together: dict[str, list[P]] = {}
    for pair in pairs:
        together.setdefault(_without_mark(pair.target), []).append(pair)
    home: dict[str, Split] = {}
    for target, group in together.items():
        home[target] = "test" if tested in group else _drawn(group[0].source)
    seen = Counter(word for target, group in together.items() if home[target] == "train" for word in _words(group))
    for target, group in together.items():
        if home[target] != "train" and any(seen[word] < FAMILIAR for word in _words(group)):
            home[target] = "train"  # which only makes its words more familiar
    splits: dict[Split, list[P]] = {"train": [], "dev": [], "test": []}
    for pair in pairs:
        splits[home[_without_mark(pair.target)]].append(pair)
    return splits


def _drawn(source: str) -> Split:
    """A split by the hash of a sentence."""
    number = int.from_bytes(sha256(source.encode()).digest()[:4], "big") % 1000
    return next((name for name, numbers in _THOUSANDTHS.items() if number in numbers), "train")


def _without_mark(text: str) -> str:
    return text.rstrip(".?!")


def _words(group: Iterable[Pair]) -> Iterable[tuple[str, str]]:
    for pair in group:
        yield from (("source", word) for word in split_words(pair.source))
        yield from (("target", word) for word in split_words(pair.target))
