"""Noun phrases: a noun with its determiner and adjective, in both languages at once.

English puts all before the noun and agrees in nothing. Italian agrees in gender and number, puts most adjectives after
the noun, and says `il mio libro` but `mia madre`.
"""

from dataclasses import dataclass
from functools import cache
from typing import Literal

from regard.phrasebook import english, italian
from regard.phrasebook.adjectives import Adjective
from regard.phrasebook.italian import Gender
from regard.phrasebook.nouns import Noun
from regard.phrasebook.numbers import english_number, italian_number
from regard.phrasebook.pronouns import Pronoun
from regard.phrasebook.words import Phrase, Word, Words, under


@dataclass(frozen=True, eq=False)
class NounPhrase(Phrase):
    """A phrase that verbs and adjectives agree with, in number each language its own: everyone is, tutti sono."""

    gender: Gender = "m"
    plural: bool = False
    english_plural: bool = False
    person: int = 3
    dative: Words = ()  # how Italian says it after `a`, where that is not `a` and the phrase: a me e a Marco


# `bare` has no article in either language; `generic` has one in Italian only: I like bread, mi piace il pane
Determiner = Literal["the", "a", "this", "that", "some", "many", "few", "all", "another", "bare", "generic"]

_QUANTITY = {"many": "molto", "few": "poco"}


@cache
def noun_phrase(
    noun: Noun,
    determiner: Determiner | Pronoun | NounPhrase | int = "the",
    plural: bool = False,
    adjective: Adjective | None = None,
) -> NounPhrase:
    """A noun with its determiner: an article, a number, a possessor (a pronoun, or someone with a name).

    >>> from regard.phrasebook.nouns import NOUNS
    >>> from regard.phrasebook.words import spell
    >>> mirrors = noun_phrase(NOUNS["mirror"], "that", plural=True)
    >>> spell(mirrors.english), spell(mirrors.italian)
    ('Those mirrors', 'Quegli specchi')
    """
    plural = plural or noun.is_pair or isinstance(determiner, int) or determiner in _QUANTITY or determiner == "all"
    gender = noun.plural_gender if plural else noun.gender
    said = [Word(text, ("adjective",)) for text in (adjective.english.split() if adjective else ())]
    said += [Word(text, ("noun",)) for text in (noun.english_plural if plural else noun.english).split()]
    detto = _described(noun, gender, plural, adjective)
    before: Words
    prima: Words
    after: Words = ()
    if isinstance(determiner, int):
        before = tuple(Word(text, ("determiner",)) for text in english_number(determiner).split())
        prima = (Word(italian_number(determiner), ("determiner",)),)
    elif isinstance(determiner, Pronoun):
        before = (Word(determiner.possessive, ("determiner",)),)
        prima = _owned(determiner, noun, gender, plural, adjective)
    elif isinstance(determiner, NounPhrase):
        before = (*under("owner", determiner.english), Word("'s", ("of",)))
        prima = (Word(italian.definite(gender, plural, detto[0].text), ("noun",)),)
        after = italian.prepend(Word("di", ("of",)), under("owner", determiner.italian))
    else:
        before, prima = _determined(determiner, gender, plural, said[0].text, detto[0].text)
    return NounPhrase((*before, *said), (*prima, *detto, *after), gender, plural, plural)


def named(name: str, gender: Gender, in_italian: str = "") -> NounPhrase:
    """Someone or something by name."""
    return NounPhrase((Word(name, ("noun",)),), (Word(in_italian or name, ("noun",)),), gender)


def both(first: NounPhrase, second: NounPhrase) -> NounPhrase:
    """Two of them: feminine only if both are."""
    gender: Gender = "f" if first.gender == second.gender == "f" else "m"
    joined = first.under("first") + Phrase((Word("and", ("and",)),), (Word("e", ("and",)),)) + second.under("second")
    return NounPhrase(joined.english, joined.italian, gender, plural=True, english_plural=True)


