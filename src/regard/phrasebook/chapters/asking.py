"""Questions with a question word: where, when, why, what, who, whose, how many, how old, how."""

from regard.phrasebook.chapters.being import describable
from regard.phrasebook.chapters.doing import MISHAPS, tense_for
from regard.phrasebook.clause import Clause, Noun, Tense
from regard.phrasebook.dice import Dice
from regard.phrasebook.draws import NAMES, maybe, owner, person, relative, subject, thing, time_for
from regard.phrasebook.italian import agree
from regard.phrasebook.noun_phrase import NounPhrase, noun_phrase
from regard.phrasebook.nouns import Noun as Lemma
from regard.phrasebook.nouns import nouns
from regard.phrasebook.pronouns import HE, SHE, THEY, YOU, YOU_TWO
from regard.phrasebook.sentence import COMMA, Sentence, ask, join
from regard.phrasebook.verbs import (
    ACTIONS,
    ACTIVITIES,
    BE,
    BE_HAVING,
    BE_WELL,
    HAVE,
    MODALS,
    MOVING,
    ONESELF,
    STAYING,
    TO_PEOPLE,
    some_of,
)
from regard.phrasebook.words import Phrase, Word, phrase

WHERE, WHEN, WHY, HOW = (
    phrase(*words) for words in (("where", "dove"), ("when", "quando"), ("why", "perché"), ("how", "come"))
)
WHAT, WHOM, WHOSE = phrase("what", "che cosa"), phrase("who", "chi"), phrase("whose", "di chi")
HOW_OLD = phrase("how/1 old/2", "quanti/1 anni/2")

_OTHERS = (YOU, YOU, YOU, YOU_TWO, HE, SHE, THEY)
_WITH_REASON = ("cry", "laugh", "smile", "shout", "run", "wait", "smoke", "sing")
_SOMEWHERE = ("work", "sleep", "study", "have lunch", "have dinner", "play tennis", "eat", "swim")


def called(dice: Dice, question: Sentence) -> Sentence:
    """Sometimes one says first whom one asks: Marco, where is …"""
    return Sentence(join(dice.pick(NAMES), COMMA, question.phrase), "?") if dice.chance(12) else question


def where_is(dice: Dice) -> Sentence:
    """Where is the station? Where are my keys? Where is your sister?"""
    if dice.chance(40):
        who: Noun = person(dice) if dice.chance(70) else dice.pick(_OTHERS)
        return called(dice, ask(Clause(who, BE, asking=WHERE)))
    noun = dice.pick(nouns("+belonging +reading +garment +pair +building +tableware +vehicle park beach garden"))
    owned = noun.kind in {"belonging", "reading", "garment", "pair", "vehicle"} and dice.chance(65)
    return called(
        dice, ask(Clause(noun_phrase(noun, owner(dice) if owned else "the", dice.chance(25)), BE, asking=WHERE))
    )


def where_and_when(dice: Dice) -> Sentence:
    """When will your brother leave? Where do you work? Why is Maria crying?"""
    who, asking = subject(dice, asked=True), dice.pick((WHERE, WHEN, WHY))
    tense: Tense = dice.pick(("past", "future"))
    if asking is WHEN:
        names = ("get up", "wake up", "get married")
        verb = dice.pick((*MOVING.values(), *(ONESELF[name] for name in names), STAYING["be born"]))
        tense = "past" if verb.english == "be born" else tense
    elif asking is WHY:
        verb = ACTIVITIES[dice.pick(_WITH_REASON)]
        tense = dice.pick(("progressive", "past"))
    elif dice.chance(25):
        verb, tense = STAYING["live"], "present"
    elif dice.chance(60):
        verb, tense = ACTIVITIES[dice.pick(_SOMEWHERE)], dice.pick(("past", "future", "present"))
    else:
        verb = dice.pick((MOVING["go"], STAYING["stay"]))
    return called(dice, ask(Clause(who, verb, tense=tense, asking=asking)))


