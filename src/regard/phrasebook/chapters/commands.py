"""Telling a friend what to do: the imperative, the infinitive after `non`, and the pronoun that hangs on the verb."""

from regard.phrasebook import conjugation, italian
from regard.phrasebook.dice import Dice
from regard.phrasebook.draws import NAMES, thing
from regard.phrasebook.noun_phrase import NounPhrase, noun_phrase
from regard.phrasebook.nouns import nouns
from regard.phrasebook.pronouns import PEOPLE, YOU, I, Pronoun
from regard.phrasebook.sentence import COMMA, PLEASE, Sentence, join
from regard.phrasebook.verbs import ACTIONS, GIVING, TO_PEOPLE, Verb, some_of
from regard.phrasebook.when_and_where import HOME, SOON, TOWN
from regard.phrasebook.words import Phrase, Word

_ORDERS = some_of(
    ACTIONS,
    """
    open close clean wash repair turn_on turn_off buy read bring take cut pay choose finish study taste answer listen_to
    prepare sell use visit explain look_for
""",
)
_BANS = some_of(
    ACTIONS, "open close eat drink buy sell forget lose break turn_on turn_off take read use cut wash order"
)
_WHOM = tuple(pronoun for pronoun in PEOPLE if pronoun.person != 2)


def commands(dice: Dice) -> Sentence:
    """Open the window, please. Do not sell the house! Marco, turn off the light."""
    banned = dice.chance(40)
    verb = dice.pick(_BANS if banned else _ORDERS)
    what = thing(dice, dice.pick(verb.objects), I if banned else dice.pick((I, YOU)), sparse=True)
    return _called(dice, command(verb, what, banned=banned))


def commands_to_help(dice: Dice) -> Sentence:
    """Call me tomorrow. Give me the salt, please. Wait for us at the station. Show her the photos."""
    whom = dice.pick(_WHOM)
    if dice.chance(45):
        verb = GIVING[dice.pick(("give", "bring", "show", "send", "lend", "write", "tell"))]
        what = thing(dice, dice.pick(verb.objects), YOU, sparse=True)
        if verb.english == "give" and dice.chance(40):
            what = noun_phrase(dice.pick(nouns("+basics bread butter water")))
        return _called(dice, command(verb, what, whom, whom.indirect))
    verb = TO_PEOPLE[dice.pick(("call", "help", "wait for", "listen to", "invite", "thank", "greet", "look for"))]
    said = command(verb, None, whom, whom.direct)
    if verb.english in {"wait for", "look for"} and dice.chance(45):
        return Sentence(join(said, dice.pick((*HOME, *TOWN)).at))
    return Sentence(join(said, dice.pick(SOON))) if dice.chance(30) else _called(dice, said)


def command(
    verb: Verb, what: NounPhrase | None, whom: Pronoun | None = None, clitic: str = "", banned: bool = False
) -> Phrase:
    """What a friend is told to do or not to do, with what; `clitic` is the Italian pronoun for `whom`."""
    head, *particles = verb.english.split()
    particle = "particle" if verb.preposition and particles else "verb"
    said: tuple[Word, ...] = (Word("do", ("verb",)), Word("not", ("not",))) if banned else ()
    said += (Word(head, ("verb",)), *(Word(text, (particle,)) for text in particles))
    said += tuple(Word(text, ("whom",)) for text in whom.object.split()) if whom else ()
    form = verb.infinitive if banned else conjugation.imperative(verb.infinitive, clitic)
    detto: tuple[Word, ...] = (Word("non", ("not",)),) if banned else ()
    detto += (Word(form, ("verb", "whom")),)
    if what is None:
        return Phrase(said, detto)
    named = what.under("what")
    objects = italian.prepend(Word(verb.preposition, (particle,)), named.italian) if verb.preposition else named.italian
    return Phrase(said + named.english, detto + objects)


def _called(dice: Dice, said: Phrase) -> Sentence:
    """With `please`, with a name, or with a bang."""
    roll = dice.below(100)
    if roll < 40:
        return Sentence(join(said, PLEASE))
    if roll < 60:
        return Sentence(join(dice.pick(NAMES), COMMA, said))
    return Sentence(said, "!")
