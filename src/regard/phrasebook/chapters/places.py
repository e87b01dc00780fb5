"""Places: where things are, where people go, live, stay and come from."""

from dataclasses import replace

from regard.phrasebook.clause import ALWAYS, NEVER, OFTEN, STILL, Clause, Tense
from regard.phrasebook.dice import Dice
from regard.phrasebook.draws import company, hour, maybe, owner, subject, time_for
from regard.phrasebook.noun_phrase import Determiner, NounPhrase, noun_phrase, prepositional
from regard.phrasebook.nouns import KINDS, nouns
from regard.phrasebook.nouns import Noun as Lemma
from regard.phrasebook.pronouns import OWNERS
from regard.phrasebook.sentence import Sentence, ask, join, say, speak, tell
from regard.phrasebook.verbs import BE, MOVING, STAYING
from regard.phrasebook.when_and_where import (
    AWAY,
    CITIES,
    CITY_NAMES,
    COUNTRIES,
    EXPERTS,
    HOME,
    INDOORS,
    NOW,
    PLACES,
    TODAY,
    TOWN,
    at_the_hour,
    places,
)
from regard.phrasebook.words import Phrase, Word

_LANDS = tuple(noun_phrase(country, "generic") for country in KINDS["country"])

# what one finds, the preposition, and where
_SETTINGS = tuple(
    (nouns(things), english, italian, nouns(spots))
    for things, english, italian, spots in (
        ("+belonging +reading +tableware bread lamp", "on", "su", "table chair desk shelf bed sofa"),
        ("+belonging +reading gloves sunglasses", "in", "in", "bag backpack suitcase drawer box car"),
        ("+garment +pair suitcase", "in", "in", "wardrobe suitcase backpack drawer"),
        ("cheese milk beer water butter fruit salad fish meat", "in", "in", "fridge"),
        ("dog cat mouse rabbit spider ball shoes box", "under", "sotto", "table bed chair sofa desk"),
        ("dog cat mouse ball box suitcase spider", "behind", "dietro", "door sofa wardrobe shelf"),
        ("+building square park garden", "near", "vicino a", "+building park river square beach lake"),
        ("bank pharmacy hotel bus car bicycle shop cinema", "in front of", "davanti a", "+building park gate"),
        ("lamp chair table shelf mirror", "next to", "accanto a", "bed door window sofa wardrobe desk"),
        ("bank pharmacy restaurant museum school shop library", "opposite", "di fronte a", "+building park"),
    )
)
_KEPT = {"bag", "backpack", "suitcase", "car", "desk", "bed", "drawer"}  # where people keep things of their own


def setting(dice: Dice, amount: Determiner | int | None = None) -> tuple[NounPhrase, Phrase]:
    """A thing, so many of it or a certain one, and where it is."""
    things, english, italian, spots = dice.pick(_SETTINGS)
    noun, spot = dice.pick(things), dice.pick(spots)
    while noun is spot:
        spot = dice.pick(spots)
    place = noun_phrase(spot, dice.pick(OWNERS) if spot.english in _KEPT and dice.chance(40) else "the")
    where = prepositional(english, italian, place)
    if amount is not None:
        return noun_phrase(noun, "some" if noun.is_mass or noun.is_pair else amount), where
    whose = owner(dice) if _is_owned(noun) and dice.chance(40) else "the"
    return noun_phrase(noun, whose, dice.chance(25) and not noun.is_mass), where


def _is_owned(noun: Lemma) -> bool:
    return noun.kind in {"belonging", "reading", "garment", "pair"} or noun.english in {"car", "dog", "cat", "bicycle"}


def where_things_are(dice: Dice) -> Sentence:
    """My keys are on the table. Is the bank near the station?"""
    what, where = setting(dice)
    clause = Clause(what, BE, after=(where,))
    return ask(clause) if dice.chance(20) else tell(replace(clause, negated=dice.chance(20)))


def there_is(dice: Dice) -> Sentence:
    """There is a letter on the desk. Are there two cats under the bed?"""
    what, where = setting(dice, dice.pick(("a", "a", "a", "many", 2 + dice.below(9))))
    return there_is_a(what, where, asked=dice.chance(25))


def is_there_nearby(dice: Dice) -> Sentence:
    """Is there a pharmacy near the hotel? There is another bank in the square."""
    noun = dice.pick(KINDS["building"])
    what = noun_phrase(noun, dice.pick(("a", "a", "another", 2 + dice.below(3))))
    nearby = noun_phrase(dice.pick([other for other in KINDS["building"] if other is not noun]))
    where = prepositional("near", "vicino a", nearby)
    if dice.chance(30):
        where = dice.pick(places("square city_centre")).at
    return there_is_a(what, where, asked=dice.chance(50))