def and_i(other: NounPhrase) -> NounPhrase:
    """Someone and I, who comes first in Italian: io e Marco, a me e a Marco."""
    other_one = other.under("other")
    said = (*other_one.english, Word("and", ("and",)), Word("I", ("I",)))
    detto = (Word("io", ("I",)), Word("e", ("and",)), *other_one.italian)
    to_other = italian.prepend(Word("a", other_one.italian[-1].means), other_one.italian)
    dative = (Word("a", ("I",)), Word("me", ("I",)), Word("e", ("and",)), *to_other)
    return NounPhrase(said, detto, "m", plural=True, english_plural=True, person=1, dative=dative)


def prepositional(in_english: str, in_italian: str, noun: Phrase) -> Phrase:
    """A preposition before a noun phrase: near the house, vicino alla casa."""
    said = tuple(Word(text, ("preposition",)) for text in in_english.split())
    return Phrase(said + noun.english, italian.prepend(Word(in_italian, ("preposition",)), noun.italian))


def agreeing(adjective: Adjective, subject: NounPhrase | Pronoun, degree: Phrase | None = None) -> Phrase:
    """What someone is: very tired, molto stanca."""
    form = italian.agree(adjective.italian, subject.gender, subject.plural)
    said = Phrase(tuple(Word(t, ("adjective",)) for t in adjective.english.split()), (Word(form, ("adjective",)),))
    return degree.under("degree") + said if degree else said


def _described(noun: Noun, gender: Gender, plural: bool, adjective: Adjective | None) -> list[Word]:
    """The Italian noun with its adjective before or after it."""
    words = [Word(text, ("noun",)) for text in (noun.italian_plural if plural else noun.italian).split()]
    if adjective is None:
        return words
    if adjective.goes_before:
        return [Word(italian.before_noun(adjective.italian, gender, plural, words[0].text), ("adjective",)), *words]
    return [*words, Word(italian.agree(adjective.italian, gender, plural), ("adjective",))]


def _owned(owner: Pronoun, noun: Noun, gender: Gender, plural: bool, adjective: Adjective | None) -> Words:
    """il mio, la loro; one relative alone does without the article: mia madre, but la loro madre, i miei fratelli."""
    possessive = Word(italian.possessive(owner.owner, gender, plural), ("determiner",))
    if noun.kind in {"family", "spouse"} and not plural and not adjective and owner.owner != "loro":
        return (possessive,)
    return (Word(italian.definite(gender, plural, possessive.text), ("determiner",)), possessive)


def _determined(determiner: str, gender: Gender, plural: bool, said: str, detto: str) -> tuple[Words, Words]:
    """The determiner in English before the word `said`, and in Italian before the word `detto`."""
    article = italian.definite(gender, plural, detto)
    match determiner:
        case "bare":
            return (), ()
        case "generic":
            return (), (Word(article, ("noun",)),)
        case "the":
            return _one("the", article)
        case "a":
            return _one(english.indefinite(said), italian.indefinite(gender, detto))
        case "some":
            return _one("some", italian.articulate("di", article) or "")
        case "this":
            return _one("these" if plural else "this", italian.this(gender, plural, detto))
        case "that":
            return _one("those" if plural else "that", italian.that(gender, plural, detto))
        case "all":
            every, tutti = _one("all", italian.agree("tutto", gender, plural))
            the, le = _one("the", article, "article")
            return every + the, tutti + le
        case "another":
            other = italian.agree("altro", gender, plural)
            another, un = _one("another", italian.indefinite(gender, other))
            return another, (*un, Word(other, ("determiner",)))
        case _:
            return _one(determiner, italian.agree(_QUANTITY[determiner], gender, plural))


def _one(in_english: str, in_italian: str, means: str = "determiner") -> tuple[Words, Words]:
    return (Word(in_english, (means,)),), (Word(in_italian, (means,)),)
