"""Personal pronouns, noun phrases (nouns with determiners and adjectives), and phrases of time and place.

Italian drops subject pronouns, because the verb's ending expresses them, and puts object pronouns before the verb.
`you` is tu, `you two` is voi. Speakers and groups of unknown gender are masculine, as in Italian grammar, and so is an
`it` that refers to no noun.

English puts determiners and adjectives before the noun, without agreement. Italian agrees in gender and number, puts
most adjectives after the noun, and has `il mio libro` but `mia madre`.

Phrases of time and place follow the verb in both languages. English says `at the bank`, Italian `in banca`;
`at the station` is `alla stazione`. No rule says which.
"""

from dataclasses import dataclass
from functools import cache
from typing import Literal

from regard.phrasebook import english, italian
from regard.phrasebook.italian import Gender
from regard.phrasebook.nouns import KINDS, Adjective, Noun
from regard.phrasebook.phrases import (
    GlossedWord,
    Phrase,
    Words,
    clock,
    english_number,
    italian_number,
    phrase,
    with_role,
)


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


def _read_phrases(table: str) -> tuple[Phrase, ...]:
    entries = (entry.split("=") for entry in table.split(";"))
    return tuple(phrase(english.strip(), italian.strip()) for english, italian in entries)


DAYS = (
    ("Monday", "lunedì"), ("Tuesday", "martedì"), ("Wednesday", "mercoledì"), ("Thursday", "giovedì"),
    ("Friday", "venerdì"), ("Saturday", "sabato"), ("Sunday", "domenica"),
)  # fmt: skip

_GENDERED_DAYS = tuple((english, italian, "la" if italian == "domenica" else "il") for english, italian in DAYS)

PAST = (
    *_read_phrases("""
        yesterday = ieri; this morning = stamattina; last night = ieri sera; last/2 week/1 = la/1 settimana/1 scorsa/2;
        last/2 month/1 = il/1 mese/1 scorso/2; last/2 year/1 = l'/1 anno/1 scorso/2;
        last/2 summer/1 = l'/1 estate/1 scorsa/2"""),
    *(phrase(f"last/2 {en}/1", f"{it}/1 scors{'a' if the == 'la' else 'o'}/2") for en, it, the in _GENDERED_DAYS),
)
JUST_NOW = PAST[:3]  # for events without lasting effect: I got dressed this morning, not last year
TODAY = phrase("today", "oggi")
AGO = _read_phrases("two days ago = due giorni fa; an hour ago = un' ora fa; three weeks ago = tre settimane fa")
FUTURE = (
    *_read_phrases("""
        tomorrow = domani; tonight = stasera; tomorrow morning = domani mattina; tomorrow evening = domani sera;
        next/2 week/1 = la/1 settimana/1 prossima/2; next/2 month/1 = il/1 mese/1 prossimo/2;
        next/2 year/1 = l'/1 anno/1 prossimo/2; in two days = tra due giorni; in an hour = tra un' ora;
        soon = presto"""),
    *(phrase(f"on/1 {en}/1", f"{it}/1") for en, it, _ in _GENDERED_DAYS),
)
SOON = (TODAY, TODAY, *FUTURE[:4], *FUTURE[9:])  # for wishes and obligations
SEASONS = _read_phrases("in summer = in estate; in winter = in inverno")
HABIT = (
    *_read_phrases("""
        every day = ogni giorno; every morning = ogni mattina; every evening = ogni sera; every week = ogni settimana;
        in/1 the/1 evening/2 = la/1 sera/2; in/1 the/1 morning/2 = la/1 mattina/2"""),
    *SEASONS,
    *(phrase(f"on/1 {en}s/2", f"{the}/1 {it}/2") for en, it, the in _GENDERED_DAYS),
)
NOW = _read_phrases("now = adesso; right/1 now/1 = adesso/1")


def at_the_hour(hour: int, minute: int = 0) -> Phrase:
    """Return a time of day as an adverbial: at half past seven, alle sette e mezza."""
    return prepositional("at", "a", clock(hour, minute))


