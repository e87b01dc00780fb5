"""Clauses inside clauses: because, if, when, that, where; the book that I bought, the woman who works at the bank."""

from dataclasses import replace

from regard.phrasebook.adjectives import CHARACTER, MOOD, describing, said_of
from regard.phrasebook.chapters.asking import WHEN, WHERE, WHY
from regard.phrasebook.chapters.being import degree, moods, qualities
from regard.phrasebook.chapters.doing import ANYTHING
from regard.phrasebook.chapters.people import feeling
from regard.phrasebook.chapters.places import going, where_people_are
from regard.phrasebook.chapters.stories import IF
from regard.phrasebook.clause import A_LOT, ALWAYS, NEVER, OFTEN, TOO_MUCH, Clause, Noun, Tense
from regard.phrasebook.dice import Dice
from regard.phrasebook.draws import maybe, own, owner, subject, thing, time_for
from regard.phrasebook.noun_phrase import NounPhrase, agreeing, noun_phrase
from regard.phrasebook.nouns import nouns
from regard.phrasebook.pronouns import IT, PEOPLE, YOU, YOU_TWO, Pronoun
from regard.phrasebook.sentence import COMMA, Sentence, ask, join, say, speak, tell
from regard.phrasebook.verbs import (
    ACTIONS,
    ACTIVITIES,
    BE,
    BE_HAVING,
    MODALS,
    MOVING,
    STATES,
    STAYING,
    TALKING,
    TO_PEOPLE,
    WEATHER,
    some_of,
)
from regard.phrasebook.when_and_where import CITIES, JUST_NOW, places
from regard.phrasebook.words import Word, phrase

BECAUSE, THAT = phrase("because", "perché"), phrase("that", "che")
_ONE_OR_OTHER = tuple(pronoun for pronoun in PEOPLE if pronoun is not YOU_TWO)  # `you two` is never said twice
_TIRING = ("work", "run", "study", "walk", "dance", "swim", "drive", "cook", "travel")
_MEALS = ("have lunch", "have breakfast", "have dinner", "eat")
_IN_THE_MOOD = ("sleep", "take a walk", "sing", "eat", "cook", "walk", "have a shower", "play cards", "dance", "paint")
_MOODY = ("tired", "sad", "happy", "nervous", "angry", "ill", "bored", "worried", "free")


def reasons(dice: Dice) -> Sentence:
    """I am tired because I worked a lot. She is sad because she lost her ring. We are hungry because …"""
    who = subject(dice)
    while who is YOU_TWO:
        who = subject(dice)
    same, mood = own(who), dice.pick(("tired", "sad", "angry", "happy", "worried", "hungry"))
    if mood == "hungry":
        state = Clause(who, BE_HAVING, after=(phrase("hungry", "fame"),))
        cause = Clause(same, ACTIVITIES[dice.pick(_MEALS)], tense="past", negated=True)
        if dice.chance(40):
            cause = replace(cause, verb=ACTIONS["eat"], object=ANYTHING)
        return Sentence(join(say(state), BECAUSE, say(replace(cause, after=maybe(dice, 40, dice.pick(JUST_NOW))))))
    state = Clause(who, BE, after=(agreeing(MOOD[mood], who),))
    if mood == "tired":
        cause = Clause(same, ACTIVITIES[dice.pick(_TIRING)], tense="past", degree=dice.pick((A_LOT, TOO_MUCH)))
        return Sentence(join(say(state), BECAUSE, say(replace(cause, after=maybe(dice, 30, dice.pick(JUST_NOW))))))
    verb = ACTIONS[dice.pick(("find", "buy", "finish") if mood == "happy" else ("lose", "forget", "break", "miss"))]
    cause = Clause(same, verb, thing(dice, dice.pick(verb.objects), same), tense="past")
    return Sentence(join(say(state), BECAUSE, say(replace(cause, after=maybe(dice, 20, time_for(dice, "past"))))))


def conditions(dice: Dice) -> Sentence:
    """If it rains, we will stay at home. When I am tired, I always sleep. If you are hungry, you can eat the soup."""
    roll = dice.below(100)
    if roll < 35:
        then = Clause(subject(dice), STAYING["stay"], tense="future", after=(dice.pick(_UNDER_A_ROOF).at,))
        if dice.chance(50):
            then = replace(then, verb=MOVING[dice.pick(("go", "come back"))], after=(dice.pick(_UNDER_A_ROOF).to,))
        return Sentence(join(IF, say(Clause(IT, WEATHER[dice.pick(("rain", "snow"))])), COMMA, say(then)))
    who = dice.pick(_ONE_OR_OTHER)
    if roll < 70:
        english, italian, action, things = dice.pick(_NEEDS)
        need = say(Clause(who, BE_HAVING, after=(phrase(english, italian),)))
        then = Clause(who, ACTIONS[action], thing(dice, dice.pick(nouns(things)), who), modal=MODALS["can"])
        if dice.chance(40):
            then = replace(then, modal=None, tense="future")
        return Sentence(join(IF, need, COMMA, say(then)))
    mood = say(Clause(who, BE, after=(agreeing(MOOD[dice.pick(_MOODY)], who),)))
    then = Clause(who, ACTIVITIES[dice.pick(_IN_THE_MOOD)], adverb=dice.pick((ALWAYS, OFTEN, NEVER)))
    return Sentence(join(WHEN, mood, COMMA, say(then)))


