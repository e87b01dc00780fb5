"""Sentences about actions, habits and states, about activities without an object, and about daily routines.

Each function draws a sentence; its docstring has examples.
"""

from dataclasses import replace

from regard.phrasebook.clauses import (
    ALREADY,
    ALWAYS,
    EVER,
    JUST,
    NEVER,
    OFTEN,
    YET,
    Clause,
    Nominal,
    Sentence,
    Tense,
    as_question,
    as_sentence,
    as_statement,
    join,
    render,
)
from regard.phrasebook.noun_phrases import (
    CITIES,
    COUNTRIES,
    JUST_NOW,
    OWNERS,
    Determiner,
    NounPhrase,
    at_the_hour,
    noun_phrase,
    places,
    prepositional,
)
from regard.phrasebook.nouns import KINDS, nouns
from regard.phrasebook.phrases import GlossedWord
from regard.phrasebook.sampling import (
    POINTED,
    PortableRandom,
    habitual_object,
    random_adjective,
    random_company,
    random_hour,
    random_object,
    random_subject,
    random_time,
    sometimes,
)
from regard.phrasebook.verbs import ACTIONS, ACTIVITIES, HAVE, ONESELF, STATES, Verb, select_verbs

NOBODY = NounPhrase((GlossedWord("nobody", ("noun",)),), (GlossedWord("nessuno", ("noun",)),))
EVERYONE = NounPhrase((GlossedWord("everyone", ("noun",)),), (GlossedWord("tutti", ("noun",)),), plural=True)
WHO = NounPhrase((GlossedWord("who", ("noun",)),), (GlossedWord("chi", ("noun",)),))
ANYONE = NounPhrase((GlossedWord("anyone", ("noun",)),), (GlossedWord("nessuno", ("noun",)),))
ANYTHING = NounPhrase((GlossedWord("anything", ("noun",)),), (GlossedWord("niente", ("noun",)),))

MISHAPS = {"lose", "forget", "break", "miss"}  # unplanned actions
_SUDDEN = {*MISHAPS, "find", "see", "take", "buy"}  # verbs without a progressive
_ACTIONS, _STATES = tuple(ACTIONS.values()), tuple(STATES.values())
_USUAL = select_verbs(
    ACTIONS,
    """
    eat eat cook order prepare drink drink buy read write watch listen_to open close clean wash use take study learn
    teach visit sing play answer talk_about think_about drive send tell pay look_for
""",
)


def tense_for(rng: PortableRandom, verb: Verb) -> Tense:
    """Return a tense that fits the verb."""
    tense: Tense = rng.choice(("past", "past", "past", "progressive", "progressive", "future", "future"))
    if verb.english in MISHAPS or (verb.english in _SUDDEN and tense == "progressive"):
        return "past"
    return tense


def actions(rng: PortableRandom) -> Sentence:
    """She bought a red hat yesterday. We are not washing the car. Will you read this book?"""
    is_question, negated = rng.chance(22), rng.chance(18)
    verb, who = rng.choice(_ACTIONS), random_subject(rng, is_question)
    tense = tense_for(rng, verb)
    what, when = random_object(rng, rng.choice(verb.objects), who, sparse=negated), random_time(rng, tense, negated)
    clause = Clause(who, verb, what, tense=tense)
    if is_question:
        return as_question(replace(clause, after=sometimes(rng, 30, when)))
    clause = replace(clause, negated=negated)
    if rng.chance(15) and tense != "progressive":
        return Sentence(join(when, render(clause)))
    return as_statement(replace(clause, after=sometimes(rng, 40, when)))


def achievements(rng: PortableRandom) -> Sentence:
    """I have already read this book. We have not paid the bill yet. Have you ever seen the sea?"""
    roll = rng.randbelow(100)
    verb, who = rng.choice(_ACTIONS), random_subject(rng, is_question=roll >= 85)
    clause = Clause(who, verb, random_object(rng, rng.choice(verb.objects), who, sparse=roll >= 40), tense="perfect")
    if roll < 25:
        return as_statement(replace(clause, adverb=ALREADY))
    if roll < 40:
        return as_statement(replace(clause, adverb=JUST))
    if roll < 65:
        return as_statement(replace(clause, adverb=YET, negated=True))
    if roll < 85:
        return as_statement(replace(clause, adverb=NEVER))
    return as_question(replace(clause, adverb=EVER))


