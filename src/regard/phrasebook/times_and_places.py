"""Phrases of time and place, which follow the verb in both languages.

English says `at the bank`, Italian `in banca`; `at the station` is `alla stazione`. No rule says which.
"""

from dataclasses import dataclass

from regard.phrasebook.noun_phrases import noun_phrase, prepositional, proper_name
from regard.phrasebook.nouns import KINDS
from regard.phrasebook.phrases import GlossedWord, Phrase, clock, phrase


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