_UNDER_A_ROOF = places("home home hotel office library bar museum school work cinema theatre restaurant gym pool")
_NEEDS = (
    ("hungry", "fame", "eat", "+dish +larder +prepared +produce"),
    ("thirsty", "sete", "drink", "water lemonade tea milk beer"),
    ("sleepy", "sonno", "drink", "coffee tea"),
    ("cold", "freddo", "close", "window door"),
    ("hot", "caldo", "open", "window door"),
)


def said_that(dice: Dice) -> Sentence:
    """I know that Maria is tired. He says that the soup is cold. You know that I love you."""
    who = subject(dice)
    content = dice.pick(_SAID)(dice)
    while content.mark != "." or content.phrase.english[0].text in _unclear_after(who):
        content = dice.pick(_SAID)(dice)
    return Sentence(join(say(Clause(who, TALKING[dice.pick(("know", "say"))])), THAT, content.phrase))


_SAID = (moods, qualities, where_people_are, going, feeling, feeling)


def _unclear_after(who: Noun) -> set[str]:
    """Subjects that Italian would drop and the reader take for `who`; and no one says `that that`."""
    if who.person == 3:
        return {"that", "they"} if who.plural else {"that", "he", "she"}
    return {"that", who.subject.split()[0]} if isinstance(who, Pronoun) else {"that", "we"}


def wondering(dice: Dice) -> Sentence:
    """Do you know where my keys are? I know why Maria is crying. Do they know when you will arrive?"""
    asked = dice.chance(60)
    who = dice.pick((YOU, YOU, YOU, *PEOPLE[2:4], *PEOPLE[5:])) if asked else subject(dice)
    if dice.chance(50):
        noun = dice.pick(nouns("+belonging +pair +building +garment +vehicle +reading"))
        owned = noun.kind in {"belonging", "pair", "garment", "vehicle"} and dice.chance(70)
        inner = Clause(noun_phrase(noun, owner(dice) if owned else "the", dice.chance(25)), BE, asking=WHERE)
    else:
        whom = subject(dice)
        while isinstance(whom, Pronoun) and whom.person == who.person:
            whom = subject(dice)
        verb = ACTIVITIES[dice.pick(("cry", "laugh", "shout", "run", "wait", "smile"))]
        inner = Clause(whom, verb, tense="progressive", asking=WHY)
        if dice.chance(50):
            inner = Clause(whom, MOVING[dice.pick(("leave", "arrive", "come back"))], tense="future", asking=WHEN)
    opening = say(Clause(who, TALKING["know"], question=asked))
    return Sentence(join(opening, say(inner)), "?" if asked else ".")


def with_relative(what: NounPhrase, english: str, clause: Clause) -> NounPhrase:
    """A noun phrase and what more there is to know of it: the book that I bought, il libro che ho comprato."""
    inner = say(clause).under("relative")
    said = (*what.english, Word(english, ("that",)), *inner.english)
    detto = (*what.italian, Word("che", ("that",)), *inner.italian)
    return NounPhrase(said, detto, what.gender, what.plural, what.english_plural)


_WITH_RESULT = some_of(ACTIONS, "buy read write find order cook visit choose sell book prepare bring send")


def things_that(dice: Dice) -> Sentence:
    """The apples that I bought are delicious. Where is the letter that you wrote?"""
    verb = dice.pick(_WITH_RESULT)
    noun = dice.pick([noun for noun in verb.objects if describing(noun) and noun.kind != "acquaintance"])
    what = noun_phrase(noun, "the", dice.chance(30) and not noun.is_mass)
    when = (
        ()
        if noun.kind in {"larder", "prepared", "produce", "dish", "drink"}
        else maybe(dice, 25, time_for(dice, "past"))
    )
    past = Clause(subject(dice), verb, tense="past", after=when)
    whole = with_relative(what, "that", past)
    if noun.kind in {"belonging", "reading", "garment", "pair"} and verb.english != "sell" and dice.chance(40):
        return ask(Clause(whole, BE, asking=WHERE))
    hows = [how for how in said_of(noun) if how.english != "fresh" or verb.english in {"buy", "find"}]
    how = dice.pick(hows)
    return tell(Clause(whole, BE, after=(agreeing(how, whole, degree(dice, how, 35)),)))


def people_who(dice: Dice) -> Sentence:
    """The woman who works at the bank is very kind. Do you know the boy who lives in Rome?"""
    what = noun_phrase(dice.pick(nouns("man woman boy girl +job +person")), "the", dice.chance(20))
    silent = NounPhrase((), (), what.gender, what.plural, what.plural)  # `who` is the subject, and is said already
    workplace = dice.pick((*places("bank market office library pharmacy bar museum university"), *CITIES)).at
    inner = dice.pick((
        Clause(silent, ACTIVITIES["work"], after=(workplace,)),
        Clause(silent, STAYING["live"], after=(dice.pick(CITIES).at,)),
        Clause(silent, STATES["speak"], noun_phrase(dice.pick(nouns("+language")), "bare")),
    ))  # fmt: skip
    whole = with_relative(what, "who", inner)
    if dice.chance(50):
        how = dice.pick(CHARACTER)
        return tell(Clause(whole, BE, after=(agreeing(how, whole, degree(dice, how, 30)),)))
    asked = dice.chance(35)
    clause = Clause(subject(dice, asked), STATES["know"], whole)
    if dice.chance(40):
        tense: Tense = dice.pick(("past", "past", "future"))
        clause = replace(clause, verb=TO_PEOPLE[dice.pick(("see", "meet", "help", "call", "thank"))], tense=tense)
    return speak(replace(clause, negated=not asked and dice.chance(20)), asked)
