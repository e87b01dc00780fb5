"""Times and seasons: the clock, timetables, opening hours, the weather."""

from dataclasses import replace

from regard.phrasebook.adjectives import FIRST, LAST, NEXT, Adjective
from regard.phrasebook.clause import ALREADY, ALWAYS, NEVER, OFTEN, Clause, Tense
from regard.phrasebook.dice import Dice
from regard.phrasebook.draws import POINTED, hour, maybe, subject, time_for
from regard.phrasebook.noun_phrase import agreeing, noun_phrase, prepositional
from regard.phrasebook.nouns import nouns
from regard.phrasebook.numbers import MINUTES, clock
from regard.phrasebook.pronouns import IT
from regard.phrasebook.sentence import Sentence, ask, speak, tell
from regard.phrasebook.verbs import ACTIVITIES, BE, BE_MAKING, OF_THINGS, WEATHER
from regard.phrasebook.when_and_where import AWAY, CITIES, COUNTRIES, HABIT, SEASONS, TODAY, at_the_hour, places
from regard.phrasebook.words import Phrase, Word, phrase

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


def the_time(dice: Dice) -> Sentence:
    """It is one. It is already a quarter to five. What time is it?"""
    if dice.chance(3):
        return Sentence(phrase("what/1 time/2 is/3 it/3", "che/1 ore/2 sono/3"), "?")
    return Sentence(it_is(1 + dice.below(12), dice.pick(MINUTES), already=dice.chance(30)))


def it_is(number: int, minute: int = 0, already: bool = False) -> Phrase:
    """The time as it is told: sono le tre, but è l'una."""
    time = clock(number, minute).under("time")
    adverb = ALREADY if already else Phrase((), ())
    said = (Word("it", ("be",)), Word("is", ("be",)), *adverb.english, *time.english)
    return Phrase(said, (Word("è" if number == 1 else "sono", ("be",)), *adverb.italian, *time.italian))


def timetable(dice: Dice) -> Sentence:
    """The train leaves at ten past nine. When does the museum open? The last bus will arrive at eleven."""
    names, things = dice.pick(_WHEN_THEY)
    verb, noun = OF_THINGS[dice.pick(names)], dice.pick(things)
    tense: Tense = dice.pick(("present", "present", "past", "future"))
    what = noun_phrase(noun, dice.pick(POINTED), dice.chance(10))
    if verb.english in {"leave", "arrive"} and dice.chance(35):
        what = noun_phrase(noun, "the", adjective=dice.pick((FIRST, LAST, NEXT)))
    if dice.chance(20):
        return ask(Clause(what, verb, tense=tense, asking=dice.pick((phrase("when", "quando"), WHAT_TIME))))
    return tell(
        Clause(what, verb, tense=tense, after=(at_the_hour(*hour(dice)), *maybe(dice, 25, time_for(dice, tense))))
    )


def from_to(dice: Dice) -> Sentence:
    """I work from nine to five. The bank is open from eight to one. The shops are closed on Sundays."""
    asked = dice.chance(15)
    span = prepositional("from", "da", clock(7 + dice.below(4))).under("from")
    span += prepositional("to", "a", clock(1 + dice.below(7))).under("to")
    if dice.chance(60):
        verb = ACTIVITIES[dice.pick(("work", "study", "play tennis", "cook", "dance", "walk", "play cards"))]
        tense: Tense = dice.pick(("present", "past", "future"))
        clause = Clause(subject(dice, asked), verb, tense=tense)
        return speak(replace(clause, after=(span, *maybe(dice, 60, time_for(dice, tense)))), asked)
    what = noun_phrase(dice.pick(_OPENING), dice.pick(POINTED), dice.chance(20))
    if dice.chance(50):
        return speak(Clause(what, BE, after=(agreeing(OPEN, what), span)), asked)
    return speak(Clause(what, BE, after=(agreeing(dice.pick((OPEN, CLOSED)), what), dice.pick(_REGULARLY))), asked)


def weather(dice: Dice) -> Sentence:
    """It is raining. It will be cold tomorrow. It is very hot in Rome today. It often snows in Germany."""
    asked = dice.chance(20)
    where = maybe(dice, 65, dice.pick((*CITIES, *COUNTRIES, *AWAY, *places("city_centre"))).at)
    if dice.chance(50):
        how = dice.pick(_COLD_OR_HOT)
        if dice.chance(45):
            return speak(Clause(IT, BE_MAKING, tense="future", after=(how, *where, time_for(dice, "future"))), asked)
        negated = not asked and len(how.english) == 1 and dice.chance(25)
        return speak(Clause(IT, BE_MAKING, negated=negated, after=(how, *where, *maybe(dice, 40, TODAY))), asked)
    verb = WEATHER[dice.pick(tuple(WEATHER))]
    tense: Tense = dice.pick(("past", "future", "progressive", "present"))
    negated = not asked and dice.chance(20)
    if tense == "present":
        adverb = dice.pick((ALWAYS, OFTEN) if asked else (ALWAYS, OFTEN, NEVER))
        return speak(
            Clause(
                IT,
                verb,
                adverb=adverb,
                after=(*where, *maybe(dice, 40, WINTER if verb.english == "snow" else dice.pick(SEASONS))),
            ),
            asked,
        )
    when = () if tense == "progressive" else maybe(dice, 70, time_for(dice, tense, negated))
    return speak(Clause(IT, verb, tense=tense, negated=negated, after=(*where, *when)), asked)
