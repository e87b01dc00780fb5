"""Personal pronouns, and noun phrases: nouns with determiners and adjectives.

Italian drops subject pronouns, because the verb's ending expresses them, and puts object pronouns before the verb.
`you` is tu, `you two` is voi. Speakers and groups of unknown gender are masculine, as in Italian grammar, and so is an
`it` that refers to no noun.

English puts determiners and adjectives before the noun, without agreement. Italian agrees in gender and number, puts
most adjectives after the noun, and has `il mio libro` but `mia madre`.
"""

from dataclasses import dataclass
from functools import cache
from typing import Literal

from regard.phrasebook import english, italian
from regard.phrasebook.italian import Gender
from regard.phrasebook.nouns import Adjective, Noun
from regard.phrasebook.phrases import GlossedWord, Phrase, Words, english_number, italian_number, with_role


@dataclass(frozen=True, eq=False)
class Pronoun:
    """The forms of a pronoun in both languages: I, me, my; mi, mi, me, mio."""

    subject: str
    object: str
    possessive: str
    direct: str
    indirect: str
    stressed: str
    owner: str
    person: int
    plural: bool
    gender: Gender = "m"

    @property
    def english_plural(self) -> bool:
        """Whether the English verb is plural."""
        return self.plural


I = Pronoun("I", "me", "my", "mi", "mi", "me", "mio", 1, False)  # noqa: E741
YOU = Pronoun("you", "you", "your", "ti", "ti", "te", "tuo", 2, False)
HE = Pronoun("he", "him", "his", "lo", "gli", "lui", "suo", 3, False)
SHE = Pronoun("she", "her", "her", "la", "le", "lei", "suo", 3, False, "f")
WE = Pronoun("we", "us", "our", "ci", "ci", "noi", "nostro", 1, True)
YOU_TWO = Pronoun("you two", "you two", "", "vi", "vi", "voi", "", 2, True)
THEY = Pronoun("they", "them", "their", "li", "gli", "loro", "loro", 3, True)
IT = Pronoun("it", "it", "", "lo", "", "", "", 3, False)
IT_F = Pronoun("it", "it", "", "la", "", "", "", 3, False, "f")
THEM_F = Pronoun("they", "them", "", "le", "", "", "", 3, True, "f")

PEOPLE = (I, YOU, HE, SHE, WE, YOU_TWO, THEY)
OWNERS = (I, YOU, HE, SHE, WE, THEY)


def referring_pronoun(gender: Gender, plural: bool) -> Pronoun:
    """Return the pronoun that refers to a noun: la chiave … la; le mele … le."""
    if plural:
        return THEM_F if gender == "f" else THEY
    return IT_F if gender == "f" else IT


def reflexive(person: int, plural: bool) -> str:
    """Return the reflexive pronoun: mi, ti, si, ci, vi, si."""
    return ("mi", "ti", "si", "ci", "vi", "si")[person - 1 + 3 * plural]


def combine_clitics(indirect: str, direct: str) -> tuple[str, ...]:
    """Return two pronouns before one verb: me lo, te la, glieli.

    >>> combine_clitics("mi", "lo"), combine_clitics("le", "la")
    (('me', 'lo'), ('gliela',))
    """
    if indirect in {"gli", "le"}:
        return ("glie" + direct,)
    return (indirect[0] + "e", direct)


def with_pronoun(english: str, italian: str, pronoun: Pronoun) -> Phrase:
    """Return a preposition with a stressed pronoun: con me, per te."""
    return Phrase(
        (GlossedWord(english, ("preposition",)), *(GlossedWord(text, ("pronoun",)) for text in pronoun.object.split())),
        (GlossedWord(italian, ("preposition",)), GlossedWord(pronoun.stressed, ("pronoun",))),
    )


@dataclass(frozen=True, eq=False)
class NounPhrase(Phrase):
    """A phrase that verbs and adjectives agree with; the number may differ by language: everyone is, tutti sono."""

    gender: Gender = "m"
    plural: bool = False
    english_plural: bool = False
    person: int = 3
    dative: Words = ()  # Italian form after `a`, if irregular: a me e a Marco


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
    """Return a noun with its determiner: an article, a number, or a possessor (a pronoun or a name).

    >>> from regard.phrasebook.nouns import NOUNS
    >>> from regard.phrasebook.phrases import spell
    >>> mirrors = noun_phrase(NOUNS["mirror"], "that", plural=True)
    >>> spell(mirrors.english), spell(mirrors.italian)
    ('Those mirrors', 'Quegli specchi')
    """
    plural = plural or noun.is_pair or isinstance(determiner, int) or determiner in _QUANTITY or determiner == "all"
    gender = noun.plural_gender if plural else noun.gender
    english_words = [GlossedWord(text, ("adjective",)) for text in (adjective.english.split() if adjective else ())]
    english_words += [
        GlossedWord(text, ("noun",)) for text in (noun.english_plural if plural else noun.english).split()
    ]
    italian_words = _described(noun, gender, plural, adjective)
    before: Words
    italian_before: Words
    after: Words = ()
    if isinstance(determiner, int):
        before = tuple(GlossedWord(text, ("determiner",)) for text in english_number(determiner).split())
        italian_before = (GlossedWord(italian_number(determiner), ("determiner",)),)
    elif isinstance(determiner, Pronoun):
        before = (GlossedWord(determiner.possessive, ("determiner",)),)
        italian_before = _owned(determiner, noun, gender, plural, adjective)
    elif isinstance(determiner, NounPhrase):
        before = (*with_role("owner", determiner.english), GlossedWord("'s", ("of",)))
        italian_before = (GlossedWord(italian.definite(gender, plural, italian_words[0].text), ("noun",)),)
        after = italian.prepend(GlossedWord("di", ("of",)), with_role("owner", determiner.italian))
    else:
        before, italian_before = _determined(determiner, gender, plural, english_words[0].text, italian_words[0].text)
    return NounPhrase((*before, *english_words), (*italian_before, *italian_words, *after), gender, plural, plural)


