"""Random parts of sentences: subjects, objects that a verb can take, times that fit a tense.

The random generator gives the same numbers on every machine and in every version of Python.
"""

from collections.abc import Sequence
from typing import TypeVar

from regard.phrasebook.clauses import Nominal, Tense
from regard.phrasebook.noun_phrases import (
    AGO,
    FUTURE,
    HABIT,
    HE,
    NOW,
    OWNERS,
    PAST,
    PEOPLE,
    SHE,
    THEY,
    WE,
    YOU_TWO,
    Determiner,
    I,
    NounPhrase,
    Pronoun,
    joined_by_and,
    joined_with_i,
    noun_phrase,
    prepositional,
    proper_name,
    with_pronoun,
)
from regard.phrasebook.nouns import KINDS, NOUNS, SAME, Adjective, Noun, attributive_adjectives, nouns
from regard.phrasebook.phrases import Phrase

T = TypeVar("T")


class PortableRandom:
    """A linear congruential generator with the constants of Knuth's MMIX, of which the high bits are used.

    >>> rng = PortableRandom(seed=1)
    >>> [rng.randbelow(6) for _ in range(8)]
    [2, 3, 3, 2, 4, 3, 3, 0]
    """

    def __init__(self, seed: int) -> None:
        self._state = seed

    def randbelow(self, n: int) -> int:
        """Return a whole number from 0 to n - 1."""
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self._state >> 33) * n >> 31

    def choice(self, options: Sequence[T]) -> T:
        """Return one of the options with equal probability; an option may be repeated."""
        return options[self.randbelow(len(options))]

    def chance(self, percent: int) -> bool:
        """Return True with a probability in percent."""
        return self.randbelow(100) < percent


MEN = tuple(proper_name(name, "m") for name in ("Marco", "Luca", "Paolo", "Davide", "Giorgio", "Stefano"))
WOMEN = tuple(proper_name(name, "f") for name in ("Maria", "Anna", "Giulia", "Laura", "Chiara", "Sara"))
PERSON_NAMES = MEN + WOMEN
_NAME_TEXTS = {name.english[0].text for name in PERSON_NAMES}
_OTHERS = tuple(pronoun for pronoun in PEOPLE if pronoun.person != 1)

POINTED: tuple[Determiner, ...] = ("the", "the", "the", "this", "that")
_ONE: tuple[Determiner, ...] = ("the", "the", "the", "a", "a", "a", "this", "that")
_SEVERAL: tuple[Determiner, ...] = ("the", "the", "some", "many", "all", "this", "that")

# nouns with a fixed determiner: the sea, the television
_FIXED: dict[str, Determiner] = {
    "sea": "the", "television": "the", "radio": "the", "light": "the", "bill": "the", "truth": "the",
}  # fmt: skip
_GENERIC = {"meal", "language", "studies", "sound", "country"}
_OWNED = {"reading", "belonging", "garment", "pair", "instrument", "vehicle"}
_ONE_AT_A_TIME = {"vehicle", "transport", "instrument"}
_KNOWN = {"instrument", "room", "opening"}  # definite by default: the bathroom, not a bathroom
_TAKEN_BARE = {"eat", "drink", "buy", "cook", "read", "write", "send", "sing", "tell", "visit"}


def random_subject(rng: PortableRandom, is_question: bool = False) -> Nominal:
    """Return a subject, more often a pronoun than not; questions are not in the first person."""
    if rng.chance(55):
        return rng.choice(_OTHERS if is_question else PEOPLE)
    if rng.chance(5) and not is_question:
        return joined_with_i(
            rng.choice(PERSON_NAMES) if rng.chance(50) else noun_phrase(rng.choice(KINDS["family"]), I)
        )
    return random_person(rng)


def random_person(rng: PortableRandom) -> NounPhrase:
    """Return a person as a noun phrase."""
    roll = rng.randbelow(100)
    if roll < 35:
        return rng.choice(PERSON_NAMES)
    if roll < 65:
        return random_relative(rng)
    if roll < 73:
        return noun_phrase(rng.choice(KINDS["acquaintance"]), random_owner(rng), rng.chance(25))
    if roll < 90:
        return noun_phrase(rng.choice(nouns("+person +person +job")), rng.choice(POINTED), plural=rng.chance(30))
    first, second = rng.choice(PERSON_NAMES), rng.choice(PERSON_NAMES)
    return joined_by_and(first, second) if first is not second else first


def random_person_except(rng: PortableRandom, who: Nominal) -> NounPhrase:
    """Return a person that differs from `who` in both languages: her aunt and his aunt are the same in Italian."""
    random_pronoun_except = random_person(rng)
    while isinstance(who, NounPhrase) and (
        who.italian == random_pronoun_except.italian or _named_in(who) & _named_in(random_pronoun_except)
    ):
        random_pronoun_except = random_person(rng)
    return random_pronoun_except


def _named_in(someone: Nominal) -> set[str]:
    """Return the names in a noun phrase."""
    return _NAME_TEXTS & {text for text, _ in someone.english} if isinstance(someone, NounPhrase) else set()


def random_relative(rng: PortableRandom) -> NounPhrase:
    """Return a family member: my mother, their children, Anna's brother; no plural possessor for spouses."""
    roll, whose = rng.randbelow(100), rng.choice(OWNERS)
    if roll < 10 and not whose.plural:
        spouse = "wife" if whose is HE else "husband" if whose is SHE else rng.choice(("wife", "husband"))
        return noun_phrase(NOUNS[spouse], whose)
    if roll < 25:
        return noun_phrase(rng.choice(KINDS["parents"]), whose)
    if roll < 35:
        return noun_phrase(rng.choice(KINDS["family"]), rng.choice(PERSON_NAMES))
    noun = rng.choice(KINDS["family"])
    return noun_phrase(noun, whose, plural=roll < 45 and not whose.plural and noun.english not in {"mother", "father"})