def habits(rng: PortableRandom) -> Sentence:
    """She never drinks wine. I wash the car on Sundays. Do they always order pizza?"""
    roll = rng.randbelow(100)
    verb, who = rng.choice(_USUAL), random_subject(rng, is_question=roll < 20)
    clause = Clause(who, verb, habitual_object(rng, verb.english, rng.choice(verb.objects), who))
    when = random_time(rng, "present")
    if roll < 20:
        if rng.chance(30):
            return as_question(replace(clause, adverb=rng.choice((ALWAYS, OFTEN))))
        return as_question(replace(clause, after=sometimes(rng, 60, when)))
    if roll < 35:
        return as_statement(replace(clause, negated=True, after=sometimes(rng, 50, when)))
    if roll < 65:
        return as_statement(replace(clause, adverb=rng.choice((ALWAYS, OFTEN, NEVER))))
    return as_statement(replace(clause, after=(when,)))


def states(rng: PortableRandom) -> Sentence:
    """I know that boy. Do you speak Italian? My brother needs the car."""
    is_question, negated = rng.chance(22), rng.chance(25)
    verb, who = rng.choice(_STATES), random_subject(rng, is_question)
    clause = Clause(who, verb, _stated(rng, verb, who, negated))
    if verb.english == "prefer":
        return as_sentence(clause, is_question)
    if verb.english == "wear":
        return as_sentence(
            replace(clause, adverb=rng.choice((ALWAYS, OFTEN) if is_question else (ALWAYS, OFTEN, NEVER))), is_question
        )
    return as_question(clause) if is_question else as_statement(replace(clause, negated=negated))


def _stated(rng: PortableRandom, verb: Verb, who: Nominal, sparse: bool) -> NounPhrase:
    noun = rng.choice(verb.objects)
    if verb.english == "speak":
        return noun_phrase(noun, "bare")
    if verb.english == "prefer" and rng.chance(70):
        return noun_phrase(noun, "generic", plural=noun.kind == "produce")
    if verb.english in {"know", "remember", "understand"} and noun.kind not in {"acquaintance", "language"}:
        return noun_phrase(noun, rng.choice(POINTED), rng.chance(20), random_adjective(rng, noun))
    return random_object(rng, noun, who, sparse or verb.english == "wear")


def owning(rng: PortableRandom) -> Sentence:
    """I have two brothers. Does she have a bicycle? We do not have a garden. They have few friends."""
    is_question = rng.chance(30)
    who, noun = random_subject(rng, is_question), rng.choice(_HAD)
    if not is_question and noun.kind != "matter" and rng.chance(25):
        return as_statement(Clause(who, HAVE, noun_phrase(noun, "a"), negated=True))
    some: Determiner = "many" if is_question else rng.choice(("many", "few"))
    amount: Determiner | int = rng.choice(("a", "a", some, 2 + rng.randbelow(4), 2 + rng.randbelow(4)))
    return as_sentence(Clause(who, HAVE, noun_phrase(noun, amount)), is_question)


_HAD = nouns("""
    brother sister son daughter cousin uncle aunt friend neighbour dog cat horse rabbit house garden car bicycle boat
    computer dictionary umbrella backpack suitcase key idea problem question guitar mirror wardrobe hat coat scarf
    secret photo colleague exam lesson donkey shop apartment squirrel toy book ring
""")


def negative_pronouns(rng: PortableRandom) -> Sentence:
    """I did not see anyone. Nobody speaks French. Everyone drank some wine. Who broke the glass?"""
    if rng.chance(40):
        return _negative_objects(rng)
    who = rng.choice((NOBODY, NOBODY, EVERYONE, WHO, WHO))
    if rng.chance(35):
        verb = rng.choice(_STATES)
        clause = Clause(who, verb, _stated(rng, verb, who, sparse=True))
    else:
        verb = rng.choice(_ACTIONS)
        tense: Tense = "past" if verb.english in MISHAPS else rng.choice(("past", "past", "future"))
        clause = Clause(who, verb, random_object(rng, rng.choice(verb.objects), who, sparse=True), tense=tense)
    return Sentence(render(clause), "?" if who is WHO else ".")


def _negative_objects(rng: PortableRandom) -> Sentence:
    what = ANYTHING if rng.chance(60) else ANYONE
    verb = rng.choice(_WITH_ANYTHING if what is ANYTHING else _WITH_ANYONE)
    tense: Tense = "past" if verb.english in MISHAPS else rng.choice(("past", "past", "future", "present"))
    when = sometimes(rng, 100 if tense == "present" else 50, random_time(rng, tense, negated=True))
    return as_statement(Clause(random_subject(rng), verb, what, tense=tense, negated=True, after=when))


_WITH_ANYTHING = select_verbs(ACTIONS, "eat cook order drink buy sell read write find lose see")
_WITH_ANYONE = select_verbs(ACTIONS, "see look_for find listen_to")
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
_MOMENTARY = {"get married", "get lost", "stop", "get angry"}
_FLEETING = {"get ready", "sit down", "stop", "get angry", "rest"}
_ALONE = {"sleep", "have a shower", "smile", "paint"}