def proper_name(name: str, gender: Gender, in_italian: str = "") -> NounPhrase:
    """Return a proper name."""
    return NounPhrase((GlossedWord(name, ("noun",)),), (GlossedWord(in_italian or name, ("noun",)),), gender)


def joined_by_and(first: NounPhrase, second: NounPhrase) -> NounPhrase:
    """Return two noun phrases joined by `and`: feminine only if both are."""
    gender: Gender = "f" if first.gender == second.gender == "f" else "m"
    joined = (
        first.with_role("first")
        + Phrase((GlossedWord("and", ("and",)),), (GlossedWord("e", ("and",)),))
        + second.with_role("second")
    )
    return NounPhrase(joined.english, joined.italian, gender, plural=True, english_plural=True)


def joined_with_i(other: NounPhrase) -> NounPhrase:
    """Return a noun phrase and `I`, which comes first in Italian: io e Marco, a me e a Marco."""
    other_one = other.with_role("other")
    english_words = (*other_one.english, GlossedWord("and", ("and",)), GlossedWord("I", ("I",)))
    italian_words = (GlossedWord("io", ("I",)), GlossedWord("e", ("and",)), *other_one.italian)
    to_other = italian.prepend(GlossedWord("a", other_one.italian[-1].glosses), other_one.italian)
    dative = (GlossedWord("a", ("I",)), GlossedWord("me", ("I",)), GlossedWord("e", ("and",)), *to_other)
    return NounPhrase(english_words, italian_words, "m", plural=True, english_plural=True, person=1, dative=dative)


def prepositional(in_english: str, in_italian: str, noun: Phrase) -> Phrase:
    """Return a noun phrase after a preposition: near the house, vicino alla casa."""
    english_words = tuple(GlossedWord(text, ("preposition",)) for text in in_english.split())
    return Phrase(
        english_words + noun.english, italian.prepend(GlossedWord(in_italian, ("preposition",)), noun.italian)
    )


def agreeing_adjective(adjective: Adjective, subject: NounPhrase | Pronoun, degree: Phrase | None = None) -> Phrase:
    """Return a predicative adjective that agrees with the subject: very tired, molto stanca."""
    form = italian.agree(adjective.italian, subject.gender, subject.plural)
    english_words = Phrase(
        tuple(GlossedWord(t, ("adjective",)) for t in adjective.english.split()), (GlossedWord(form, ("adjective",)),)
    )
    return degree.with_role("degree") + english_words if degree else english_words


def _described(noun: Noun, gender: Gender, plural: bool, adjective: Adjective | None) -> list[GlossedWord]:
    """Return the Italian noun with its adjective before or after it."""
    words = [GlossedWord(text, ("noun",)) for text in (noun.italian_plural if plural else noun.italian).split()]
    if adjective is None:
        return words
    if adjective.goes_before:
        return [
            GlossedWord(italian.before_noun(adjective.italian, gender, plural, words[0].text), ("adjective",)),
            *words,
        ]
    return [*words, GlossedWord(italian.agree(adjective.italian, gender, plural), ("adjective",))]


def _owned(owner: Pronoun, noun: Noun, gender: Gender, plural: bool, adjective: Adjective | None) -> Words:
    """Return article and possessive; singular relatives have no article: mia madre, la loro madre, i miei fratelli."""
    possessive = GlossedWord(italian.possessive(owner.owner, gender, plural), ("determiner",))
    if noun.kind in {"family", "spouse"} and not plural and not adjective and owner.owner != "loro":
        return (possessive,)
    return (GlossedWord(italian.definite(gender, plural, possessive.text), ("determiner",)), possessive)


def _determined(
    determiner: str, gender: Gender, plural: bool, english_word: str, italian_word: str
) -> tuple[Words, Words]:
    """Return the English determiner before `english_word`, and the Italian one before `italian_word`."""
    article = italian.definite(gender, plural, italian_word)
    match determiner:
        case "bare":
            return (), ()
        case "generic":
            return (), (GlossedWord(article, ("noun",)),)
        case "the":
            return _determiner_words("the", article)
        case "a":
            return _determiner_words(english.indefinite(english_word), italian.indefinite(gender, italian_word))
        case "some":
            return _determiner_words("some", italian.articulate("di", article) or "")
        case "this":
            return _determiner_words("these" if plural else "this", italian.this(gender, plural, italian_word))
        case "that":
            return _determiner_words("those" if plural else "that", italian.that(gender, plural, italian_word))
        case "all":
            every, tutti = _determiner_words("all", italian.agree("tutto", gender, plural))
            the, le = _determiner_words("the", article, "article")
            return every + the, tutti + le
        case "another":
            other = italian.agree("altro", gender, plural)
            another, un = _determiner_words("another", italian.indefinite(gender, other))
            return another, (*un, GlossedWord(other, ("determiner",)))
        case _:
            return _determiner_words(determiner, italian.agree(_QUANTITY[determiner], gender, plural))


def _determiner_words(in_english: str, in_italian: str, glosses: str = "determiner") -> tuple[Words, Words]:
    return (GlossedWord(in_english, (glosses,)),), (GlossedWord(in_italian, (glosses,)),)
