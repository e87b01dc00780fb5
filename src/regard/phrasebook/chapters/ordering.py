"""At the restaurant and in the shop: would like, so much of something, prices."""

from dataclasses import replace

from regard.phrasebook.clause import Clause, Tense
from regard.phrasebook.dice import Dice
from regard.phrasebook.draws import POINTED, maybe, subject, thing, time_for
from regard.phrasebook.noun_phrase import Determiner, NounPhrase, noun_phrase
from regard.phrasebook.nouns import nouns
from regard.phrasebook.numbers import english_number, italian_number
from regard.phrasebook.pronouns import PEOPLE, WE, YOU, YOU_TWO, I
from regard.phrasebook.sentence import PLEASE, Sentence, ask, join, say, speak, tell
from regard.phrasebook.verbs import ACTIONS, COST, STATES, WOULD_LIKE
from regard.phrasebook.words import Phrase, Word, phrase

_MEASURED = {
    measure: nouns(contents)
    for measure, contents in {
        "glass": "water wine milk beer lemonade",
        "cup": "tea coffee milk",
        "bottle": "water wine beer milk oil",
        "piece": "bread cheese cake chocolate pizza",
        "slice": "cake bread ham cheese",
        "plate": "spaghetti gnocchi rice soup",
        "kilo": "apple orange potato tomato cherry pear fig onion peach meat sugar bread rice",
        "litre": "milk water oil wine",
        "basket": "apple fig mushroom orange cherry lemon egg",
    }.items()
}
HOW_MUCH = phrase("how much", "quanto")
_SOLD = nouns("+reading +belonging +garment +pair +tableware +dish +furniture +instrument")
_ORDERED = nouns("+dish +pasta +drink +larder +prepared +garment map ticket room table key")


def measure(dice: Dice) -> NounPhrase:
    """So much of something: a glass of wine, two kilos of apples, una bottiglia d'acqua."""
    container = dice.pick(nouns("+measure glass cup bottle plate"))
    amount: Determiner | int = dice.pick(("a", "a", 2 + dice.below(4)))
    noun = dice.pick(_MEASURED[container.english])
    in_pieces = container.english in {"piece", "slice"}
    content = noun_phrase(noun, "bare", plural=not noun.is_mass and not in_pieces).under("content")
    of = Word("d'" if content.italian[0].text in {"acqua", "olio"} else "di", ("of",))
    whole = noun_phrase(container, amount)
    said = (*whole.english, Word("of", ("of",)), *content.english)
    return NounPhrase(said, (*whole.italian, of, *content.italian), whole.gender, whole.plural, whole.plural)


def ordering(dice: Dice) -> Sentence:
    """I would like a glass of wine, please. We want two pizzas. Would you like some cheese?"""
    who = dice.pick((I, I, I, WE, WE, YOU, YOU, YOU_TWO, *PEOPLE))
    what = measure(dice) if dice.chance(50) else thing(dice, dice.pick(_ORDERED), who)
    verb = WOULD_LIKE if dice.chance(65) else STATES["want"]
    clause = Clause(who, verb, what)
    if who.person == 2:
        return ask(clause)
    if who.person == 1 and verb is WOULD_LIKE and dice.chance(60):
        return Sentence(join(say(clause), PLEASE))
    return speak(clause, who.person == 3 and dice.chance(25))


def shopping(dice: Dice) -> Sentence:
    """She bought two kilos of apples. Will you bring a bottle of wine tomorrow?"""
    asked = dice.chance(20)
    tense: Tense = dice.pick(("past", "past", "future"))
    verb = ACTIONS[dice.pick(("buy", "order", "bring"))]
    clause = Clause(subject(dice, asked), verb, measure(dice), tense=tense)
    return speak(replace(clause, after=maybe(dice, 45, time_for(dice, tense))), asked)


def prices(dice: Dice) -> Sentence:
    """The shoes cost forty-eight euros. How much does that ring cost?"""
    noun = dice.pick(_SOLD)
    what = noun_phrase(noun, dice.pick(POINTED), dice.chance(20))
    if dice.chance(25):
        return ask(Clause(what, COST, asking=HOW_MUCH))
    cheap = noun.kind in {"reading", "tableware", "dish"} or noun.english in {"pen", "pencil", "postcard", "ticket"}
    low, high = (2, 30) if cheap else (40, 100) if noun.kind in {"furniture", "instrument"} else (5, 100)
    return tell(Clause(what, COST, after=(euros(low + dice.below(high - low + 1)),), negated=dice.chance(12)))


def euros(n: int) -> Phrase:
    """A price; euro has no plural in Italian."""
    said = tuple(Word(text, ("number",)) for text in english_number(n).split())
    return Phrase((*said, Word("euros", ("euro",))), (Word(italian_number(n), ("number",)), Word("euro", ("euro",))))
