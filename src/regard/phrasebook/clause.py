"""A clause: who does what to whom, when and how, before either language has put it in order.

`english_clause.py` and `italian_clause.py` each say it in their own way. The meanings that the two share:
`subject`, `verb`, `auxiliary` (what carries the tense), `modal`, `object`, `receiver`, `not`, and the phrases around.
A pronoun that Italian drops means `subject`, and so does the verb whose ending stands for it.
"""

from dataclasses import dataclass
from typing import Literal

from regard.phrasebook.noun_phrase import NounPhrase
from regard.phrasebook.pronouns import Pronoun
from regard.phrasebook.verbs import Verb
from regard.phrasebook.words import Phrase, phrase

# I eat, mangio · I am eating, sto mangiando · I ate, ho mangiato · I have eaten, ho mangiato · I will eat, mangerò
Tense = Literal["present", "progressive", "past", "perfect", "future"]

Noun = NounPhrase | Pronoun


@dataclass(frozen=True, eq=False)
class Adverb(Phrase):
    """An adverb that stands beside the verb: always, already, never."""

    last: bool = False  # English has it at the end: I have not eaten yet
    negative: bool = False  # Italian says `non` as well: non … mai


@dataclass(frozen=True)
class Clause:
    """A sentence without its full stop, or a part of a longer one."""

    subject: Noun
    verb: Verb
    object: Noun | None = None
    receiver: Noun | None = None
    tense: Tense = "present"
    modal: Verb | None = None
    negated: bool = False
    adverb: Adverb | None = None
    degree: Phrase | None = None  # very much: after the object in English, after the verb in Italian
    after: tuple[Phrase, ...] = ()
    asking: Phrase | None = None  # where, when, what: first in both languages
    question: bool = False  # whether English turns the order around


def _adverb(english: str, italian: str, last: bool = False, negative: bool = False) -> Adverb:
    words = phrase(english, italian)
    return Adverb(words.english, words.italian, last, negative)


ALWAYS, OFTEN = _adverb("always", "sempre"), _adverb("often", "spesso")
NEVER = _adverb("never", "mai", negative=True)
ALREADY, JUST, EVER = _adverb("already", "già"), _adverb("just", "appena"), _adverb("ever", "mai")
YET = _adverb("yet", "ancora", last=True)
STILL = _adverb("still", "ancora")

VERY_MUCH, A_LOT = phrase("very much", "molto"), phrase("a lot", "molto")
A_LITTLE, TOO_MUCH = phrase("a little", "un po'"), phrase("too much", "troppo")
