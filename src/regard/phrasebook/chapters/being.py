"""What people and things are: tired, expensive, taller than, a doctor, hungry, thirty years old."""

from dataclasses import replace

from regard.phrasebook import conjugation, italian
from regard.phrasebook.adjectives import CHARACTER, MOOD, Adjective, describing, said_of
from regard.phrasebook.clause import ALWAYS, NEVER, OFTEN, STILL, Clause, Noun
from regard.phrasebook.dice import Dice
from regard.phrasebook.draws import (
    MEN,
    NAMES,
    POINTED,
    WOMEN,
    maybe,
    owner,
    person,
    person_but,
    relative,
    subject,
    time_for,
)
from regard.phrasebook.noun_phrase import NounPhrase, agreeing, noun_phrase, prepositional
from regard.phrasebook.nouns import FEMININE, KINDS, NOUNS, nouns
from regard.phrasebook.numbers import years
from regard.phrasebook.pronouns import OWNERS, reflexive
from regard.phrasebook.sentence import Sentence, ask, speak, tell
from regard.phrasebook.verbs import BE, BE_HAVING
from regard.phrasebook.when_and_where import TODAY
from regard.phrasebook.words import Phrase, Word, phrase

VERY, TOO, SO = phrase("very", "molto"), phrase("too", "troppo"), phrase("so", "così")
_COLOURS = {"red", "white", "black", "green", "blue", "yellow", "grey", "brown", "pink"}
_ABSOLUTE = {"married", "open", "closed", "broken", "alone", "ready", "free", *_COLOURS}  # one is or is not
_THINGS = nouns("""
    +larder +prepared +produce +dish +drink +reading +belonging +tableware +garment +pair +furniture +opening +vehicle
    +transport +building +outdoors +room +animal +matter +event
""")
_POSSESSIONS = {"reading", "belonging", "garment", "pair", "vehicle", "room", "furniture"}


def degree(dice: Dice, how: Adjective, percent: int) -> Phrase | None:
    """very, too or so, for what can be more or less."""
    return dice.pick((VERY, VERY, TOO, SO)) if how.english not in _ABSOLUTE and dice.chance(percent) else None


def moods(dice: Dice) -> Sentence:
    """I am tired. Is your brother angry? We will be ready tomorrow. She is always happy."""
    asked = dice.chance(22)
    who, how = subject(dice, asked), dice.pick(tuple(MOOD.values()))
    clause = Clause(who, BE, after=(agreeing(how, who),))
    roll = dice.below(100)
    if roll < 20:
        return tell(replace(clause, negated=True)) if not asked else ask(clause)
    if roll < 35 and how.english not in {"short", "poor", "married"}:
        return speak(replace(clause, adverb=dice.pick((ALWAYS, OFTEN, STILL) if asked else _HOW_OFTEN)), asked)
    if roll < 50 and how.english not in {"short", "curious"}:
        return speak(replace(clause, tense="future", after=(*clause.after, time_for(dice, "future"))), asked)
    graded = agreeing(how, who, degree(dice, how, 40))
    return speak(replace(clause, after=(graded, *maybe(dice, 15, TODAY))), asked)


_HOW_OFTEN = (ALWAYS, OFTEN, NEVER, STILL)


def character(dice: Dice) -> Sentence:
    """His wife is very kind. Those students are not lazy."""
    asked = dice.chance(20)
    who = person(dice) if dice.chance(75) else subject(dice, asked)
    how = dice.pick(CHARACTER)
    clause = Clause(who, BE, after=(agreeing(how, who, degree(dice, how, 35)),))
    return ask(clause) if asked else tell(replace(clause, negated=dice.chance(20)))


def qualities(dice: Dice) -> Sentence:
    """The soup is cold. Are these shoes comfortable? My car is too old."""
    what, how = describable(dice)
    clause = Clause(what, BE, after=(agreeing(how, what, degree(dice, how, 35)),))
    return ask(clause) if dice.chance(22) else tell(replace(clause, negated=dice.chance(20)))


def describable(dice: Dice) -> tuple[NounPhrase, Adjective]:
    """A thing, and something that can be said of it."""
    noun = dice.pick(_THINGS)
    whose = owner(dice) if noun.kind in _POSSESSIONS and dice.chance(35) else dice.pick(POINTED)
    several = dice.chance(30) and not noun.is_mass and noun.english != "sea"
    return noun_phrase(noun, "the" if noun.english == "sea" else whose, several), dice.pick(said_of(noun))


def comparing(dice: Dice) -> Sentence:
    """Maria is taller than Anna. The train is faster than the bus. Is Spain bigger than Greece?"""
    asked = dice.chance(25)
    if dice.chance(50):
        who, how = subject(dice, asked), dice.pick(CHARACTER)
        than = person_but(dice, who)
        return speak(Clause(who, BE, after=(more(how, who, than),)), asked)
    kind = dice.pick(_COMPARED)
    noun, another = dice.pick(KINDS[kind]), dice.pick(KINDS[kind])
    while noun is another:
        another = dice.pick(KINDS[kind])
    comparable = [how for how in describing(noun) if how.english not in _INCOMPARABLE and how in describing(another)]
    several = dice.chance(20) and kind != "country" and "sea" not in {noun.english, another.english}
    first = noun_phrase(noun, "generic" if kind == "country" else "the", several)
    second = noun_phrase(another, "generic" if kind == "country" else "the", several)
    return speak(Clause(first, BE, after=(more(dice.pick(comparable), first, second),)), asked)


