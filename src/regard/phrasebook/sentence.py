"""A sentence in both languages: clauses, alone or joined, and the mark that ends them."""

from dataclasses import dataclass, replace

from regard.phrasebook.clause import Clause
from regard.phrasebook.english_clause import english_clause
from regard.phrasebook.italian import elide
from regard.phrasebook.italian_clause import italian_clause
from regard.phrasebook.words import Phrase, phrase


@dataclass(frozen=True)
class Sentence:
    """What a chapter gives: a phrase and `.`, `?` or `!`."""

    phrase: Phrase
    mark: str = "."


COMMA, STOP, ASKED = phrase(",", ","), phrase(".", "."), phrase("?", "?")
PLEASE = phrase(",/0 please/1", ",/0 per/1 favore/1")


def say(clause: Clause) -> Phrase:
    """The clause in both languages."""
    return Phrase(english_clause(clause), italian_clause(clause))


def tell(clause: Clause) -> Sentence:
    """The clause as a statement."""
    return Sentence(say(clause))


def ask(clause: Clause) -> Sentence:
    """The clause as a question."""
    return Sentence(say(replace(clause, question=True)), "?")


def speak(clause: Clause, asked: bool) -> Sentence:
    """The clause as a question or a statement."""
    return ask(clause) if asked else tell(clause)


def join(*parts: Phrase) -> Phrase:
    """Phrases one after the other, each with meanings of its own: `e` and `è stanco` are `ed è stanco`."""
    joined = Phrase((), ())
    for place, part in enumerate(parts):
        joined += part.under(str(place))
    return Phrase(joined.english, elide(joined.italian))
