"""What chapters draw their sentences from: someone, something that a verb can take, a time that fits a tense."""

from regard.phrasebook.adjectives import SAME, Adjective, describing
from regard.phrasebook.clause import Noun, Tense
from regard.phrasebook.dice import Dice
from regard.phrasebook.noun_phrase import Determiner, NounPhrase, and_i, both, named, noun_phrase, prepositional
from regard.phrasebook.nouns import KINDS, NOUNS, nouns
from regard.phrasebook.nouns import Noun as Lemma
from regard.phrasebook.pronouns import HE, OWNERS, PEOPLE, SHE, THEY, WE, YOU_TWO, I, Pronoun, with_pronoun
from regard.phrasebook.when_and_where import AGO, FUTURE, HABIT, NOW, PAST
from regard.phrasebook.words import Phrase

MEN = tuple(named(name, "m") for name in ("Marco", "Luca", "Paolo", "Davide", "Giorgio", "Stefano"))
WOMEN = tuple(named(name, "f") for name in ("Maria", "Anna", "Giulia", "Laura", "Chiara", "Sara"))
NAMES = MEN + WOMEN
_NAME_TEXTS = {name.english[0].text for name in NAMES}
_OTHERS = tuple(pronoun for pronoun in PEOPLE if pronoun.person != 1)

POINTED: tuple[Determiner, ...] = ("the", "the", "the", "this", "that")
_ONE: tuple[Determiner, ...] = ("the", "the", "the", "a", "a", "a", "this", "that")
_SEVERAL: tuple[Determiner, ...] = ("the", "the", "some", "many", "all", "this", "that")

# what comes with a determiner of its own: there is one sea, and nobody watches a television
_FIXED: dict[str, Determiner] = {
    "sea": "the", "television": "the", "radio": "the", "light": "the", "bill": "the", "truth": "the",
}  # fmt: skip
_GENERIC = {"meal", "language", "studies", "sound", "country"}
_OWNED = {"reading", "belonging", "garment", "pair", "instrument", "vehicle"}
_ONE_AT_A_TIME = {"vehicle", "transport", "instrument"}
_KNOWN = {"instrument", "room", "opening"}  # one cleans the bathroom, not a bathroom
_TAKEN_BARE = {"eat", "drink", "buy", "cook", "read", "write", "send", "sing", "tell", "visit"}


def subject(dice: Dice, asked: bool = False) -> Noun:
    """Who does it, a pronoun more often than not; nobody asks what he does himself."""
    if dice.chance(55):
        return dice.pick(_OTHERS if asked else PEOPLE)
    if dice.chance(5) and not asked:
        return and_i(dice.pick(NAMES) if dice.chance(50) else noun_phrase(dice.pick(KINDS["family"]), I))
    return person(dice)


def person(dice: Dice) -> NounPhrase:
    """Someone who is not a pronoun."""
    roll = dice.below(100)
    if roll < 35:
        return dice.pick(NAMES)
    if roll < 65:
        return relative(dice)
    if roll < 73:
        return noun_phrase(dice.pick(KINDS["acquaintance"]), owner(dice), dice.chance(25))
    if roll < 90:
        return noun_phrase(dice.pick(nouns("+person +person +job")), dice.pick(POINTED), plural=dice.chance(30))
    first, second = dice.pick(NAMES), dice.pick(NAMES)
    return both(first, second) if first is not second else first


def person_but(dice: Dice, who: Noun) -> NounPhrase:
    """Someone else, in Italian too: Maria does not call Maria, nor her aunt his aunt."""
    other = person(dice)
    while isinstance(who, NounPhrase) and (who.italian == other.italian or _named_in(who) & _named_in(other)):
        other = person(dice)
    return other


def _named_in(someone: Noun) -> set[str]:
    """The names that were said."""
    return _NAME_TEXTS & {text for text, _ in someone.english} if isinstance(someone, NounPhrase) else set()


def relative(dice: Dice) -> NounPhrase:
    """Someone of a family: my mother, their children, Anna's brother; nobody shares a husband."""
    roll, whose = dice.below(100), dice.pick(OWNERS)
    if roll < 10 and not whose.plural:
        spouse = "wife" if whose is HE else "husband" if whose is SHE else dice.pick(("wife", "husband"))
        return noun_phrase(NOUNS[spouse], whose)
    if roll < 25:
        return noun_phrase(dice.pick(KINDS["parents"]), whose)
    if roll < 35:
        return noun_phrase(dice.pick(KINDS["family"]), dice.pick(NAMES))
    noun = dice.pick(KINDS["family"])
    return noun_phrase(noun, whose, plural=roll < 45 and not whose.plural and noun.english not in {"mother", "father"})


def owner(dice: Dice, whom: Noun | None = None) -> Pronoun | NounPhrase:
    """Whose something is: most often `whom`'s own."""
    name = dice.pick(NAMES)
    if whom and (dice.chance(50) or _named_in(name) & _named_in(whom)):
        return own(whom)
    return name if dice.chance(20) else dice.pick(OWNERS)


