"""Doing things with things: transitive verbs in every tense, habits, states, nobody and nothing."""

from dataclasses import replace

from regard.phrasebook.clause import ALREADY, ALWAYS, EVER, JUST, NEVER, OFTEN, YET, Clause, Noun, Tense
from regard.phrasebook.dice import Dice
from regard.phrasebook.draws import POINTED, adjective, maybe, subject, thing, time_for, usual_thing
from regard.phrasebook.noun_phrase import Determiner, NounPhrase, noun_phrase
from regard.phrasebook.nouns import nouns
from regard.phrasebook.sentence import Sentence, ask, join, say, speak, tell
from regard.phrasebook.verbs import ACTIONS, HAVE, STATES, Verb, some_of
from regard.phrasebook.words import Word

NOBODY = NounPhrase((Word("nobody", ("noun",)),), (Word("nessuno", ("noun",)),))
EVERYONE = NounPhrase((Word("everyone", ("noun",)),), (Word("tutti", ("noun",)),), plural=True)
WHO = NounPhrase((Word("who", ("noun",)),), (Word("chi", ("noun",)),))
ANYONE = NounPhrase((Word("anyone", ("noun",)),), (Word("nessuno", ("noun",)),))
ANYTHING = NounPhrase((Word("anything", ("noun",)),), (Word("niente", ("noun",)),))

MISHAPS = {"lose", "forget", "break", "miss"}  # nobody plans these
_SUDDEN = {*MISHAPS, "find", "see", "take", "buy"}  # over before one can say `I am`
_ACTIONS, _STATES = tuple(ACTIONS.values()), tuple(STATES.values())
_USUAL = some_of(
    ACTIONS,
    """
    eat eat cook order prepare drink drink buy read write watch listen_to open close clean wash use take study learn
    teach visit sing play answer talk_about think_about drive send tell pay look_for
""",
)


def tense_for(dice: Dice, verb: Verb) -> Tense:
    """A tense in which the verb makes sense."""
    tense: Tense = dice.pick(("past", "past", "past", "progressive", "progressive", "future", "future"))
    if verb.english in MISHAPS or (verb.english in _SUDDEN and tense == "progressive"):
        return "past"
    return tense


def actions(dice: Dice) -> Sentence:
    """She bought a red hat yesterday. We are not washing the car. Will you read this book?"""
    asked, negated = dice.chance(22), dice.chance(18)
    verb, who = dice.pick(_ACTIONS), subject(dice, asked)
    tense = tense_for(dice, verb)
    what, when = thing(dice, dice.pick(verb.objects), who, sparse=negated), time_for(dice, tense, negated)
    clause = Clause(who, verb, what, tense=tense)
    if asked:
        return ask(replace(clause, after=maybe(dice, 30, when)))
    clause = replace(clause, negated=negated)
    if dice.chance(15) and tense != "progressive":
        return Sentence(join(when, say(clause)))
    return tell(replace(clause, after=maybe(dice, 40, when)))


def achievements(dice: Dice) -> Sentence:
    """I have already read this book. We have not paid the bill yet. Have you ever seen the sea?"""
    roll = dice.below(100)
    verb, who = dice.pick(_ACTIONS), subject(dice, asked=roll >= 85)
    clause = Clause(who, verb, thing(dice, dice.pick(verb.objects), who, sparse=roll >= 40), tense="perfect")
    if roll < 25:
        return tell(replace(clause, adverb=ALREADY))
    if roll < 40:
        return tell(replace(clause, adverb=JUST))
    if roll < 65:
        return tell(replace(clause, adverb=YET, negated=True))
    if roll < 85:
        return tell(replace(clause, adverb=NEVER))
    return ask(replace(clause, adverb=EVER))


def habits(dice: Dice) -> Sentence:
    """She never drinks wine. I wash the car on Sundays. Do they always order pizza?"""
    roll = dice.below(100)
    verb, who = dice.pick(_USUAL), subject(dice, asked=roll < 20)
    clause = Clause(who, verb, usual_thing(dice, verb.english, dice.pick(verb.objects), who))
    when = time_for(dice, "present")
    if roll < 20:
        if dice.chance(30):
            return ask(replace(clause, adverb=dice.pick((ALWAYS, OFTEN))))
        return ask(replace(clause, after=maybe(dice, 60, when)))
    if roll < 35:
        return tell(replace(clause, negated=True, after=maybe(dice, 50, when)))
    if roll < 65:
        return tell(replace(clause, adverb=dice.pick((ALWAYS, OFTEN, NEVER))))
    return tell(replace(clause, after=(when,)))