def why_with_what(dice: Dice) -> Sentence:
    """When did you buy this car? Where did she find the keys? Why are you washing the dog?"""
    who, verb = dice.pick(_OTHERS), dice.pick(tuple(ACTIONS.values()))
    asking, tense = dice.pick((WHERE, WHEN, WHY)), tense_for(dice, verb)
    if asking is not WHY and tense == "progressive":
        tense = "past"
    what = thing(dice, dice.pick(verb.objects), who, sparse=True)
    return called(dice, ask(Clause(who, verb, what, tense=tense, asking=asking)))


def what_and_whom(dice: Dice) -> Sentence:
    """What are you eating? What did your sister buy yesterday? Who do you want to invite?"""
    who = subject(dice, asked=True)
    if dice.chance(55):
        verb, asking = dice.pick(_OF_WHAT), WHAT
        tense = tense_for(dice, verb)
    else:
        verb, asking = TO_PEOPLE[dice.pick(("see", "meet", "help", "call", "invite", "wait for", "look for"))], WHOM
        tense = dice.pick(("past", "future"))
        if verb.english in {"help", "wait for", "call", "look for"} and dice.chance(40):
            tense = "progressive"
    if not isinstance(who, NounPhrase) and verb.english not in MISHAPS and dice.chance(25):
        modal = MODALS[dice.pick(("want to", "have to", "would like to"))]
        return called(dice, ask(Clause(who, verb, modal=modal, asking=asking)))
    after = maybe(dice, 35, time_for(dice, tense)) if tense != "progressive" else ()
    return called(dice, ask(Clause(who, verb, tense=tense, asking=asking, after=after)))


_OF_WHAT = some_of(
    ACTIONS,
    "eat cook order buy sell read write find lose see drink prepare wash repair choose study bring forget break",
)


def how_many(dice: Dice) -> Sentence:
    """How many brothers do you have? How many apples did you two buy?"""
    who = dice.pick(_OTHERS)
    if dice.chance(50):
        return called(dice, ask(Clause(who, HAVE, asking=so_many(dice.pick(_COUNTED)))))
    verb = dice.pick(_WITH_MANY)
    countable = [noun for noun in verb.objects if not (noun.is_mass or noun.is_pair or noun.english == "sea")]
    return called(dice, ask(Clause(who, verb, tense="past", asking=so_many(dice.pick(countable)))))


def so_many(noun: Lemma) -> Phrase:
    """How many of something: quante mele."""
    what = noun_phrase(noun, "bare", plural=True).under("what")
    quanti = Word(agree("quanto", noun.plural_gender, True), ("how",))
    return Phrase((Word("how", ("how",)), Word("many", ("how",)), *what.english), (quanti, *what.italian))


_WITH_MANY = some_of(ACTIONS, "eat buy read write see sell order lose break")
_COUNTED = nouns("""
    brother sister son daughter cousin uncle aunt friend neighbour colleague dog cat horse rabbit key book house car
    bicycle hat coat dictionary computer guitar exam ticket suitcase
""")


def how(dice: Dice) -> Sentence:
    """How old is your daughter? How are you? How is the soup? Whose is this umbrella?"""
    roll = dice.below(100)
    if roll < 35:
        return called(
            dice, ask(Clause(relative(dice) if dice.chance(50) else subject(dice, True), BE_HAVING, asking=HOW_OLD))
        )
    if roll < 60:
        return called(
            dice, ask(Clause(relative(dice) if dice.chance(50) else subject(dice, True), BE_WELL, asking=HOW))
        )
    if roll < 75:
        what, _ = describable(dice)
        return ask(Clause(what, BE, asking=HOW))
    noun = dice.pick(nouns("+reading +belonging +garment +pair +vehicle dog cat"))
    return ask(Clause(noun_phrase(noun, dice.pick(("this", "that")), dice.chance(30)), BE, asking=WHOSE))
