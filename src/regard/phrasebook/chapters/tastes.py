"""What people like, prefer and miss: the verbs whose Italian turns around, `mi piace`, `mi manchi`."""

from dataclasses import replace

from regard.phrasebook.chapters.doing import EVERYONE, NOBODY
from regard.phrasebook.clause import A_LOT, VERY_MUCH, Clause, Noun, Tense
from regard.phrasebook.dice import Dice
from regard.phrasebook.draws import POINTED, adjective, in_general, other, owner, person_but, subject
from regard.phrasebook.noun_phrase import Determiner, NounPhrase, noun_phrase, prepositional
from regard.phrasebook.nouns import KINDS, nouns
from regard.phrasebook.sentence import Sentence, ask, speak, tell
from regard.phrasebook.verbs import ACTIONS, ACTIVITIES, LIKE, MISS, STATES, Verb, tail_meanings
from regard.phrasebook.when_and_where import CITY_NAMES
from regard.phrasebook.words import Phrase, Word

_IN_GENERAL = nouns("+larder +prepared +pasta +produce +dish +drink +animal +language +sound +country")
_SEEN = nouns("+reading +garment +pair +event +building +furniture +vehicle +room garden city island beach idea gift")
_TRIED = nouns("+reading +event +dish +pasta soup salad hotel restaurant museum city island house gift idea")


def liking(dice: Dice) -> Sentence:
    """I like bread. Do the children like animals? Nobody likes this soup. They like those shoes a lot."""
    asked = dice.chance(25)
    who = subject(dice, asked) if dice.chance(92) else dice.pick((NOBODY, EVERYONE))
    clause = Clause(who, LIKE, _liked(dice))
    return _to_a_degree(dice, clause, asked, plain=who is NOBODY)


def _liked(dice: Dice) -> NounPhrase:
    if dice.chance(3):
        return noun_phrase(nouns("sea")[0])
    if dice.chance(55):
        noun = dice.pick(_IN_GENERAL)
        return noun_phrase(noun, "generic") if noun.kind == "country" else in_general(noun)
    noun = dice.pick(_SEEN)
    owned = noun.kind in {"garment", "pair", "reading", "vehicle", "room"} and dice.chance(30)
    return noun_phrase(noun, owner(dice) if owned else dice.pick(POINTED), dice.chance(25), adjective(dice, noun))


def liked_it(dice: Dice) -> Sentence:
    """We liked the film very much. Did you like the gnocchi? They will like this house."""
    asked, noun = dice.chance(28), dice.pick(_TRIED)
    pointed = "the" if noun.kind == "pasta" else dice.pick(POINTED)
    what = noun_phrase(noun, pointed, dice.chance(25) and not noun.is_mass)
    tense: Tense = dice.pick(("past", "past", "future"))
    return _to_a_degree(dice, Clause(subject(dice, asked), LIKE, what, tense=tense), asked)


def liking_to(dice: Dice) -> Sentence:
    """I like to swim. Does your father like to drink coffee?"""
    asked = dice.chance(25)
    return _to_a_degree(dice, Clause(subject(dice, asked), LIKE, after=(to_do(dice),)), asked, plain=True)


def missing(dice: Dice) -> Sentence:
    """I miss you. My grandmother misses Italy a lot. Do you miss your parents?"""
    asked = dice.chance(22)
    who = subject(dice, asked)
    whom: Noun = other(dice, who) if dice.chance(50) else person_but(dice, who)
    if isinstance(who, NounPhrase) and whom.person == 3:  # `ad Anna manca` does not say who is missed
        whom = person_but(dice, who)
    if dice.chance(25):
        whom = dice.pick(_MISSED)
    return _to_a_degree(dice, Clause(who, MISS, whom), asked)


_MISSED = (
    *(noun_phrase(noun, "generic") for noun in KINDS["country"]),
    *(noun_phrase(noun) for noun in nouns("sea garden city school")),
    *CITY_NAMES,
)


def _to_a_degree(dice: Dice, clause: Clause, asked: bool, plain: bool = False) -> Sentence:
    if asked:
        return ask(clause)
    if dice.chance(25):
        return tell(replace(clause, negated=clause.subject is not NOBODY))
    return tell(clause if plain or dice.chance(60) else replace(clause, degree=dice.pick((VERY_MUCH, A_LOT))))


def to_do(dice: Dice) -> Phrase:
    """Something to do, in general: to swim, to eat apples."""
    if dice.chance(50):
        return infinitive(ACTIVITIES[dice.pick([name for name in ACTIVITIES if name not in _NO_PLEASURE])])
    verb = ACTIONS[dice.pick(("eat", "drink", "cook", "buy", "read", "visit", "study", "watch", "listen to", "play"))]
    noun = dice.pick(verb.objects)
    if noun.english in {"television", "radio"} or verb.english == "play":
        return infinitive(verb) + noun_phrase(noun, "generic" if noun.english == "television" else "the")
    generic: Determiner = "generic" if verb.english in {"study", "watch", "listen to"} else "bare"
    return infinitive(verb) + in_general(noun, generic)


_NO_PLEASURE = {"cry", "wait", "shout", "smile"}


def infinitive(verb: Verb) -> Phrase:
    """To swim, nuotare."""
    head, *tail = verb.english.split()
    capo, *coda = verb.italian.split()
    said = zip(tail, tail_meanings(verb, len(tail)), strict=True)
    detto = zip(coda, tail_meanings(verb, len(coda)), strict=True)
    return Phrase(
        (Word("to", ("verb",)), Word(head, ("verb",)), *(Word(text, (means or "verb",)) for text, means in said)),
        (Word(capo, ("verb",)), *(Word(text, (means or "verb",)) for text, means in detto)),
    )


def preferring(dice: Dice) -> Sentence:
    """I prefer tea to coffee. Does Anna prefer dogs to cats?"""
    asked = dice.chance(25)
    kind = dice.pick(("produce", "drink", "larder", "prepared", "dish", "sound", "language", "animal"))
    first, second = dice.pick(KINDS[kind]), dice.pick(KINDS[kind])
    while first is second:
        second = dice.pick(KINDS[kind])
    rather = prepositional("to", "a", in_general(second))
    return speak(Clause(subject(dice, asked), STATES["prefer"], in_general(first), after=(rather,)), asked)
