"""Two clauses, the second with a pronoun that points back to the first: the gender of `it` is the noun's."""

from regard.phrasebook.adjectives import Adjective
from regard.phrasebook.chapters.asking import WHERE
from regard.phrasebook.clause import Clause, Tense
from regard.phrasebook.dice import Dice
from regard.phrasebook.draws import POINTED, own, owner, subject, thing
from regard.phrasebook.noun_phrase import NounPhrase, agreeing, noun_phrase
from regard.phrasebook.nouns import Noun, nouns
from regard.phrasebook.pronouns import OWNERS, PEOPLE, WE, YOU, YOU_TWO, I, Pronoun, pointing_to
from regard.phrasebook.sentence import ASKED, COMMA, STOP, Sentence, join, say
from regard.phrasebook.verbs import ACTIONS, BE, GIVING, MODALS, STATES, TO_PEOPLE
from regard.phrasebook.words import phrase

AND, BUT, IF = phrase("and", "e"), phrase("but", "ma"), phrase("if", "se")


def _read(table: str) -> tuple[tuple[list[str], tuple[Noun, ...]], ...]:
    """Entries of `words : nouns`, between bars."""
    entries = (entry.split(":") for entry in table.split("|"))
    return tuple(([word.replace("_", " ") for word in words.split()], nouns(things)) for words, things in entries)


# what is done to a thing, one after the other
_CHAINS = _read("""
    buy eat : +larder +prepared +produce +dish | cook eat : meat fish chicken potato mushroom steak egg |
    order eat : pizza steak fish soup sandwich cake | prepare eat : cake salad pizza |
    wash eat : apple pear peach tomato |
    buy cook : fish meat chicken potato mushroom steak rice | buy drink : +drink | order drink : beer wine coffee |
    prepare drink : coffee tea | buy read : book newspaper magazine novel | find read : letter message book newspaper |
    write send : letter message email postcard | begin finish : book novel exercise | open read : letter message email |
    look_for find : +belonging +pair hat restaurant | break repair : computer watch chair lamp |
    repair sell : car bicycle watch computer motorbike | open close : door window gate box suitcase drawer |
    choose buy : +garment ring gift | find sell : ring watch | wash cut : apple onion tomato
""")
_SURPRISES = _read("""
    buy lose : +belonging scarf hat gloves | lose find : +belonging hat scarf gloves sunglasses |
    buy forget : +belonging | wash break : +tableware | buy break : +tableware mirror lamp watch |
    buy sell : car house bicycle ring computer
""")


def chains(dice: Dice) -> Sentence:
    """I bought the apples and I ate them. Maria lost the ring, but we found it."""
    surprising = dice.chance(30)
    (first, second), things = dice.pick(_SURPRISES if surprising else _CHAINS)
    who = subject(dice)
    what = thing(dice, dice.pick(things), who)
    tense: Tense = "past" if surprising or first == "break" or dice.chance(75) else "future"
    one = say(Clause(who, ACTIONS[first], what, tense=tense))
    two = say(Clause(_and_then(dice, who), ACTIONS[second], pointing_to(what.gender, what.plural), tense=tense))
    return Sentence(join(one, COMMA, BUT, two) if surprising else join(one, AND, two))


def _and_then(dice: Dice, who: NounPhrase | Pronoun) -> Pronoun:
    """The same one, or one whose verb has another ending: a dropped subject is taken for the last one."""
    if who is not YOU_TWO and dice.chance(50):
        return own(who)
    return dice.pick([other for other in PEOPLE if (other.person, other.plural) != (who.person, who.plural)])


