"""How English orders a clause: subject, verb, object; `do` where a question or a `not` needs a verb to hold on to."""

from functools import cache

from regard.phrasebook import english
from regard.phrasebook.clause import Clause, Noun
from regard.phrasebook.pronouns import Pronoun
from regard.phrasebook.verbs import Verb, tail_meanings
from regard.phrasebook.words import Word, Words, under

_OPERATORS = {"can", "must", "would"}  # the verbs that take `not` and turn around by themselves


def english_clause(clause: Clause) -> Words:
    """The clause in English.

    >>> from regard.phrasebook.pronouns import SHE, YOU
    >>> from regard.phrasebook.verbs import TO_PEOPLE
    >>> from regard.phrasebook.words import spell
    >>> spell(english_clause(Clause(SHE, TO_PEOPLE["wait for"], YOU, negated=True)))
    'She does not wait for you'
    """
    operator, main = _verbs(clause)
    subject = _as_subject(clause.subject)
    words = list(under("asking", clause.asking.english)) if clause.asking else []
    words += [*operator, *subject] if clause.question else [*subject, *operator]
    if clause.negated:
        if words[-1].text == "can":
            words[-1] = Word("cannot", (*words[-1].means, "not"))
        else:
            words.append(Word("not", ("not",)))
    adverb = clause.adverb
    if adverb and not adverb.last:
        words += under("adverb", adverb.english)
    words += main
    words += _objects(clause)
    for role, after in (("degree", clause.degree), ("adverb", adverb if adverb and adverb.last else None)):
        words += under(role, after.english) if after else ()
    for place, after in enumerate(clause.after):
        words += under(f"after{place}", after.english)
    return tuple(words)


def _verbs(clause: Clause) -> tuple[Words, Words]:
    """The operator, which `not` follows and questions turn around, and the rest of the verb."""
    first, *rest = _words_of(clause.modal or clause.verb, "modal" if clause.modal else "verb")
    if clause.modal:
        rest = [Word(text, ("verb",) if text == "to" else means) for text, means in rest]
        rest += _words_of(clause.verb, "verb")
    person, plural = clause.subject.person, clause.subject.english_plural
    third, in_past = person == 3 and not plural, clause.tense == "past"
    finite = (*first.means, "auxiliary")
    if clause.tense == "future":
        operator, form = "will", first.text
    elif clause.tense == "progressive":
        operator, form = english.be(person, plural), english.gerund(first.text)
    elif clause.tense == "perfect":
        operator, form = "has" if third else "have", english.participle(first.text)
    elif first.text == "be":
        return (Word(english.be(person, plural, in_past), finite),), tuple(rest)
    elif first.text in _OPERATORS:
        return (Word(first.text, finite),), tuple(rest)
    elif clause.question or clause.negated:
        operator, form = "did" if in_past else "does" if third else "do", first.text
    else:
        form = english.past(first.text) if in_past else english.third_person(first.text) if third else first.text
        return (), (Word(form, finite), *rest)
    return (Word(operator, ("auxiliary",)),), (Word(form, first.means), *rest)


@cache
def _words_of(verb: Verb, means: str) -> Words:
    """The words of a verb; the tail of `have breakfast` means that of `fare colazione`, if there is one."""
    head, *tail = verb.english.split()
    tail_means = tail_meanings(verb, len(tail))
    after = (Word(text, (meaning or means,)) for text, meaning in zip(tail, tail_means, strict=True))
    return (Word(head, (means,)), *after)


def _as_subject(subject: Noun) -> Words:
    if isinstance(subject, Pronoun):
        return tuple(Word(text, ("subject",)) for text in subject.subject.split())
    return under("subject", subject.english)


def _as_object(noun: Noun, role: str) -> Words:
    if isinstance(noun, Pronoun):
        return tuple(Word(text, (role,)) for text in noun.object.split())
    return under(role, noun.english)


def _objects(clause: Clause) -> Words:
    """I give her the book; I give it to her; I give the book to Maria."""
    thing = _as_object(clause.object, "object") if clause.object else ()
    if clause.receiver is None:
        return thing
    receiver = _as_object(clause.receiver, "receiver")
    if isinstance(clause.receiver, Pronoun) and not isinstance(clause.object, Pronoun):
        return receiver + thing
    to = Word("to", ("receiver",) if isinstance(clause.receiver, Pronoun) else ("receiver.to",))
    return (*thing, to, *receiver)
