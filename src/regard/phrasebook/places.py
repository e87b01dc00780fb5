"""Sentences about places: where things are, where people go and live; about times, timetables and the weather.

Each function draws a sentence; its docstring has examples.
"""

from dataclasses import replace

from regard.phrasebook.clauses import (
    ALREADY,
    ALWAYS,
    NEVER,
    OFTEN,
    STILL,
    Clause,
    Sentence,
    Tense,
    as_question,
    as_sentence,
    as_statement,
    join,
    render,
)
from regard.phrasebook.noun_phrases import (
    AWAY,
    CITIES,
    CITY_NAMES,
    COUNTRIES,
    EXPERTS,
    HABIT,
    HOME,
    INDOORS,
    IT,
    NOW,
    OWNERS,
    PLACES,
    SEASONS,
    TODAY,
    TOWN,
    Determiner,
    NounPhrase,
    agreeing_adjective,
    at_the_hour,
    noun_phrase,
    places,
    prepositional,
)
from regard.phrasebook.nouns import FIRST, KINDS, LAST, NEXT, Adjective, Noun, nouns
from regard.phrasebook.phrases import MINUTES, GlossedWord, Phrase, clock, phrase
from regard.phrasebook.sampling import (
    POINTED,
    PortableRandom,
    random_company,
    random_hour,
    random_owner,
    random_subject,
    random_time,
    sometimes,
)
from regard.phrasebook.verbs import ACTIVITIES, BE, BE_MAKING, MOVING, OF_THINGS, STAYING, WEATHER

_LANDS = tuple(noun_phrase(country, "generic") for country in KINDS["country"])

# things, the preposition, and places
_SETTINGS = tuple(
    (nouns(things), english, italian, nouns(spots))
    for things, english, italian, spots in (
        ("+belonging +reading +tableware bread lamp", "on", "su", "table chair desk shelf bed sofa"),
        ("+belonging +reading gloves sunglasses", "in", "in", "bag backpack suitcase drawer box car"),
        ("+garment +pair suitcase", "in", "in", "wardrobe suitcase backpack drawer"),
        ("cheese milk beer water butter fruit salad fish meat", "in", "in", "fridge"),
        ("dog cat mouse rabbit spider ball shoes box", "under", "sotto", "table bed chair sofa desk"),
        ("dog cat mouse ball box suitcase spider", "behind", "dietro", "door sofa wardrobe shelf"),
        ("+building square park garden", "near", "vicino a", "+building park river square beach lake"),
        ("bank pharmacy hotel bus car bicycle shop cinema", "in front of", "davanti a", "+building park gate"),
        ("lamp chair table shelf mirror", "next to", "accanto a", "bed door window sofa wardrobe desk"),
        ("bank pharmacy restaurant museum school shop library", "opposite", "di fronte a", "+building park"),
    )
)
_KEPT = {"bag", "backpack", "suitcase", "car", "desk", "bed", "drawer"}  # places that have owners


def setting(rng: PortableRandom, amount: Determiner | int | None = None) -> tuple[NounPhrase, Phrase]:
    """Return a thing, definite or in an amount, and where it is."""
    things, english, italian, spots = rng.choice(_SETTINGS)
    noun, spot = rng.choice(things), rng.choice(spots)
    while noun is spot:
        spot = rng.choice(spots)
    place = noun_phrase(spot, rng.choice(OWNERS) if spot.english in _KEPT and rng.chance(40) else "the")
    where = prepositional(english, italian, place)
    if amount is not None:
        return noun_phrase(noun, "some" if noun.is_mass or noun.is_pair else amount), where
    whose = random_owner(rng) if _is_owned(noun) and rng.chance(40) else "the"
    return noun_phrase(noun, whose, rng.chance(25) and not noun.is_mass), where


def _is_owned(noun: Noun) -> bool:
    return noun.kind in {"belonging", "reading", "garment", "pair"} or noun.english in {"car", "dog", "cat", "bicycle"}