_COMPARED = ("vehicle", "transport", "building", "reading", "garment", "room", "animal", "outdoors", "event", "country")
_INCOMPARABLE = {"good", "empty", "full", *_COLOURS}


def more(how: Adjective, first: Noun, second: NounPhrase) -> Phrase:
    """More so than another: taller than Anna, più alta di Anna."""
    said: tuple[Word, ...] = (Word(how.comparative, ("more", "adjective")),)
    if not how.comparative:
        said = (Word("more", ("more",)), Word(how.english, ("adjective",)))
    form = italian.agree(how.italian, first.gender, first.plural)
    detto = (Word("più", ("more",)), Word(form, ("adjective",)))
    return Phrase(said, detto) + prepositional("than", "di", second.under("second"))


def jobs(dice: Dice) -> Sentence:
    """My sister is a doctor. They are students. Is Marco a good cook?"""
    asked = dice.chance(25)
    who = subject(dice, asked)
    while isinstance(who, NounPhrase) and who.english[-1].text in _JOB_WORDS:
        who = subject(dice, asked)
    noun = dice.pick(tuple(FEMININE.values()) if who.gender == "f" else nouns("+job waiter actor policeman"))
    how = dice.pick(describing(noun)) if dice.chance(30) and not who.plural else None
    what = noun_phrase(noun, "bare" if who.plural else "a", who.plural, how)
    return speak(Clause(who, BE, after=(what,)), asked)


_JOB_WORDS = {word for noun in nouns("+job +person boss") for word in (noun.english, noun.english_plural)}


def bodies(dice: Dice) -> Sentence:
    """I am hungry. We are very thirsty. Are you afraid of dogs?"""
    asked = dice.chance(25)
    who, (english, name, gender) = subject(dice, asked), dice.pick(_AVERE)
    plain = phrase(english, name)
    after: tuple[Phrase, ...] = ()
    if english == "afraid":
        feared = noun_phrase(dice.pick(KINDS["animal"]), "generic", plural=True)
        after = (prepositional("of", "di", feared if dice.chance(75) else noun_phrase(NOUNS["exam"], "the")),)
    clause = Clause(who, BE_HAVING, after=(plain, *after))
    roll = dice.below(100)
    if asked or english == "right" or roll < 35:
        return ask(clause) if asked else tell(replace(clause, negated=dice.chance(30)))
    if roll < 65:
        graded = phrase(f"very {english}", f"{italian.agree('molto', 'f' if gender == 'f' else 'm', False)} {name}")
        return tell(replace(clause, after=(graded, *after)))
    return tell(replace(clause, adverb=dice.pick((ALWAYS, OFTEN, NEVER))))


_AVERE = (
    ("hungry", "fame", "f"), ("thirsty", "sete", "f"), ("sleepy", "sonno", "m"), ("cold", "freddo", "m"),
    ("hot", "caldo", "m"), ("afraid", "paura", "f"), ("afraid", "paura", "f"), ("right", "ragione", "f"),
)  # fmt: skip


def ages(dice: Dice) -> Sentence:
    """My grandmother is eighty-two years old. I am thirty years old."""
    asked = dice.chance(15)
    who: Noun = relative(dice) if dice.chance(50) else subject(dice, asked)
    last = who.english[-1].text if isinstance(who, NounPhrase) else ""
    low, high = _AGES.get(last, (4, 99))
    return speak(Clause(who, BE_HAVING, after=(years(low + dice.below(high - low + 1)),)), asked)


_AGES = {
    "child": (2, 11), "children": (2, 30), "boy": (8, 17), "boys": (8, 17), "girl": (8, 17), "girls": (8, 17),
    "grandfather": (60, 99), "grandmother": (60, 99), "grandparents": (60, 99), "father": (35, 80), "mother": (35, 80),
    "parents": (35, 80), "husband": (22, 90), "wife": (22, 90), "doctor": (28, 65), "I": (18, 99),
}  # fmt: skip


def naming(dice: Dice) -> Sentence:
    """My name is Marco. This is my book. Are those your parents?"""
    if dice.chance(15):
        return _called(dice)
    asked, several = dice.chance(25), dice.chance(35)
    noun = dice.pick(nouns("+reading +belonging +garment +pair +family +acquaintance +vehicle"))
    what = noun_phrase(noun, owner(dice), several and noun.english not in {"mother", "father"})
    several = what.plural
    english, name = dice.pick((("this", "questo"), ("that", "quello")))
    said = {"this": "these", "that": "those"}[english] if several else english
    form = italian.agree(name, what.gender, several)
    pointed = NounPhrase((Word(said, ("noun",)),), (Word(form, ("noun",)),), what.gender, several, several)
    return speak(Clause(pointed, BE, after=(what,)), asked)


def _called(dice: Dice) -> Sentence:
    whose = dice.pick(OWNERS[:4])
    name = dice.pick(WOMEN if whose.gender == "f" else MEN if whose.person == 3 else NAMES)
    said = (Word(whose.possessive, ("whose",)), Word("name", ("called",)), Word("is", ("called",)))
    clitic = Word(reflexive(whose.person, whose.plural), ("whose", "called"))
    called = Word(conjugation.present("chiamare", whose.person, whose.plural), ("whose", "called"))
    return Sentence(Phrase(said + name.english, (clitic, called, *name.italian)))
