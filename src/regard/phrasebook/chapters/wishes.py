"""Wanting, being able, having to: a verb before an infinitive, and the pronouns before both."""

from dataclasses import replace

from regard.phrasebook.chapters.doing import MISHAPS
from regard.phrasebook.clause import Clause
from regard.phrasebook.dice import Dice
from regard.phrasebook.draws import company, hour, maybe, other, subject, thing
from regard.phrasebook.pronouns import IT, THEY, YOU
from regard.phrasebook.sentence import PLEASE, Sentence, join, say, speak
from regard.phrasebook.verbs import ACTIONS, ACTIVITIES, GIVING, MODALS, MOVING, ONESELF, TO_PEOPLE, Verb
from regard.phrasebook.when_and_where import PLACES, SOON, at_the_hour

_ACTIONS = tuple(verb for name, verb in ACTIONS.items() if name not in MISHAPS)
_TO_PEOPLE = tuple(TO_PEOPLE.values())
_WITH_IT = tuple(verb for verb in _ACTIONS if not verb.preposition and not verb.splits)
_GIVING = tuple(GIVING[name] for name in ("give", "send", "show", "lend", "bring", "write", "tell", "sell"))
_SKILLS = ("swim", "dance", "cook", "drive", "sing", "play tennis", "play cards", "play football", "paint")
_DONE_FREELY = tuple(verb for name, verb in ACTIVITIES.items() if name not in {"cry", "smile", "shout"})
_DONE_TO_ONESELF = ("wake up", "get up", "rest", "relax", "stop", "sit down", "get dressed", "have fun", "get ready")


def modal(dice: Dice, asked: bool, negated: bool) -> Verb:
    """`must` does not ask, and `have to` does not deny: `do not have to` is not `non devo`."""
    if negated:
        return MODALS[dice.pick(("can", "want to", "must"))]
    obligation = "have to" if asked else dice.pick(("must", "have to"))
    return MODALS[dice.pick(("can", "want to", "would like to", obligation))]


def wanting(dice: Dice) -> Sentence:
    """I have to wash the car. Can you open the window, please? We do not want to sell this house."""
    asked = dice.chance(30)
    verb, who, negated = dice.pick(_ACTIONS), subject(dice, asked), not asked and dice.chance(20)
    can = modal(dice, asked, negated)
    what = thing(dice, dice.pick(verb.objects), who, sparse=negated)
    clause = Clause(who, verb, what, modal=can, negated=negated, question=asked)
    if asked and who is YOU and can.english == "can" and dice.chance(50):
        return Sentence(join(say(clause), PLEASE), "?")
    return speak(replace(clause, after=() if asked or negated else maybe(dice, 25, dice.pick(SOON))), asked)


def wanting_you(dice: Dice) -> Sentence:
    """I want to see you. We cannot help them. Would you like to invite her? He has to give us the key."""
    asked = dice.chance(30)
    who, negated = subject(dice, asked), not asked and dice.chance(20)
    clause = Clause(who, dice.pick(_TO_PEOPLE), other(dice, who), modal=modal(dice, asked, negated), negated=negated)
    roll = dice.below(100)
    if roll < 25:
        verb = dice.pick(_WITH_IT)
        uncounted = all(noun.is_mass for noun in verb.objects)
        clause = replace(clause, verb=verb, object=IT if uncounted else dice.pick((IT, IT, THEY)))
    elif roll < 50:
        verb = dice.pick(_GIVING)
        what = thing(dice, dice.pick(verb.objects), who, sparse=True)
        clause = replace(clause, verb=verb, object=what, receiver=other(dice, who))
    return speak(replace(clause, after=() if negated else maybe(dice, 25, dice.pick(SOON))), asked)


def wanting_to_go(dice: Dice) -> Sentence:
    """Do you want to come to the seaside with us? I must go home. They would like to go to Paris."""
    asked = dice.chance(35)
    who, negated = subject(dice, asked), not asked and dice.chance(20)
    verb = MOVING[dice.pick(("go", "go", "come", "come back"))]
    extra = company(dice, who) if dice.chance(50) else dice.pick(SOON)
    after = (dice.pick(PLACES).to, *maybe(dice, 60, extra))
    return speak(Clause(who, verb, modal=modal(dice, asked, negated), after=after, negated=negated), asked)


def wanting_to_do(dice: Dice) -> Sentence:
    """You must study. Can we eat with you two? He knows how to swim. I want to get up at six."""
    asked = dice.chance(30)
    who, negated = subject(dice, asked), not asked and dice.chance(20)
    if dice.chance(20):
        return speak(Clause(who, ACTIVITIES[dice.pick(_SKILLS)], modal=MODALS["know how to"], negated=negated), asked)
    verb, extra = dice.pick(_DONE_FREELY), company(dice, who) if dice.chance(40) else dice.pick(SOON)
    if dice.chance(40):
        verb = ONESELF[dice.pick(_DONE_TO_ONESELF)]
        extra = at_the_hour(*hour(dice, 5, 10)) if verb.english in {"wake up", "get up"} else dice.pick(SOON)
    after = maybe(dice, 60, extra)
    return speak(Clause(who, verb, modal=modal(dice, asked, negated), after=after, negated=negated), asked)