def where_things_are(rng: PortableRandom) -> Sentence:
    """My keys are on the table. Is the bank near the station?"""
    what, where = setting(rng)
    clause = Clause(what, BE, after=(where,))
    return as_question(clause) if rng.chance(20) else as_statement(replace(clause, negated=rng.chance(20)))


def there_is(rng: PortableRandom) -> Sentence:
    """There is a letter on the desk. Are there two cats under the bed?"""
    what, where = setting(rng, rng.choice(("a", "a", "a", "many", 2 + rng.randbelow(9))))
    return there_is_sentence(what, where, is_question=rng.chance(25))


def is_there_nearby(rng: PortableRandom) -> Sentence:
    """Is there a pharmacy near the hotel? There is another bank in the square."""
    noun = rng.choice(KINDS["building"])
    what = noun_phrase(noun, rng.choice(("a", "a", "another", 2 + rng.randbelow(3))))
    nearby = noun_phrase(rng.choice([other for other in KINDS["building"] if other is not noun]))
    where = prepositional("near", "vicino a", nearby)
    if rng.chance(30):
        where = rng.choice(places("square city_centre")).at
    return there_is_sentence(what, where, is_question=rng.chance(50))


def there_is_sentence(what: NounPhrase, where: Phrase, is_question: bool) -> Sentence:
    """Return a sentence with c'è or ci sono."""
    there, be = GlossedWord("there", ("there",)), GlossedWord("are" if what.plural else "is", ("be",))
    thing, place = what.with_role("what"), where.with_role("where")
    english_words = (be, there) if is_question else (there, be)
    ci, sono = ("ci", "sono") if what.plural else ("c'", "è")
    italian_words = (GlossedWord(ci, ("there",)), GlossedWord(sono, ("be",)))
    whole = Phrase(english_words + thing.english + place.english, italian_words + thing.italian + place.italian)
    return Sentence(whole, "?" if is_question else ".")


def where_people_are(rng: PortableRandom) -> Sentence:
    """Maria is at home. They will be at the station at eight. Are you still in Rome?"""
    is_question = rng.chance(22)
    clause = Clause(random_subject(rng, is_question), BE)
    place = rng.choice((*PLACES, *INDOORS)).at
    roll = rng.randbelow(100)
    if roll < 30:
        time = random_time(rng, "future") if rng.chance(60) else at_the_hour(*random_hour(rng))
        return as_sentence(replace(clause, tense="future", after=(place, time)), is_question)
    if roll < 50:
        return as_sentence(replace(clause, after=(place,), negated=not is_question), is_question)
    if roll < 70:
        adverb = rng.choice((ALWAYS, OFTEN, STILL) if is_question else (ALWAYS, OFTEN, STILL, NEVER))
        return as_sentence(replace(clause, adverb=adverb, after=(place,)), is_question)
    return as_sentence(replace(clause, after=(place, *sometimes(rng, 25, rng.choice((*NOW, TODAY))))), is_question)


def going(rng: PortableRandom) -> Sentence:
    """Maria went to the market yesterday. We will come back to Rome on Monday. I am going home."""
    is_question = rng.chance(22)
    who, negated = random_subject(rng, is_question), not is_question and rng.chance(12)
    verb = MOVING[rng.choice(("go", "go", "go", "come", "come back"))]
    tense: Tense = rng.choice(("past", "past", "past", "future", "future", "progressive"))
    to = rng.choice(EXPERTS) if verb.english == "go" and rng.chance(12) else rng.choice(PLACES).to
    clause = Clause(who, verb, tense=tense, after=(to, *sometimes(rng, 20, random_company(rng, who))), negated=negated)
    when = random_time(rng, tense, negated)
    if not is_question and tense != "progressive" and rng.chance(15):
        return Sentence(join(when, render(clause)))
    return as_sentence(replace(clause, after=(*clause.after, *sometimes(rng, 45, when))), is_question)