def activities(rng: PortableRandom) -> Sentence:
    """The children are playing football in the park. I worked at home yesterday. She never smokes."""
    is_question = rng.chance(22)
    who, verb = random_subject(rng, is_question), rng.choice(tuple(ACTIVITIES.values()))
    tense: Tense = rng.choice(("past", "past", "progressive", "progressive", "future", "present"))
    negated = not is_question and rng.chance(15)
    after = sometimes(rng, 55, rng.choice(_WHERE.get(verb.english, _ANYWHERE)).at)
    if verb.english not in _ALONE:
        after += sometimes(rng, 20, random_company(rng, who))
    if tense == "present" and not negated and rng.chance(40):
        adverb = rng.choice((ALWAYS, OFTEN) if is_question else (ALWAYS, OFTEN, NEVER))
        return as_sentence(Clause(who, verb, adverb=adverb, after=after), is_question)
    if tense == "present" or len(after) < 2:
        after += sometimes(rng, 100 if tense == "present" else 40, random_time(rng, tense, negated))
    return as_sentence(Clause(who, verb, tense=tense, after=after, negated=negated), is_question)


def animals(rng: PortableRandom) -> Sentence:
    """The cat is sleeping under the bed. My dog ran in the garden."""
    noun = rng.choice(KINDS["animal"])
    owned = noun.english in {"dog", "cat", "horse", "rabbit", "donkey"} and rng.chance(40)
    who = noun_phrase(noun, rng.choice(OWNERS) if owned else rng.choice(POINTED), rng.chance(30))
    at_home = noun.english in {"dog", "cat", "mouse", "rabbit", "spider"} and rng.chance(60)
    english, italian, spots = rng.choice(_ANIMALS_AT_HOME if at_home else _ANIMALS_OUTSIDE)
    where = prepositional(english, italian, noun_phrase(rng.choice(nouns(spots))))
    if rng.chance(25):
        where = rng.choice(places("kitchen living_room bedroom" if at_home else "garden park mountains country")).at
    tense: Tense = rng.choice(("progressive", "progressive", "past"))
    verb = ACTIVITIES[rng.choice(("sleep", "run", "eat", "sleep"))]
    return as_sentence(Clause(who, verb, tense=tense, after=(where,)), rng.chance(22))


_ANIMALS_AT_HOME = (
    ("under", "sotto", "table bed sofa chair wardrobe"), ("behind", "dietro", "door sofa shelf"),
    ("near", "vicino a", "door window bed fridge"), ("on", "su", "table bed sofa chair"),
)  # fmt: skip
_ANIMALS_OUTSIDE = (
    ("under", "sotto", "bridge"), ("behind", "dietro", "house church castle"), ("near", "vicino a", "river lake gate"),
    ("in front of", "davanti a", "house church gate"),
)  # fmt: skip


def daily_routine(rng: PortableRandom) -> Sentence:
    """I wake up at seven every day. Maria got up at half past eight. We will have fun at the lake."""
    is_question = rng.chance(22)
    who, verb = random_subject(rng, is_question), rng.choice(tuple(ONESELF.values()))
    negated = not is_question and rng.chance(15)
    if verb.english in _BY_THE_CLOCK:
        return _by_the_clock(rng, Clause(who, verb, negated=negated), is_question)
    tense: Tense = rng.choice(("past", "past", "future", "progressive"))
    if verb.english in _MOMENTARY and tense == "progressive":
        tense = "past"
    where = _WHERE_ONESELF.get(verb.english, ())
    after = sometimes(rng, 60, rng.choice(where).at) if where else ()
    if tense == "past" and verb.english in _FLEETING:
        after += sometimes(rng, 40, rng.choice(JUST_NOW))
    elif tense != "progressive":
        after += sometimes(rng, 40, random_time(rng, tense, negated))
    return as_sentence(Clause(who, verb, tense=tense, after=after, negated=negated), is_question)


def _by_the_clock(rng: PortableRandom, clause: Clause, is_question: bool) -> Sentence:
    tense: Tense = rng.choice(("present", "present", "past", "future"))
    after = sometimes(rng, 75, at_the_hour(*random_hour(rng, 5, 11)))
    if tense == "present" and not clause.negated and not is_question and rng.chance(40):
        return as_statement(replace(clause, adverb=rng.choice((ALWAYS, OFTEN, NEVER)), after=after))
    after += sometimes(rng, 50 if after else 100, random_time(rng, tense, clause.negated))
    return as_sentence(replace(clause, tense=tense, after=after), is_question)