def not_found(dice: Dice) -> Sentence:
    """Where is the key? I do not see it. Where are my shoes? We have to find them."""
    noun = dice.pick(nouns("+belonging +reading +garment +pair +tableware bicycle car dog cat"))
    what = noun_phrase(noun, owner(dice) if dice.chance(60) else "the", dice.chance(30))
    who, it = dice.pick((I, I, WE)), pointing_to(what.gender, what.plural)
    answer = dice.pick((
        Clause(who, TO_PEOPLE["see"], it, negated=True),
        Clause(who, ACTIONS["find"], it, modal=MODALS["can"], negated=True),
        Clause(who, ACTIONS["find"], it, modal=MODALS["have to"]),
        Clause(who, ACTIONS["look for"], it, tense="progressive"),
        Clause(who, ACTIONS["lose"], it, tense="past"),
        Clause(who, STATES["want"], it),
    ))  # fmt: skip
    return Sentence(join(say(Clause(what, BE, asking=WHERE, question=True)), ASKED, say(answer)))


# how a thing is, and what is to be done, what one would like to do, and what one cannot do
_URGENT = _read("""
    dirty sporco wash : car +garment +tableware trousers socks | dirty sporco clean : +room shoes fridge house |
    open aperto close : +opening suitcase drawer | closed chiuso open : +opening |
    broken rotto repair : computer watch chair lamp | important importante understand : question lesson problem
""")
_TEMPTING = _read("""
    good buono eat : +larder +prepared +produce +dish | good buono drink : +drink | good buono taste : +larder +dish |
    beautiful bello buy : +garment +pair ring bag umbrella backpack lamp | interesting interessante read : +reading |
    old vecchio sell : +vehicle +furniture | beautiful bello visit : church castle museum island city |
    easy facile finish : exercise
""")
_FORBIDDING = _read("expensive caro buy : +garment +pair +furniture ring watch computer phone suitcase bag")


def remedies(dice: Dice) -> Sentence:
    """The car is dirty and I have to wash it. This book is interesting. Do you want to read it?"""
    table, modals = dice.pick((
        (_URGENT, ("have to", "must")), (_TEMPTING, ("want to", "would like to", "can")), (_FORBIDDING, ("can",)),
    ))  # fmt: skip
    (english, italian, action), things = dice.pick(table)
    noun = dice.pick(things)
    owned = noun.kind in {"belonging", "garment", "pair", "vehicle", "room"} and action in {"wash", "clean", "sell"}
    whose = dice.pick(OWNERS) if owned and dice.chance(50) else dice.pick(POINTED)
    what = noun_phrase(noun, whose, dice.chance(30) and not noun.is_mass)
    is_so = say(Clause(what, BE, after=(agreeing(Adjective(english, italian), what),)))
    verb, it = ACTIONS.get(action) or STATES[action], pointing_to(what.gender, what.plural)
    if table is not _FORBIDDING and dice.chance(35):
        modal = MODALS["can" if table is _URGENT else dice.pick(("can", "want to", "would like to"))]
        who = dice.pick((YOU, YOU, YOU_TWO))
        return Sentence(join(is_so, STOP, say(Clause(who, verb, it, modal=modal, question=True))), "?")
    modal = MODALS[dice.pick(modals)]
    clause = Clause(dice.pick(PEOPLE), verb, it, modal=modal, negated=table is _FORBIDDING)
    return Sentence(join(is_so, AND, say(clause)))


def offers(dice: Dice) -> Sentence:
    """If you want the keys, I will give them to you. If she needs the book, we will lend it to her."""
    whom = dice.pick([pronoun for pronoun in PEOPLE if pronoun is not YOU_TWO])
    giver = dice.pick([other for other in PEOPLE if other.person != whom.person])
    verb = GIVING[dice.pick(("give", "lend", "bring", "sell", "show", "send"))]
    noun = dice.pick([noun for noun in verb.objects if not noun.is_mass])
    what = noun_phrase(noun, dice.pick(POINTED), dice.chance(35))
    wish = say(Clause(whom, dice.pick((STATES["want"], STATES["want"], STATES["need"])), what))
    gift = say(Clause(giver, verb, pointing_to(what.gender, what.plural), whom, tense="future"))
    return Sentence(join(IF, wish, COMMA, gift))