def going_often(rng: PortableRandom) -> Sentence:
    """We often go to the seaside. Do you go to work on Saturdays? She never goes to the theatre."""
    is_question = rng.chance(20)
    clause = Clause(random_subject(rng, is_question), MOVING["go"], after=(rng.choice((*TOWN, *AWAY, *HOME)).to,))
    if rng.chance(50):
        return as_sentence(
            replace(clause, adverb=rng.choice((ALWAYS, OFTEN) if is_question else (ALWAYS, OFTEN, NEVER))), is_question
        )
    return as_sentence(replace(clause, after=(*clause.after, random_time(rng, "present"))), is_question)


def arriving(rng: PortableRandom) -> Sentence:
    """The girls arrived in Rome at seven. My uncle will leave for Spain tomorrow. They came back from France."""
    is_question = rng.chance(22)
    who, negated = random_subject(rng, is_question), not is_question and rng.chance(12)
    tense: Tense = rng.choice(("past", "past", "future"))
    name, where = rng.choice((
        ("arrive", rng.choice((*CITIES, *COUNTRIES, *places("station airport home school"))).at),
        ("leave", prepositional("for", "per", rng.choice((*CITY_NAMES, *_LANDS)))),
        ("come back", prepositional("from", "da", rng.choice((*CITY_NAMES, *_LANDS)))),
    ))  # fmt: skip
    when = at_the_hour(*random_hour(rng)) if rng.chance(40) else random_time(rng, tense, negated)
    after = (where, *sometimes(rng, 65, when))
    return as_sentence(Clause(who, MOVING[name], tense=tense, after=after, negated=negated), is_question)


def living(rng: PortableRandom) -> Sentence:
    """Our friends live in Rome. She was born in Florence. We stayed at home last night."""
    is_question = rng.chance(22)
    who, negated = random_subject(rng, is_question), not is_question and rng.chance(18)
    roll = rng.randbelow(100)
    if roll < 40:
        where = rng.choice((*CITIES, *COUNTRIES, *places("mountains country city_centre"))).at
        still = STILL if not negated and rng.chance(30) else None
        return as_sentence(Clause(who, STAYING["live"], adverb=still, negated=negated, after=(where,)), is_question)
    if roll < 60:
        where = rng.choice((*CITIES, *COUNTRIES)).at
        return as_sentence(Clause(who, STAYING["be born"], tense="past", negated=negated, after=(where,)), is_question)
    tense: Tense = "past" if roll < 70 else rng.choice(("past", "past", "future"))
    if roll < 70:
        verb, where = STAYING["fall"], rng.choice((*INDOORS, *places("home square school"))).at
    else:
        verb, where = STAYING["stay"], rng.choice(PLACES).at
    extra = random_time(rng, tense, negated) if roll < 70 or rng.chance(60) else random_company(rng, who)
    return as_sentence(Clause(who, verb, tense=tense, negated=negated, after=(where, extra)), is_question)


WINTER = SEASONS[1]
OPEN, CLOSED = Adjective("open", "aperto"), Adjective("closed", "chiuso")
WHAT_TIME = phrase("at what time", "a che ora")
_COLD_OR_HOT = tuple(
    phrase(*words)
    for words in (("cold", "freddo"), ("hot", "caldo"), ("very cold", "molto freddo"), ("very hot", "molto caldo"))
)
_WHEN_THEY = (
    (("leave", "arrive"), nouns("train bus plane ship tram boat")),
    (("open", "close"), nouns("bank shop museum pharmacy library restaurant market castle supermarket zoo theatre")),
    (("begin", "end"), nouns("film lesson match concert show exam party")),
)
_OPENING = _WHEN_THEY[1][1]
_REGULARLY = tuple(when for when in HABIT if when.english[-1].text != "week")


def clock_times(rng: PortableRandom) -> Sentence:
    """It is one. It is already a quarter to five. What time is it?"""
    if rng.chance(3):
        return Sentence(phrase("what/1 time/2 is/3 it/3", "che/1 ore/2 sono/3"), "?")
    return Sentence(time_sentence(1 + rng.randbelow(12), rng.choice(MINUTES), already=rng.chance(30)))


