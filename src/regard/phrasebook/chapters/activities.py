"""What people and animals do without doing it to anything, and where; the day from waking to sleep."""

from dataclasses import replace

from regard.phrasebook.clause import ALWAYS, NEVER, OFTEN, Clause, Tense
from regard.phrasebook.dice import Dice
from regard.phrasebook.draws import POINTED, company, hour, maybe, subject, time_for
from regard.phrasebook.noun_phrase import noun_phrase, prepositional
from regard.phrasebook.nouns import KINDS, nouns
from regard.phrasebook.pronouns import OWNERS
from regard.phrasebook.sentence import Sentence, speak, tell
from regard.phrasebook.verbs import ACTIVITIES, ONESELF
from regard.phrasebook.when_and_where import CITIES, COUNTRIES, JUST_NOW, at_the_hour, places

_ANYWHERE = places("home kitchen garden living_room park square")
_WHERE = {
    verb: places(where)
    for verb, where in {
        "work": "home market supermarket restaurant museum bar office bank library pharmacy hotel university",
        "sleep": "home hotel bedroom living_room",
        "swim": "seaside lake pool",
        "run": "park beach mountains",
        "walk": "park city_centre mountains country",
        "study": "home library university kitchen",
        "drive": "city_centre mountains",
        "dance": "garden square beach party",
        "cook": "home",
        "paint": "garden home",
        "smoke": "garden square home",
        "travel": "mountains",
        "eat": "home restaurant bar kitchen garden office",
        "have lunch": "home restaurant bar office garden",
        "have dinner": "home restaurant hotel garden",
        "have breakfast": "home bar hotel kitchen garden",
        "have a shower": "home gym",
        "go shopping": "market supermarket",
        "take a walk": "park city_centre country mountains",
        "play football": "park garden beach",
        "play tennis": "park",
        "play cards": "home bar garden kitchen",
    }.items()
} | {"travel": COUNTRIES}
_WHERE_ONESELF = {
    "have fun": places("seaside lake beach zoo theatre cinema party"),
    "get bored": places("theatre cinema museum home school party"),
    "relax": places("home seaside lake garden country mountains"),
    "rest": places("home bedroom garden seaside"),
    "stop": places("bar station square market"),
    "sit down": places("garden kitchen park"),
    "get married": (*CITIES, *COUNTRIES, *places("church")),
    "get lost": (*CITIES, *places("city_centre mountains airport")),
}
_BY_THE_CLOCK = {"wake up", "get up", "fall asleep", "get dressed"}
_SUDDEN = {"get married", "get lost", "stop", "get angry"}
_FLEETING = {"get ready", "sit down", "stop", "get angry", "rest"}
_ALONE = {"sleep", "have a shower", "smile", "paint"}


def activities(dice: Dice) -> Sentence:
    """The children are playing football in the park. I worked at home yesterday. She never smokes."""
    asked = dice.chance(22)
    who, verb = subject(dice, asked), dice.pick(tuple(ACTIVITIES.values()))
    tense: Tense = dice.pick(("past", "past", "progressive", "progressive", "future", "present"))
    negated = not asked and dice.chance(15)
    after = maybe(dice, 55, dice.pick(_WHERE.get(verb.english, _ANYWHERE)).at)
    if verb.english not in _ALONE:
        after += maybe(dice, 20, company(dice, who))
    if tense == "present" and not negated and dice.chance(40):
        adverb = dice.pick((ALWAYS, OFTEN) if asked else (ALWAYS, OFTEN, NEVER))
        return speak(Clause(who, verb, adverb=adverb, after=after), asked)
    if tense == "present" or len(after) < 2:
        after += maybe(dice, 100 if tense == "present" else 40, time_for(dice, tense, negated))
    return speak(Clause(who, verb, tense=tense, after=after, negated=negated), asked)


def animals(dice: Dice) -> Sentence:
    """The cat is sleeping under the bed. My dog ran in the garden."""
    noun = dice.pick(KINDS["animal"])
    owned = noun.english in {"dog", "cat", "horse", "rabbit", "donkey"} and dice.chance(40)
    who = noun_phrase(noun, dice.pick(OWNERS) if owned else dice.pick(POINTED), dice.chance(30))
    at_home = noun.english in {"dog", "cat", "mouse", "rabbit", "spider"} and dice.chance(60)
    english, italian, spots = dice.pick(_ANIMALS_AT_HOME if at_home else _ANIMALS_OUTSIDE)
    where = prepositional(english, italian, noun_phrase(dice.pick(nouns(spots))))
    if dice.chance(25):
        where = dice.pick(places("kitchen living_room bedroom" if at_home else "garden park mountains country")).at
    tense: Tense = dice.pick(("progressive", "progressive", "past"))
    verb = ACTIVITIES[dice.pick(("sleep", "run", "eat", "sleep"))]
    return speak(Clause(who, verb, tense=tense, after=(where,)), dice.chance(22))


_ANIMALS_AT_HOME = (
    ("under", "sotto", "table bed sofa chair wardrobe"), ("behind", "dietro", "door sofa shelf"),
    ("near", "vicino a", "door window bed fridge"), ("on", "su", "table bed sofa chair"),
)  # fmt: skip
_ANIMALS_OUTSIDE = (
    ("under", "sotto", "bridge"), ("behind", "dietro", "house church castle"), ("near", "vicino a", "river lake gate"),
    ("in front of", "davanti a", "house church gate"),
)  # fmt: skip


def the_day(dice: Dice) -> Sentence:
    """I wake up at seven every day. Maria got up at half past eight. We will have fun at the lake."""
    asked = dice.chance(22)
    who, verb = subject(dice, asked), dice.pick(tuple(ONESELF.values()))
    negated = not asked and dice.chance(15)
    if verb.english in _BY_THE_CLOCK:
        return _by_the_clock(dice, Clause(who, verb, negated=negated), asked)
    tense: Tense = dice.pick(("past", "past", "future", "progressive"))
    if verb.english in _SUDDEN and tense == "progressive":
        tense = "past"
    where = _WHERE_ONESELF.get(verb.english, ())
    after = maybe(dice, 60, dice.pick(where).at) if where else ()
    if tense == "past" and verb.english in _FLEETING:
        after += maybe(dice, 40, dice.pick(JUST_NOW))
    elif tense != "progressive":
        after += maybe(dice, 40, time_for(dice, tense, negated))
    return speak(Clause(who, verb, tense=tense, after=after, negated=negated), asked)


def _by_the_clock(dice: Dice, clause: Clause, asked: bool) -> Sentence:
    tense: Tense = dice.pick(("present", "present", "past", "future"))
    after = maybe(dice, 75, at_the_hour(*hour(dice, 5, 11)))
    if tense == "present" and not clause.negated and not asked and dice.chance(40):
        return tell(replace(clause, adverb=dice.pick((ALWAYS, OFTEN, NEVER)), after=after))
    after += maybe(dice, 50 if after else 100, time_for(dice, tense, clause.negated))
    return speak(replace(clause, tense=tense, after=after), asked)
