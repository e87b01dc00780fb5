"""A handful of sentences for labs in a hurry: two dozen words in three patterns, with their true alignment.

    Marco does not see the red house.  →  Marco non vede la casa rossa.

It is the phrasebook in small: adjectives move behind their nouns, articles and endings agree, `does` is in the verb.
"""

from itertools import product

from regard.phrasebook import Pair
from regard.phrasebook.words import Word, align, spell

NAMES = ("Marco", "Anna", "Luca", "Maria", "Paolo", "Chiara")
VERBS = {"see": "vede", "find": "trova", "want": "vuole", "love": "ama", "draw": "disegna", "describe": "descrive"}
NOUNS = {
    "house": "casa",
    "car": "macchina",
    "door": "porta",
    "book": "libro",
    "garden": "giardino",
    "letter": "lettera",
}
ADJECTIVES = {"red": "ross", "white": "bianc", "small": "piccol", "new": "nuov", "old": "vecchi", "yellow": "giall"}
HELD_OUT = 8  # every so-manieth sentence is tested


def handful() -> list[Pair]:
    """All sentences, in an order that mixes them and is the same everywhere.

    >>> pair = handful()[0]
    >>> pair.source, pair.target
    ('Marco sees the red house.', 'Marco vede la casa rossa.')
    >>> pair.alignment
    ((0, 0), (1, 1), (2, 2), (3, 4), (4, 3), (5, 5))
    """
    made = [_pair(*one) for one in product(NAMES, VERBS, NOUNS, ADJECTIVES, ("says", "denies", "asks"))]
    stride = 1399  # shares no factor with their number, so that every sentence comes once
    return [made[n * stride % len(made)] for n in range(len(made))]


def _pair(name: str, verb: str, noun: str, adjective: str, mood: str) -> Pair:
    ending = "a" if NOUNS[noun].endswith("a") else "o"
    bent = ADJECTIVES[adjective] + ending
    who, does, act = (name, "who"), ("does", "act"), (verb, "act")
    begun = {
        "says": [who, (f"{verb}s", "act")],
        "denies": [who, does, ("not", "not"), act],
        "asks": [does, who, act],
    }
    mark = ("?" if mood == "asks" else ".", "mark")
    english = [*begun[mood], ("the", "the"), (adjective, "how"), (noun, "what"), mark]
    article = ("la" if ending == "a" else "il", "the")
    denial = [("non", "not")] if mood == "denies" else []
    italian = [who, *denial, (VERBS[verb], "act"), article, (NOUNS[noun], "what"), (bent, "how"), mark]
    sides = [[Word(text, (meaning,)) for text, meaning in side] for side in (english, italian)]
    return Pair(spell(sides[0]), spell(sides[1]), align(*sides))
