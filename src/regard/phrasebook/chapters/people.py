"""People and what they do to each other: pronouns before the verb, one or two of them."""

from dataclasses import replace

from regard.phrasebook.clause import A_LITTLE, A_LOT, ALREADY, NEVER, OFTEN, VERY_MUCH, YET, Clause, Noun, Tense
from regard.phrasebook.dice import Dice
from regard.phrasebook.draws import maybe, other, person_but, subject, thing, time_for
from regard.phrasebook.pronouns import IT, THEY, YOU, YOU_TWO
from regard.phrasebook.sentence import Sentence, ask, join, say, speak, tell
from regard.phrasebook.verbs import FEELINGS, GIVING, TO_PEOPLE
from regard.phrasebook.when_and_where import HOME, TOWN, places

_TO_PEOPLE, _FEELINGS, _GIVING = tuple(TO_PEOPLE.values()), tuple(FEELINGS.values()), tuple(GIVING.values())
_LASTING = {"help", "wait for", "look for", "listen to", "call", "thank", "greet"}
_INVITING = places("home restaurant cinema theatre bar seaside lake mountains beach country museum party")


def someone(dice: Dice, who: Noun) -> Noun:
    """Someone else, mostly a pronoun."""
    return other(dice, who) if dice.chance(70) else person_but(dice, who)


def meeting(dice: Dice) -> Sentence:
    """I saw her yesterday. They will not invite us. Are you waiting for me?"""
    asked, negated = dice.chance(25), dice.chance(20)
    verb, who = dice.pick(_TO_PEOPLE), subject(dice, asked)
    tense: Tense = dice.pick(("past", "past", "past", "future", "future", "progressive"))
    if tense == "progressive" and verb.english not in _LASTING:
        tense = "past"
    clause = Clause(who, verb, someone(dice, who), tense=tense)
    when = time_for(dice, tense, negated)
    if asked:
        return ask(replace(clause, after=maybe(dice, 30, when)))
    clause = replace(clause, negated=negated)
    if dice.chance(20) and tense != "progressive":
        return Sentence(join(when, say(clause)))
    return tell(replace(clause, after=maybe(dice, 40, when)))


def meeting_there(dice: Dice) -> Sentence:
    """Will you wait for me at home? She met us at the station. They invited him to the theatre."""
    asked = dice.chance(30)
    who, verb = subject(dice, asked), TO_PEOPLE[dice.pick(("wait for", "see", "meet", "invite", "find"))]
    there = dice.pick(_INVITING).to if verb.english == "invite" else dice.pick((*HOME, *TOWN)).at
    tense: Tense = dice.pick(("past", "future"))
    return speak(Clause(who, verb, someone(dice, who), tense=tense, after=(there,)), asked)


def have_met(dice: Dice) -> Sentence:
    """I have already called him. We have never met them."""
    who = subject(dice)
    clause = Clause(who, dice.pick(_TO_PEOPLE), other(dice, who), tense="perfect")
    adverb = dice.pick((ALREADY, YET, NEVER))
    return tell(replace(clause, adverb=adverb, negated=adverb is YET))


def feeling(dice: Dice) -> Sentence:
    """I love you very much. Do you know her? They do not understand us."""
    asked = dice.chance(20)
    verb, who = dice.pick((*_FEELINGS, *[FEELINGS["love"]] * 5)), subject(dice, asked)
    clause = Clause(who, verb, someone(dice, who))
    if verb.english == "love" and dice.chance(60):
        return speak(replace(clause, degree=dice.pick((VERY_MUCH, VERY_MUCH, A_LOT))), asked)
    return ask(clause) if asked else tell(replace(clause, negated=dice.chance(30)))


def calling_often(dice: Dice) -> Sentence:
    """She often calls me. We never see them. He helps us every day. I thank you very much."""
    asked = dice.chance(20)
    who = subject(dice, asked)
    verb = TO_PEOPLE[dice.pick(("call", "see", "help", "meet", "wait for", "thank", "invite"))]
    clause = Clause(who, verb, someone(dice, who))
    if verb.english == "thank":
        return tell(replace(clause, degree=dice.pick((A_LOT, VERY_MUCH)))) if not asked else ask(clause)
    if verb.english == "help" and dice.chance(40):
        return speak(replace(clause, degree=dice.pick((A_LOT, A_LITTLE))), asked)
    if dice.chance(50):
        return speak(replace(clause, adverb=OFTEN if asked else dice.pick((OFTEN, NEVER))), asked)
    return speak(replace(clause, after=(time_for(dice, "present"),)), asked)


def giving(dice: Dice) -> Sentence:
    """I gave her the book. They will send a letter to my mother. Did you show them the photos?"""
    asked, negated = dice.chance(25), dice.chance(15)
    verb, who = dice.pick(_GIVING), subject(dice, asked)
    tense: Tense = dice.pick(("past", "past", "past", "future", "future", "progressive"))
    # English explains things to people, but never people things
    receiver = person_but(dice, who) if verb.english == "explain" else someone(dice, who)
    uncounted = negated or receiver in (YOU, YOU_TWO)  # `I gave you two books` has two meanings
    clause = Clause(who, verb, thing(dice, dice.pick(verb.objects), who, uncounted), receiver, tense=tense)
    if asked:
        return ask(clause)
    return tell(replace(clause, negated=negated, after=maybe(dice, 30, time_for(dice, tense, negated))))


def giving_it(dice: Dice) -> Sentence:
    """I gave it to her. Will you show them to me? He has not sent it to us yet."""
    asked = dice.chance(22)
    verb = GIVING[dice.pick(("give", "send", "show", "lend", "bring", "sell", "explain"))]
    who = subject(dice, asked)
    tense: Tense = dice.pick(("past", "past", "future", "perfect"))
    clause = Clause(who, verb, dice.pick((IT, IT, THEY)), other(dice, who), tense=tense)
    if tense == "perfect":
        adverb = ALREADY if asked else dice.pick((ALREADY, YET))
        return speak(replace(clause, adverb=adverb, negated=adverb is YET), asked)
    negated = not asked and dice.chance(20)
    when = time_for(dice, tense, negated)
    return speak(replace(clause, after=maybe(dice, 40, when), negated=negated), asked)