def there_is_a(what: NounPhrase, where: Phrase, asked: bool) -> Sentence:
    """C'è, ci sono."""
    there, be = Word("there", ("there",)), Word("are" if what.plural else "is", ("be",))
    thing, place = what.under("what"), where.under("where")
    said = (be, there) if asked else (there, be)
    ci, sono = ("ci", "sono") if what.plural else ("c'", "è")
    detto = (Word(ci, ("there",)), Word(sono, ("be",)))
    whole = Phrase(said + thing.english + place.english, detto + thing.italian + place.italian)
    return Sentence(whole, "?" if asked else ".")


def where_people_are(dice: Dice) -> Sentence:
    """Maria is at home. They will be at the station at eight. Are you still in Rome?"""
    asked = dice.chance(22)
    clause = Clause(subject(dice, asked), BE)
    place = dice.pick((*PLACES, *INDOORS)).at
    roll = dice.below(100)
    if roll < 30:
        time = time_for(dice, "future") if dice.chance(60) else at_the_hour(*hour(dice))
        return speak(replace(clause, tense="future", after=(place, time)), asked)
    if roll < 50:
        return speak(replace(clause, after=(place,), negated=not asked), asked)
    if roll < 70:
        adverb = dice.pick((ALWAYS, OFTEN, STILL) if asked else (ALWAYS, OFTEN, STILL, NEVER))
        return speak(replace(clause, adverb=adverb, after=(place,)), asked)
    return speak(replace(clause, after=(place, *maybe(dice, 25, dice.pick((*NOW, TODAY))))), asked)


def going(dice: Dice) -> Sentence:
    """Maria went to the market yesterday. We will come back to Rome on Monday. I am going home."""
    asked = dice.chance(22)
    who, negated = subject(dice, asked), not asked and dice.chance(12)
    verb = MOVING[dice.pick(("go", "go", "go", "come", "come back"))]
    tense: Tense = dice.pick(("past", "past", "past", "future", "future", "progressive"))
    to = dice.pick(EXPERTS) if verb.english == "go" and dice.chance(12) else dice.pick(PLACES).to
    clause = Clause(who, verb, tense=tense, after=(to, *maybe(dice, 20, company(dice, who))), negated=negated)
    when = time_for(dice, tense, negated)
    if not asked and tense != "progressive" and dice.chance(15):
        return Sentence(join(when, say(clause)))
    return speak(replace(clause, after=(*clause.after, *maybe(dice, 45, when))), asked)


def going_often(dice: Dice) -> Sentence:
    """We often go to the seaside. Do you go to work on Saturdays? She never goes to the theatre."""
    asked = dice.chance(20)
    clause = Clause(subject(dice, asked), MOVING["go"], after=(dice.pick((*TOWN, *AWAY, *HOME)).to,))
    if dice.chance(50):
        return speak(replace(clause, adverb=dice.pick((ALWAYS, OFTEN) if asked else (ALWAYS, OFTEN, NEVER))), asked)
    return speak(replace(clause, after=(*clause.after, time_for(dice, "present"))), asked)


def arriving(dice: Dice) -> Sentence:
    """The girls arrived in Rome at seven. My uncle will leave for Spain tomorrow. They came back from France."""
    asked = dice.chance(22)
    who, negated = subject(dice, asked), not asked and dice.chance(12)
    tense: Tense = dice.pick(("past", "past", "future"))
    name, where = dice.pick((
        ("arrive", dice.pick((*CITIES, *COUNTRIES, *places("station airport home school"))).at),
        ("leave", prepositional("for", "per", dice.pick((*CITY_NAMES, *_LANDS)))),
        ("come back", prepositional("from", "da", dice.pick((*CITY_NAMES, *_LANDS)))),
    ))  # fmt: skip
    when = at_the_hour(*hour(dice)) if dice.chance(40) else time_for(dice, tense, negated)
    after = (where, *maybe(dice, 65, when))
    return speak(Clause(who, MOVING[name], tense=tense, after=after, negated=negated), asked)


def living(dice: Dice) -> Sentence:
    """Our friends live in Rome. She was born in Florence. We stayed at home last night."""
    asked = dice.chance(22)
    who, negated = subject(dice, asked), not asked and dice.chance(18)
    roll = dice.below(100)
    if roll < 40:
        where = dice.pick((*CITIES, *COUNTRIES, *places("mountains country city_centre"))).at
        still = STILL if not negated and dice.chance(30) else None
        return speak(Clause(who, STAYING["live"], adverb=still, negated=negated, after=(where,)), asked)
    if roll < 60:
        where = dice.pick((*CITIES, *COUNTRIES)).at
        return speak(Clause(who, STAYING["be born"], tense="past", negated=negated, after=(where,)), asked)
    tense: Tense = "past" if roll < 70 else dice.pick(("past", "past", "future"))
    if roll < 70:
        verb, where = STAYING["fall"], dice.pick((*INDOORS, *places("home square school"))).at
    else:
        verb, where = STAYING["stay"], dice.pick(PLACES).at
    extra = time_for(dice, tense, negated) if roll < 70 or dice.chance(60) else company(dice, who)
    return speak(Clause(who, verb, tense=tense, negated=negated, after=(where, extra)), asked)
