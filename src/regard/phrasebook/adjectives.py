"""The adjectives, and which nouns each can describe.

An entry is `English = Italian`, masculine singular; `^` marks those that stand before the noun: un bel libro. Some
fit only the nouns in brackets, or all but those after a minus. One English word may be two Italian ones for two kinds
of things: an old man is `anziano`, an old car `vecchia`.
"""

import re
from dataclasses import dataclass
from functools import cache

from regard.phrasebook.nouns import Noun


@dataclass(frozen=True, eq=False)
class Adjective:
    """An adjective in both languages."""

    english: str
    italian: str
    comparative: str = ""  # the one English word: taller; empty where it is `more`
    goes_before: bool = False


_COMPARATIVES = {
    "tall": "taller", "short": "shorter", "young": "younger", "old": "older", "kind": "kinder", "rich": "richer",
    "strong": "stronger", "big": "bigger", "small": "smaller", "new": "newer", "cheap": "cheaper", "fast": "faster",
    "slow": "slower", "long": "longer", "clean": "cleaner", "lazy": "lazier", "nice": "nicer", "quiet": "quieter",
    "ugly": "uglier", "dirty": "dirtier", "dark": "darker", "easy": "easier", "heavy": "heavier", "shy": "shyer",
    "strange": "stranger",
}  # fmt: skip

_COLOURS = "red = rosso; white = bianco; black = nero; green = verde; blue = blu; yellow = giallo; grey = grigio; " \
           "brown = marrone; pink = rosa"  # fmt: skip
_AGE = "new = nuovo; old = vecchio"
_PRICE = "expensive = caro; cheap = economico"
_SIZE = "big = grande; small = piccolo"
_THING = f"{_AGE}; {_PRICE}; {_SIZE}; beautiful = ^bello"
_WORK = "good = ^buono; interesting = interessante; boring = noioso; long = lungo; beautiful = ^bello"
_CHARACTER = """
    tall = alto; young = giovane (-boy girl child); old = anziano (-boy girl child); kind = gentile; nice = simpatico;
    intelligent = intelligente; lazy = pigro; rich = ricco (-child); famous = famoso (-child); strong = forte;
    shy = timido; honest = onesto; strange = strano; elegant = elegante (-child); polite = educato"""
_MOOD = """
    tired = stanco; happy = felice; sad = triste; angry = arrabbiato; ill = malato; ready = pronto; busy = occupato;
    nervous = nervoso; worried = preoccupato; bored = annoiato; free = libero; calm = calmo; short = basso;
    poor = povero; married = sposato; curious = curioso; alone = solo"""