def own(whom: Noun) -> Pronoun:
    """The pronoun for one who is already named; for `you two` it is mine, as `your` is tuo."""
    if isinstance(whom, Pronoun):
        return whom if whom is not YOU_TWO else I
    if whom.person == 1:
        return WE
    return THEY if whom.plural else SHE if whom.gender == "f" else HE


def other(dice: Dice, who: Noun) -> Pronoun:
    """A pronoun for someone else: nobody here sees himself."""
    return dice.pick([pronoun for pronoun in PEOPLE if pronoun.person != who.person or who.person == 3])


def company(dice: Dice, who: Noun) -> Phrase:
    """With someone else: with us, con noi; with my brother, con mio fratello."""
    if dice.chance(50):
        return with_pronoun("with", "con", other(dice, who))
    return prepositional("with", "con", person_but(dice, who))


def adjective(dice: Dice, noun: Lemma) -> Adjective | None:
    """Something to say of a noun, one time in four; doors are only said to be open, not called so."""
    fitting = () if noun.kind == "opening" or noun.english in _FIXED else describing(noun)
    return dice.pick(fitting) if fitting and dice.chance(25) else None


def thing(dice: Dice, noun: Lemma, who: Noun, sparse: bool = False) -> NounPhrase:
    """A noun as what someone does something to. `sparse` is for negations, where one does not count."""
    if noun.english in _FIXED or noun.kind in _GENERIC:
        return noun_phrase(noun, _FIXED.get(noun.english, "generic"))
    if noun.kind == "acquaintance":
        return noun_phrase(noun, owner(dice, who), dice.chance(25))
    if noun.kind == "pasta":
        return noun_phrase(noun, "the" if sparse else dice.pick(("the", "some")))
    described = adjective(dice, noun)
    if noun.is_mass:
        little: tuple[Determiner, ...] = ("the", "the", "some", "some", "this")
        return noun_phrase(noun, dice.pick(POINTED if sparse else little), adjective=described)
    if noun.kind in _OWNED and dice.chance(30):
        return noun_phrase(noun, owner(dice, who), noun.kind not in _ONE_AT_A_TIME and dice.chance(25), described)
    if noun.is_pair:
        return noun_phrase(noun, dice.pick(POINTED if sparse else (*POINTED, "some")), adjective=described)
    alone = sparse or noun.kind in _ONE_AT_A_TIME
    if alone or dice.chance(60):
        one = dice.pick(POINTED if noun.kind in _KNOWN and noun.english != "room" else _ONE)
        several = not alone and one != "a" and dice.chance(15)
        return noun_phrase(noun, one, several, described)
    if dice.chance(35):
        return noun_phrase(noun, 2 + dice.below(11 if noun.kind in {"produce", "dish"} else 4), adjective=described)
    if dice.chance(30):
        return noun_phrase(noun, "the", adjective=SAME) if dice.chance(40) else noun_phrase(noun, "another")
    return noun_phrase(noun, dice.pick(_SEVERAL), True, described)


def usual_thing(dice: Dice, verb: str, noun: Lemma, who: Noun) -> NounPhrase:
    """What a habit is about: I eat bread, I wash the car."""
    if noun.english in _FIXED or noun.kind in _GENERIC:
        return noun_phrase(noun, _FIXED.get(noun.english, "generic"))
    if verb in _TAKEN_BARE:
        return in_general(noun, "bare")
    several = dice.chance(25) and not noun.is_mass and noun.kind not in _ONE_AT_A_TIME
    return noun_phrase(noun, own(who) if noun.kind in _OWNED and dice.chance(40) else "the", several)


def in_general(noun: Lemma, determiner: Determiner = "generic") -> NounPhrase:
    """The noun for all there is of it: bread, apples, but pizza."""
    return noun_phrase(noun, determiner, plural=not noun.is_mass and noun.english not in {"pizza", "cake", "steak"})


def time_for(dice: Dice, tense: Tense, negated: bool = False) -> Phrase:
    """A time at which something in this tense can be, or not be: what did not happen did not happen an hour ago."""
    if tense == "past":
        return dice.pick(PAST if negated else PAST + AGO)
    return dice.pick({"future": FUTURE, "progressive": NOW}.get(tense, HABIT))


def hour(dice: Dice, first: int = 1, last: int = 12) -> tuple[int, int]:
    """An hour, and a minute that is mostly zero."""
    return first + dice.below(last - first + 1), dice.pick((0, 0, 0, 0, 30, 30, 15, 45, 10, 20, 40, 50, 5))


def maybe(dice: Dice, percent: int, *phrases: Phrase) -> tuple[Phrase, ...]:
    """The phrases, so many times in a hundred, or none."""
    return phrases if dice.chance(percent) else ()