def random_owner(rng: PortableRandom, whom: Nominal | None = None) -> Pronoun | NounPhrase:
    """Return a possessor, most often `whom`."""
    name = rng.choice(PERSON_NAMES)
    if whom and (rng.chance(50) or _named_in(name) & _named_in(whom)):
        return own_pronoun(whom)
    return name if rng.chance(20) else rng.choice(OWNERS)


def own_pronoun(whom: Nominal) -> Pronoun:
    """Return the pronoun that refers to a person; for `you two` it is I, because `your` is tuo."""
    if isinstance(whom, Pronoun):
        return whom if whom is not YOU_TWO else I
    if whom.person == 1:
        return WE
    return THEY if whom.plural else SHE if whom.gender == "f" else HE


def random_pronoun_except(rng: PortableRandom, who: Nominal) -> Pronoun:
    """Return a pronoun that is not reflexive with this subject."""
    return rng.choice([pronoun for pronoun in PEOPLE if pronoun.person != who.person or who.person == 3])


def random_company(rng: PortableRandom, who: Nominal) -> Phrase:
    """Return company: with us, con noi; with my brother, con mio fratello."""
    if rng.chance(50):
        return with_pronoun("with", "con", random_pronoun_except(rng, who))
    return prepositional("with", "con", random_person_except(rng, who))


def random_adjective(rng: PortableRandom, noun: Noun) -> Adjective | None:
    """Return an adjective for a noun, with a probability of 25%; `open` and `closed` are only predicative."""
    fitting = () if noun.kind == "opening" or noun.english in _FIXED else attributive_adjectives(noun)
    return rng.choice(fitting) if fitting and rng.chance(25) else None


def random_object(rng: PortableRandom, noun: Noun, who: Nominal, sparse: bool = False) -> NounPhrase:
    """Return a noun as the object of an action; `sparse` is for negations, which have no quantities."""
    if noun.english in _FIXED or noun.kind in _GENERIC:
        return noun_phrase(noun, _FIXED.get(noun.english, "generic"))
    if noun.kind == "acquaintance":
        return noun_phrase(noun, random_owner(rng, who), rng.chance(25))
    if noun.kind == "pasta":
        return noun_phrase(noun, "the" if sparse else rng.choice(("the", "some")))
    described = random_adjective(rng, noun)
    if noun.is_mass:
        little: tuple[Determiner, ...] = ("the", "the", "some", "some", "this")
        return noun_phrase(noun, rng.choice(POINTED if sparse else little), adjective=described)
    if noun.kind in _OWNED and rng.chance(30):
        return noun_phrase(noun, random_owner(rng, who), noun.kind not in _ONE_AT_A_TIME and rng.chance(25), described)
    if noun.is_pair:
        return noun_phrase(noun, rng.choice(POINTED if sparse else (*POINTED, "some")), adjective=described)
    alone = sparse or noun.kind in _ONE_AT_A_TIME
    if alone or rng.chance(60):
        determiner = rng.choice(POINTED if noun.kind in _KNOWN and noun.english != "room" else _ONE)
        is_plural = not alone and determiner != "a" and rng.chance(15)
        return noun_phrase(noun, determiner, is_plural, described)
    if rng.chance(35):
        return noun_phrase(noun, 2 + rng.randbelow(11 if noun.kind in {"produce", "dish"} else 4), adjective=described)
    if rng.chance(30):
        return noun_phrase(noun, "the", adjective=SAME) if rng.chance(40) else noun_phrase(noun, "another")
    return noun_phrase(noun, rng.choice(_SEVERAL), True, described)


def habitual_object(rng: PortableRandom, verb: str, noun: Noun, who: Nominal) -> NounPhrase:
    """Return the object of a habit: I eat bread, I wash the car."""
    if noun.english in _FIXED or noun.kind in _GENERIC:
        return noun_phrase(noun, _FIXED.get(noun.english, "generic"))
    if verb in _TAKEN_BARE:
        return generic_noun_phrase(noun, "bare")
    is_plural = rng.chance(25) and not noun.is_mass and noun.kind not in _ONE_AT_A_TIME
    return noun_phrase(noun, own_pronoun(who) if noun.kind in _OWNED and rng.chance(40) else "the", is_plural)


def generic_noun_phrase(noun: Noun, determiner: Determiner = "generic") -> NounPhrase:
    """Return a noun in the generic sense: bread, apples, but pizza."""
    return noun_phrase(noun, determiner, plural=not noun.is_mass and noun.english not in {"pizza", "cake", "steak"})


def random_time(rng: PortableRandom, tense: Tense, negated: bool = False) -> Phrase:
    """Return a time that fits a tense; negations have no `an hour ago`."""
    if tense == "past":
        return rng.choice(PAST if negated else PAST + AGO)
    return rng.choice({"future": FUTURE, "progressive": NOW}.get(tense, HABIT))


def random_hour(rng: PortableRandom, first: int = 1, last: int = 12) -> tuple[int, int]:
    """Return an hour and a minute, which is mostly zero."""
    return first + rng.randbelow(last - first + 1), rng.choice((0, 0, 0, 0, 30, 30, 15, 45, 10, 20, 40, 50, 5))


def sometimes(rng: PortableRandom, percent: int, *phrases: Phrase) -> tuple[Phrase, ...]:
    """Return the phrases with a probability in percent, otherwise none."""
    return phrases if rng.chance(percent) else ()