def states(dice: Dice) -> Sentence:
    """I know that boy. Do you speak Italian? My brother needs the car."""
    asked, negated = dice.chance(22), dice.chance(25)
    verb, who = dice.pick(_STATES), subject(dice, asked)
    clause = Clause(who, verb, _stated(dice, verb, who, negated))
    if verb.english == "prefer":
        return speak(clause, asked)
    if verb.english == "wear":
        return speak(replace(clause, adverb=dice.pick((ALWAYS, OFTEN) if asked else (ALWAYS, OFTEN, NEVER))), asked)
    return ask(clause) if asked else tell(replace(clause, negated=negated))


def _stated(dice: Dice, verb: Verb, who: Noun, sparse: bool) -> NounPhrase:
    noun = dice.pick(verb.objects)
    if verb.english == "speak":
        return noun_phrase(noun, "bare")
    if verb.english == "prefer" and dice.chance(70):
        return noun_phrase(noun, "generic", plural=noun.kind == "produce")
    if verb.english in {"know", "remember", "understand"} and noun.kind not in {"acquaintance", "language"}:
        return noun_phrase(noun, dice.pick(POINTED), dice.chance(20), adjective(dice, noun))
    return thing(dice, noun, who, sparse or verb.english == "wear")


def owning(dice: Dice) -> Sentence:
    """I have two brothers. Does she have a bicycle? We do not have a garden. They have few friends."""
    asked = dice.chance(30)
    who, noun = subject(dice, asked), dice.pick(_HAD)
    if not asked and noun.kind != "matter" and dice.chance(25):
        return tell(Clause(who, HAVE, noun_phrase(noun, "a"), negated=True))
    some: Determiner = "many" if asked else dice.pick(("many", "few"))
    amount: Determiner | int = dice.pick(("a", "a", some, 2 + dice.below(4), 2 + dice.below(4)))
    return speak(Clause(who, HAVE, noun_phrase(noun, amount)), asked)


_HAD = nouns("""
    brother sister son daughter cousin uncle aunt friend neighbour dog cat horse rabbit house garden car bicycle boat
    computer dictionary umbrella backpack suitcase key idea problem question guitar mirror wardrobe hat coat scarf
    secret photo colleague exam lesson donkey shop apartment squirrel toy book ring
""")


def nobody(dice: Dice) -> Sentence:
    """I did not see anyone. Nobody speaks French. Everyone drank some wine. Who broke the glass?"""
    if dice.chance(40):
        return _nothing(dice)
    who = dice.pick((NOBODY, NOBODY, EVERYONE, WHO, WHO))
    if dice.chance(35):
        verb = dice.pick(_STATES)
        clause = Clause(who, verb, _stated(dice, verb, who, sparse=True))
    else:
        verb = dice.pick(_ACTIONS)
        tense: Tense = "past" if verb.english in MISHAPS else dice.pick(("past", "past", "future"))
        clause = Clause(who, verb, thing(dice, dice.pick(verb.objects), who, sparse=True), tense=tense)
    return Sentence(say(clause), "?" if who is WHO else ".")


def _nothing(dice: Dice) -> Sentence:
    what = ANYTHING if dice.chance(60) else ANYONE
    verb = dice.pick(_WITH_ANYTHING if what is ANYTHING else _WITH_ANYONE)
    tense: Tense = "past" if verb.english in MISHAPS else dice.pick(("past", "past", "future", "present"))
    when = maybe(dice, 100 if tense == "present" else 50, time_for(dice, tense, negated=True))
    return tell(Clause(subject(dice), verb, what, tense=tense, negated=True, after=when))


_WITH_ANYTHING = some_of(ACTIONS, "eat cook order drink buy sell read write find lose see")
_WITH_ANYONE = some_of(ACTIONS, "see look_for find listen_to")
