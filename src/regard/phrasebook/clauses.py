"""Clauses: subject, verb, objects and adverbials, and their word order in English and Italian; sentences.

Glosses that both languages share: `subject`, `verb`, `auxiliary` (the word with the tense), `modal`, `object`,
`receiver`, `not`, and the roles of other phrases. A pronoun that Italian drops has the gloss `subject`, and so has the
verb whose ending expresses it.

English: subject, verb, object; questions and negations need an auxiliary, which is `do` if there is no other.
Italian: [subject] [non] [pronouns] verb [adverb] [participle, gerund or infinitive] object. Subject pronouns are
dropped; object pronouns precede the finite verb: `ti voglio vedere`. Participles agree with the subject after essere,
and with a lo, la, li or le before avere: `le ho mangiate`.
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from regard.phrasebook import english, italian
from regard.phrasebook.italian import elide
from regard.phrasebook.noun_phrases import NounPhrase, Pronoun, combine_clitics, reflexive
from regard.phrasebook.phrases import GlossedWord, Phrase, Words, phrase, with_role
from regard.phrasebook.verbs import Verb, tail_glosses

# I eat, mangio · I am eating, sto mangiando · I ate, ho mangiato · I have eaten, ho mangiato · I will eat, mangerò
Tense = Literal["present", "progressive", "past", "perfect", "future"]

Nominal = NounPhrase | Pronoun


@dataclass(frozen=True, eq=False)
class Adverb(Phrase):
    """An adverb next to the verb: always, already, never."""

    last: bool = False  # at the end in English: I have not eaten yet
    negative: bool = False  # Italian adds `non`: non … mai


@dataclass(frozen=True)
class Clause:
    """A sentence without its final mark, or a part of a longer one."""

    subject: Nominal
    verb: Verb
    object: Nominal | None = None
    receiver: Nominal | None = None
    tense: Tense = "present"
    modal: Verb | None = None
    negated: bool = False
    adverb: Adverb | None = None
    degree: Phrase | None = None  # very much: after the object in English, after the verb in Italian
    after: tuple[Phrase, ...] = ()
    asking: Phrase | None = None  # question word: where, when, what; first in both languages
    question: bool = False  # whether English inverts subject and auxiliary


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
_OPERATORS = {"can", "must", "would"}  # verbs that need no `do` in negations and questions


def english_clause(clause: Clause) -> Words:
    """Return the clause in English.

    >>> from regard.phrasebook.noun_phrases import SHE, YOU
    >>> from regard.phrasebook.verbs import TO_PEOPLE
    >>> from regard.phrasebook.phrases import spell
    >>> spell(english_clause(Clause(SHE, TO_PEOPLE["wait for"], YOU, negated=True)))
    'She does not wait for you'
    """
    operator, main = _english_verbs(clause)
    subject = _english_subject(clause.subject)
    words = list(with_role("asking", clause.asking.english)) if clause.asking else []
    words += [*operator, *subject] if clause.question else [*subject, *operator]
    if clause.negated:
        if words[-1].text == "can":
            words[-1] = GlossedWord("cannot", (*words[-1].glosses, "not"))
        else:
            words.append(GlossedWord("not", ("not",)))
    adverb = clause.adverb
    if adverb and not adverb.last:
        words += with_role("adverb", adverb.english)
    words += main
    words += _english_objects(clause)
    for role, after in (("degree", clause.degree), ("adverb", adverb if adverb and adverb.last else None)):
        words += with_role(role, after.english) if after else ()
    for place, after in enumerate(clause.after):
        words += with_role(f"after{place}", after.english)
    return tuple(words)


def _english_verbs(clause: Clause) -> tuple[Words, Words]:
    """Return the auxiliary, which `not` follows and questions invert, and the rest of the verb."""
    first, *rest = _verb_words(clause.modal or clause.verb, "modal" if clause.modal else "verb")
    if clause.modal:
        rest = [GlossedWord(text, ("verb",) if text == "to" else glosses) for text, glosses in rest]
        rest += _verb_words(clause.verb, "verb")
    person, plural = clause.subject.person, clause.subject.english_plural
    third, in_past = person == 3 and not plural, clause.tense == "past"
    finite = (*first.glosses, "auxiliary")
    if clause.tense == "future":
        operator, form = "will", first.text
    elif clause.tense == "progressive":
        operator, form = english.be(person, plural), english.gerund(first.text)
    elif clause.tense == "perfect":
        operator, form = "has" if third else "have", english.participle(first.text)
    elif first.text == "be":
        return (GlossedWord(english.be(person, plural, in_past), finite),), tuple(rest)
    elif first.text in _OPERATORS:
        return (GlossedWord(first.text, finite),), tuple(rest)
    elif clause.question or clause.negated:
        operator, form = "did" if in_past else "does" if third else "do", first.text
    else:
        form = english.past(first.text) if in_past else english.third_person(first.text) if third else first.text
        return (), (GlossedWord(form, finite), *rest)
    return (GlossedWord(operator, ("auxiliary",)),), (GlossedWord(form, first.glosses), *rest)


@cache
def _verb_words(verb: Verb, glosses: str) -> Words:
    """Return the words of a verb; the tail of `have breakfast` is aligned with that of `fare colazione`."""
    head, *tail = verb.english.split()
    tail_means = tail_glosses(verb, len(tail))
    after = (GlossedWord(text, (gloss or glosses,)) for text, gloss in zip(tail, tail_means, strict=True))
    return (GlossedWord(head, (glosses,)), *after)


def _english_subject(subject: Nominal) -> Words:
    if isinstance(subject, Pronoun):
        return tuple(GlossedWord(text, ("subject",)) for text in subject.subject.split())
    return with_role("subject", subject.english)


def _english_object(noun: Nominal, role: str) -> Words:
    if isinstance(noun, Pronoun):
        return tuple(GlossedWord(text, (role,)) for text in noun.object.split())
    return with_role(role, noun.english)


def _english_objects(clause: Clause) -> Words:
    """Return the objects: I give her the book; I give it to her; I give the book to Maria."""
    thing = _english_object(clause.object, "object") if clause.object else ()
    if clause.receiver is None:
        return thing
    receiver = _english_object(clause.receiver, "receiver")
    if isinstance(clause.receiver, Pronoun) and not isinstance(clause.object, Pronoun):
        return receiver + thing
    to = GlossedWord("to", ("receiver",) if isinstance(clause.receiver, Pronoun) else ("receiver.to",))
    return (*thing, to, *receiver)


_IMPERSONAL_SUBJECT = NounPhrase((), ())  # of dative verbs with an infinitive: mi piace nuotare
_SUBJECT_FIRST = {"perché"}  # after other question words the subject follows: dove lavora Anna?


def italian_clause(clause: Clause) -> Words:
    """Return the clause in Italian.

    >>> from regard.phrasebook.noun_phrases import SHE, YOU
    >>> from regard.phrasebook.verbs import TO_PEOPLE
    >>> from regard.phrasebook.phrases import spell
    >>> spell(italian_clause(Clause(YOU, TO_PEOPLE["see"], SHE, tense="past", negated=True)))
    "Non l'hai vista"
    """
    asking = with_role("asking", clause.asking.italian) if clause.asking else ()
    first, last = _noun_phrases_around_verb(clause)
    if asking and asking[-1].text not in _SUBJECT_FIRST:
        first, last = (), (*last, *first)
    words = [*asking, *first, *_italian_negation(clause), *_italian_pronouns(clause)]
    finite, rest = _italian_verbs(clause)
    words.append(finite)
    if clause.adverb:
        words += with_role("adverb", clause.adverb.italian)
    words += rest
    words += with_role("degree", clause.degree.italian) if clause.degree else ()
    words += last
    for place, after in enumerate(clause.after):
        words += with_role(f"after{place}", after.italian)
    return italian.elide(words)


def _agrees_with(clause: Clause) -> Nominal:
    """Return what the Italian verb agrees with: the subject, but the English object of a dative verb."""
    if clause.verb.dative and not clause.modal:
        return clause.object or _IMPERSONAL_SUBJECT
    return clause.subject


def _noun_phrases_around_verb(clause: Clause) -> tuple[Words, Words]:
    """Return the noun phrases before and after the verb, without pronouns."""
    subject, thing, receiver = clause.subject, clause.object, clause.receiver
    before: Words = ()
    after: Words = ()
    if isinstance(subject, NounPhrase):
        before = with_role("subject", subject.italian)
        if clause.verb.dative:
            to_them = with_role("subject", subject.dative)
            before = to_them or italian.prepend(GlossedWord("a", before[-1].glosses), before)
    if isinstance(thing, NounPhrase):
        after = with_role("object", thing.italian)
        if clause.verb.preposition:
            glosses = "particle" if " " in clause.verb.english else "verb"
            after = italian.prepend(GlossedWord(clause.verb.preposition, (glosses,)), after)
    if isinstance(receiver, NounPhrase):
        after += italian.prepend(GlossedWord("a", ("receiver.to",)), with_role("receiver", receiver.italian))
    return before, after


def _italian_negation(clause: Clause) -> Words:
    if clause.negated:
        return (GlossedWord("non", ("not",)),)
    if clause.adverb and clause.adverb.negative:
        return (GlossedWord("non", tuple(f"adverb.{gloss}" for gloss in clause.adverb.english[0].glosses)),)
    return ()


def _italian_pronouns(clause: Clause) -> Words:
    """Return the clitic pronouns: mi, ti, si …; me lo, glielo."""
    subject, thing, receiver = clause.subject, clause.object, clause.receiver
    if clause.verb.dative:
        return (GlossedWord(subject.indirect, ("subject",)),) if isinstance(subject, Pronoun) else ()
    if clause.verb.reflexive:
        return (GlossedWord(reflexive(subject.person, subject.plural), ("verb",)),)
    direct = thing.direct if isinstance(thing, Pronoun) else ""
    indirect = receiver.indirect if isinstance(receiver, Pronoun) else ""
    if direct and indirect:
        forms = combine_clitics(indirect, direct)
        glosses = (("receiver", "object"),) if len(forms) == 1 else (("receiver",), ("object",))
        return tuple(GlossedWord(text, gloss) for text, gloss in zip(forms, glosses, strict=True))
    if direct or indirect:
        return (GlossedWord(direct or indirect, ("object" if direct else "receiver",)),)
    return ()


def _italian_verbs(clause: Clause) -> tuple[GlossedWord, Words]:
    """Return the finite verb, and the parts of the verb after it."""
    verb, agreed = clause.verb, _agrees_with(clause)
    person, plural, infinitive = agreed.person, agreed.plural, verb.infinitive
    _, *tail = verb.italian.split()
    after = tuple(GlossedWord(t, (m or "verb",)) for t, m in zip(tail, tail_glosses(verb, len(tail)), strict=True))
    ending = "object" if verb.dative else "subject"
    if clause.modal:
        finite = GlossedWord(_italian_present(clause.modal, person, plural), ("modal", "auxiliary", ending))
        return finite, (GlossedWord(infinitive, ("verb",)), *after)
    if clause.tense == "progressive":
        stare = italian.present("stare", person, plural)
        return GlossedWord(stare, ("auxiliary", ending)), (
            GlossedWord(italian.gerund(infinitive), ("verb",)),
            *after,
        )
    if clause.tense in {"past", "perfect"}:
        auxiliary = italian.present("essere" if verb.with_essere else "avere", person, plural)
        return GlossedWord(auxiliary, ("auxiliary", ending)), (
            GlossedWord(_italian_participle(clause), ("verb",)),
            *after,
        )
    is_future = clause.tense == "future"
    form = italian.future(infinitive, person, plural) if is_future else _italian_present(verb, person, plural)
    return GlossedWord(form, ("verb", "auxiliary", ending)), after


def _italian_present(verb: Verb, person: int, plural: bool) -> str:
    if verb.english.startswith("would like"):
        return italian.would_like(person, plural)
    return italian.present(verb.infinitive, person, plural)


def _italian_participle(clause: Clause) -> str:
    form = italian.participle(clause.verb.infinitive)
    if clause.verb.with_essere:
        agreed = _agrees_with(clause)
        return italian.agree(form, agreed.gender, agreed.plural)
    if isinstance(clause.object, Pronoun) and clause.object.person == 3:
        return italian.agree(form, clause.object.gender, clause.object.plural)
    return form


@dataclass(frozen=True)
class Sentence:
    """A phrase and its final mark: `.`, `?` or `!`."""

    phrase: Phrase
    mark: str = "."


COMMA, FULL_STOP, QUESTION_MARK = phrase(",", ","), phrase(".", "."), phrase("?", "?")
PLEASE = phrase(",/0 please/1", ",/0 per/1 favore/1")


def render(clause: Clause) -> Phrase:
    """Return the clause in both languages."""
    return Phrase(english_clause(clause), italian_clause(clause))


def as_statement(clause: Clause) -> Sentence:
    """Return the clause as a statement."""
    return Sentence(render(clause))


def as_question(clause: Clause) -> Sentence:
    """Return the clause as a question."""
    return Sentence(render(replace(clause, question=True)), "?")


def as_sentence(clause: Clause, is_question: bool) -> Sentence:
    """Return the clause as a question or a statement."""
    return as_question(clause) if is_question else as_statement(clause)


def join(*parts: Phrase) -> Phrase:
    """Join phrases, each with glosses of its own: `e` and `è stanco` become `ed è stanco`."""
    joined = Phrase((), ())
    for place, part in enumerate(parts):
        joined += part.with_role(str(place))
    return Phrase(joined.english, elide(joined.italian))