_BY_KIND = {
    "larder": "good = ^buono; fresh = fresco; delicious = delizioso",
    "prepared": "good = ^buono; delicious = delizioso",
    "produce": f"good = ^buono; fresh = fresco; sweet = dolce (-egg potato tomato onion mushroom olive lemon); {_SIZE}",
    "dish": "good = ^buono; delicious = delizioso; small = piccolo",
    "drink": "good = ^buono; cold = freddo; hot = caldo (coffee tea milk water)",
    "reading": f"{_WORK}; new = nuovo (book magazine newspaper poem novel); "
    "old = vecchio (book magazine newspaper letter poem novel story); famous = famoso (book magazine poem novel); "
    "difficult = difficile (book article poem novel)",
    "event": f"{_WORK}; new = nuovo (film song show); old = vecchio (film song); famous = famoso (film song show)",
    "belonging": f"{_THING}; useful = utile (umbrella phone map dictionary computer pen notebook backpack bag gift); "
    + re.sub("(;|$)", r" (bag umbrella backpack suitcase pen pencil box ball notebook wallet toy)\1", _COLOURS),
    "tableware": "clean = pulito; dirty = sporco; empty = vuoto (glass cup bottle); full = pieno (glass cup bottle); "
    f"{_THING}",
    "instrument": f"{_AGE}; {_PRICE}; beautiful = ^bello",
    "garment": f"{_AGE}; {_PRICE}; beautiful = ^bello; elegant = elegante; clean = pulito; dirty = sporco; {_COLOURS}",
    "pair": f"{_AGE}; {_PRICE}; beautiful = ^bello; elegant = elegante; dirty = sporco; comfortable = comodo; "
    f"{_COLOURS}",
    "furniture": f"{_THING}; modern = moderno; heavy = pesante; comfortable = comodo (chair bed sofa)",
    "opening": f"open = aperto; closed = chiuso; broken = rotto; {_SIZE}; green = verde; white = bianco",
    "vehicle": f"{_THING}; fast = veloce; slow = lento; comfortable = comodo; {_COLOURS}",
    "transport": f"{_AGE}; {_SIZE}; fast = veloce; slow = lento; comfortable = comodo; full = pieno; {_COLOURS}",
    "building": f"{_AGE}; {_SIZE}; beautiful = ^bello; ugly = ^brutto; modern = moderno (-castle tower); "
    "ancient = antico (church castle tower bridge theatre library university house); famous = famoso (-pharmacy house "
    "apartment supermarket office); quiet = tranquillo (-tower bridge stadium airport); expensive = caro (hotel "
    "restaurant shop apartment house market supermarket); cheap = economico (hotel restaurant shop apartment market)",
    "outdoors": f"{_SIZE}; beautiful = ^bello; quiet = tranquillo; famous = famoso (-garden sea)",
    "room": f"{_SIZE}; clean = pulito; dirty = sporco; dark = buio (-terrace balcony); empty = vuoto; "
    "comfortable = comodo",
    "animal": f"{_SIZE}; black = nero (-lion squirrel); white = bianco (-lion squirrel); "
    "old = vecchio (-spider mouse); lazy = pigro (-spider); intelligent = intelligente (-spider)",
    "matter": "easy = facile (question problem exam lesson exercise word answer); difficult = difficile (question "
    "problem exam lesson exercise word journey name answer); important = importante (-mistake name journey exercise); "
    "interesting = interessante (question answer problem idea lesson exercise journey); strange = strano "
    "(-exam lesson exercise); long = lungo (exam lesson exercise word journey answer)",
    "person": f"good = ^bravo (-man tourist foreigner); {_CHARACTER}",
    "job": f"good = ^bravo; {_CHARACTER}",
    "she": f"good = ^bravo; {_CHARACTER}",
    "country": f"beautiful = ^bello; interesting = interessante; expensive = caro; {_SIZE}",
}  # fmt: skip


@dataclass(frozen=True)
class _Use:
    adjective: Adjective
    only: frozenset[str]
    never: frozenset[str]


def _read(text: str) -> tuple[_Use, ...]:
    uses: list[_Use] = []
    for entry in text.split(";"):
        english, target = (side.strip() for side in entry.split("="))
        italian, _, bracket = target.partition("(")
        names = bracket.strip(" )").split()
        excluded = bool(names) and names[0].startswith("-")
        adjective = Adjective(english, italian.strip(" ^"), _COMPARATIVES.get(english, ""), "^" in italian)
        listed = frozenset(name.lstrip("-") for name in names)
        uses.append(_Use(adjective, frozenset() if excluded else listed, listed if excluded else frozenset()))
    return tuple(uses)


_USES = {kind: _read(text) for kind, text in _BY_KIND.items()}

CHARACTER = tuple(use.adjective for use in _read(_CHARACTER))  # what people are
MOOD = {use.adjective.english: use.adjective for use in _read(_MOOD)}  # how people are, said with `be` only
SAME, FIRST, LAST, NEXT = (
    use.adjective for use in _read("same = ^stesso; first = ^primo; last = ^ultimo; next = ^prossimo")
)


@cache
def said_of(noun: Noun) -> tuple[Adjective, ...]:
    """What a noun can be said to be; a good book is `un buon libro`, but no book `è buono`."""
    prized = noun.kind in {"reading", "event"}
    return tuple(adjective for adjective in describing(noun) if not (prized and adjective.english == "good"))


@cache
def describing(noun: Noun) -> tuple[Adjective, ...]:
    """What can be said of a noun, if anything.

    >>> from regard.phrasebook.nouns import NOUNS
    >>> [adjective.english for adjective in describing(NOUNS["water"])]
    ['good', 'cold', 'hot']
    """
    return tuple(
        use.adjective
        for use in _USES.get(noun.kind, ())
        if noun.english not in use.never and (not use.only or noun.english in use.only)
    )