def time_sentence(number: int, minute: int = 0, already: bool = False) -> Phrase:
    """Return a sentence for a time of day: sono le tre, but è l'una."""
    time = clock(number, minute).with_role("time")
    adverb = ALREADY if already else Phrase((), ())
    english_words = (GlossedWord("it", ("be",)), GlossedWord("is", ("be",)), *adverb.english, *time.english)
    return Phrase(english_words, (GlossedWord("è" if number == 1 else "sono", ("be",)), *adverb.italian, *time.italian))


def timetable(rng: PortableRandom) -> Sentence:
    """The train leaves at ten past nine. When does the museum open? The last bus will arrive at eleven."""
    names, things = rng.choice(_WHEN_THEY)
    verb, noun = OF_THINGS[rng.choice(names)], rng.choice(things)
    tense: Tense = rng.choice(("present", "present", "past", "future"))
    what = noun_phrase(noun, rng.choice(POINTED), rng.chance(10))
    if verb.english in {"leave", "arrive"} and rng.chance(35):
        what = noun_phrase(noun, "the", adjective=rng.choice((FIRST, LAST, NEXT)))
    if rng.chance(20):
        return as_question(Clause(what, verb, tense=tense, asking=rng.choice((phrase("when", "quando"), WHAT_TIME))))
    return as_statement(
        Clause(
            what,
            verb,
            tense=tense,
            after=(at_the_hour(*random_hour(rng)), *sometimes(rng, 25, random_time(rng, tense))),
        )
    )


def from_to(rng: PortableRandom) -> Sentence:
    """I work from nine to five. The bank is open from eight to one. The shops are closed on Sundays."""
    is_question = rng.chance(15)
    span = prepositional("from", "da", clock(7 + rng.randbelow(4))).with_role("from")
    span += prepositional("to", "a", clock(1 + rng.randbelow(7))).with_role("to")
    if rng.chance(60):
        verb = ACTIVITIES[rng.choice(("work", "study", "play tennis", "cook", "dance", "walk", "play cards"))]
        tense: Tense = rng.choice(("present", "past", "future"))
        clause = Clause(random_subject(rng, is_question), verb, tense=tense)
        return as_sentence(replace(clause, after=(span, *sometimes(rng, 60, random_time(rng, tense)))), is_question)
    what = noun_phrase(rng.choice(_OPENING), rng.choice(POINTED), rng.chance(20))
    if rng.chance(50):
        return as_sentence(Clause(what, BE, after=(agreeing_adjective(OPEN, what), span)), is_question)
    return as_sentence(
        Clause(what, BE, after=(agreeing_adjective(rng.choice((OPEN, CLOSED)), what), rng.choice(_REGULARLY))),
        is_question,
    )


def weather(rng: PortableRandom) -> Sentence:
    """It is raining. It will be cold tomorrow. It is very hot in Rome today. It often snows in Germany."""
    is_question = rng.chance(20)
    where = sometimes(rng, 65, rng.choice((*CITIES, *COUNTRIES, *AWAY, *places("city_centre"))).at)
    if rng.chance(50):
        how = rng.choice(_COLD_OR_HOT)
        if rng.chance(45):
            return as_sentence(
                Clause(IT, BE_MAKING, tense="future", after=(how, *where, random_time(rng, "future"))), is_question
            )
        negated = not is_question and len(how.english) == 1 and rng.chance(25)
        return as_sentence(
            Clause(IT, BE_MAKING, negated=negated, after=(how, *where, *sometimes(rng, 40, TODAY))), is_question
        )
    verb = WEATHER[rng.choice(tuple(WEATHER))]
    tense: Tense = rng.choice(("past", "future", "progressive", "present"))
    negated = not is_question and rng.chance(20)
    if tense == "present":
        adverb = rng.choice((ALWAYS, OFTEN) if is_question else (ALWAYS, OFTEN, NEVER))
        return as_sentence(
            Clause(
                IT,
                verb,
                adverb=adverb,
                after=(*where, *sometimes(rng, 40, WINTER if verb.english == "snow" else rng.choice(SEASONS))),
            ),
            is_question,
        )
    when = () if tense == "progressive" else sometimes(rng, 70, random_time(rng, tense, negated))
    return as_sentence(Clause(IT, verb, tense=tense, negated=negated, after=(*where, *when)), is_question)