@dataclass(frozen=True)
class Location:
    """A place as location (at home) and as destination (home)."""

    at: Phrase
    to: Phrase


def _location_phrase(english: str, italian: str) -> Phrase:
    """Return a preposition and a place; `the` is aligned with the Italian article, or else with the noun."""
    preposition, *rest = english.split()
    first, *others = italian.split()
    has_article = first not in {"a", "in", "da", "per"}
    english_words = [GlossedWord(preposition, ("at",))]
    english_words += [GlossedWord(text, ("at",) if text == "the" and has_article else ("place",)) for text in rest]
    return Phrase(
        tuple(english_words), (GlossedWord(first, ("at",)), *(GlossedWord(text, ("place",)) for text in others))
    )


def _read_locations(table: str) -> dict[str, Location]:
    """Return places by name; the Italian destination follows `>` if it differs from the location."""
    places = {}
    for entry in table.split(";"):
        english, italian = (side.strip() for side in entry.split("="))
        at, _, to = (part.strip() for part in italian.partition(">"))
        _, name = english.split(" ", 1)
        places[name.removeprefix("the ")] = Location(
            _location_phrase(english, at), _location_phrase(f"to {name}", to or at)
        )
    return places


_HOME = {"home": Location(_location_phrase("at home", "a casa"), phrase("home", "a casa"))}
_TOWN = _read_locations("""
    at school = a scuola; at work = al lavoro; at the station = alla stazione; at the airport = all' aeroporto;
    at the market = al mercato; at the supermarket = al supermercato; at the restaurant = al ristorante;
    at the museum = al museo; at the cinema = al cinema; at the theatre = a teatro; at the bar = al bar;
    in the square = in piazza; in the city centre = in centro; at the office = in ufficio; at the bank = in banca;
    at the library = in biblioteca; at the pharmacy = in farmacia; at the pool = in piscina; at the gym = in palestra;
    at the stadium = allo stadio; at the zoo = allo zoo; at the university = all' università;
    at the post office = alla posta; in the park = nel parco > al parco; at the hotel = in albergo;
    in church = in chiesa; at the party = alla festa
""")
_AWAY = _read_locations("""
    at the seaside = al mare; in the mountains = in montagna; in the country = in campagna; at the lake = al lago;
    at the beach = in spiaggia
""")
_INDOORS = _read_locations("""
    in the kitchen = in cucina; in the bathroom = in bagno; in the garden = in giardino;
    in the living room = in soggiorno; in the bedroom = in camera
""")
_CITIES = """
    Rome Roma; Milan Milano; Florence Firenze; Venice Venezia; Naples Napoli; Turin Torino; London Londra; Paris Parigi;
    Madrid Madrid; Athens Atene"""
CITY_NAMES = tuple(proper_name(english, "f", italian) for english, italian in map(str.split, _CITIES.split(";")))
CITIES = tuple(Location(prepositional("in", "a", city), prepositional("to", "a", city)) for city in CITY_NAMES)
COUNTRY_NAMES = tuple(noun_phrase(country, "bare") for country in KINDS["country"])
COUNTRIES = tuple(Location(prepositional("in", "in", c), prepositional("to", "in", c)) for c in COUNTRY_NAMES)
_NAMED = _HOME | _TOWN | _AWAY | _INDOORS
HOME, TOWN, AWAY, INDOORS = (tuple(places.values()) for places in (_HOME, _TOWN, _AWAY, _INDOORS))
PLACES = (*HOME, *TOWN, *AWAY, *CITIES, *COUNTRIES)


def places(names: str) -> tuple[Location, ...]:
    """Return places by name: `places("home bar city_centre")`."""
    return tuple(_NAMED[name.replace("_", " ")] for name in names.split())


EXPERTS = (
    _location_phrase("to the doctor", "dal medico"),
    _location_phrase("to the dentist", "dal dentista"),
    _location_phrase("to the psychologist", "dallo psicologo"),
)
