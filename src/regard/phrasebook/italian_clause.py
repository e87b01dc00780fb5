"""How Italian orders a clause: [subject] [non] [pronouns] verb [adverb] [participle, gerund or infinitive] object.

Subject pronouns are dropped. Object pronouns climb to the finite verb: `ti voglio vedere`. Participles agree with the
subject after essere, and after avere with a lo, la, li or le before it: `le ho mangiate`.
"""

from regard.phrasebook import conjugation, italian
from regard.phrasebook.clause import Clause, Noun
from regard.phrasebook.noun_phrase import NounPhrase
from regard.phrasebook.pronouns import Pronoun, combine, reflexive
from regard.phrasebook.verbs import Verb, tail_meanings
from regard.phrasebook.words import Word, Words, under

_THE_DEED = NounPhrase((), ())  # what pleases may be a deed: mi piace nuotare
_SUBJECT_FIRST = {"perché"}  # after other question words the subject follows the verb: dove lavora Anna?


def italian_clause(clause: Clause) -> Words:
    """The clause in Italian.

    >>> from regard.phrasebook.pronouns import SHE, YOU
    >>> from regard.phrasebook.verbs import TO_PEOPLE
    >>> from regard.phrasebook.words import spell
    >>> spell(italian_clause(Clause(YOU, TO_PEOPLE["see"], SHE, tense="past", negated=True)))
    "Non l'hai vista"
    """
    asking = under("asking", clause.asking.italian) if clause.asking else ()
    first, last = _around(clause)
    if asking and asking[-1].text not in _SUBJECT_FIRST:
        first, last = (), (*last, *first)
    words = [*asking, *first, *_negation(clause), *_pronouns(clause)]
    finite, rest = _verbs(clause)
    words.append(finite)
    if clause.adverb:
        words += under("adverb", clause.adverb.italian)
    words += rest
    words += under("degree", clause.degree.italian) if clause.degree else ()
    words += last
    for place, after in enumerate(clause.after):
        words += under(f"after{place}", after.italian)
    return italian.elide(words)


def _agrees_with(clause: Clause) -> Noun:
    """What the Italian verb agrees with: of a dative verb, that is the English object."""
    if clause.verb.dative and not clause.modal:
        return clause.object or _THE_DEED
    return clause.subject


def _around(clause: Clause) -> tuple[Words, Words]:
    """The noun phrases before and after the verb; pronouns are neither."""
    subject, thing, receiver = clause.subject, clause.object, clause.receiver
    before: Words = ()
    after: Words = ()
    if isinstance(subject, NounPhrase):
        before = under("subject", subject.italian)
        if clause.verb.dative:
            to_them = under("subject", subject.dative)
            before = to_them or italian.prepend(Word("a", before[-1].means), before)
    if isinstance(thing, NounPhrase):
        after = under("object", thing.italian)
        if clause.verb.preposition:
            means = "particle" if " " in clause.verb.english else "verb"
            after = italian.prepend(Word(clause.verb.preposition, (means,)), after)
    if isinstance(receiver, NounPhrase):
        after += italian.prepend(Word("a", ("receiver.to",)), under("receiver", receiver.italian))
    return before, after


def _negation(clause: Clause) -> Words:
    if clause.negated:
        return (Word("non", ("not",)),)
    if clause.adverb and clause.adverb.negative:
        return (Word("non", tuple(f"adverb.{meaning}" for meaning in clause.adverb.english[0].means)),)
    return ()


def _pronouns(clause: Clause) -> Words:
    """mi, ti, si …; me lo, glielo."""
    subject, thing, receiver = clause.subject, clause.object, clause.receiver
    if clause.verb.dative:
        return (Word(subject.indirect, ("subject",)),) if isinstance(subject, Pronoun) else ()
    if clause.verb.reflexive:
        return (Word(reflexive(subject.person, subject.plural), ("verb",)),)
    direct = thing.direct if isinstance(thing, Pronoun) else ""
    indirect = receiver.indirect if isinstance(receiver, Pronoun) else ""
    if direct and indirect:
        forms = combine(indirect, direct)
        means = (("receiver", "object"),) if len(forms) == 1 else (("receiver",), ("object",))
        return tuple(Word(text, meaning) for text, meaning in zip(forms, means, strict=True))
    if direct or indirect:
        return (Word(direct or indirect, ("object" if direct else "receiver",)),)
    return ()


def _verbs(clause: Clause) -> tuple[Word, Words]:
    """The finite verb, and what of the verb comes after it."""
    verb, agreed = clause.verb, _agrees_with(clause)
    person, plural, infinitive = agreed.person, agreed.plural, verb.infinitive
    _, *tail = verb.italian.split()
    after = tuple(Word(t, (m or "verb",)) for t, m in zip(tail, tail_meanings(verb, len(tail)), strict=True))
    ending = "object" if verb.dative else "subject"
    if clause.modal:
        finite = Word(_present(clause.modal, person, plural), ("modal", "auxiliary", ending))
        return finite, (Word(infinitive, ("verb",)), *after)
    if clause.tense == "progressive":
        stare = conjugation.present("stare", person, plural)
        return Word(stare, ("auxiliary", ending)), (Word(conjugation.gerund(infinitive), ("verb",)), *after)
    if clause.tense in {"past", "perfect"}:
        auxiliary = conjugation.present("essere" if verb.with_essere else "avere", person, plural)
        return Word(auxiliary, ("auxiliary", ending)), (Word(_participle(clause), ("verb",)), *after)
    is_future = clause.tense == "future"
    form = conjugation.future(infinitive, person, plural) if is_future else _present(verb, person, plural)
    return Word(form, ("verb", "auxiliary", ending)), after


def _present(verb: Verb, person: int, plural: bool) -> str:
    if verb.english.startswith("would like"):
        return conjugation.would_like(person, plural)
    return conjugation.present(verb.infinitive, person, plural)


def _participle(clause: Clause) -> str:
    form = conjugation.participle(clause.verb.infinitive)
    if clause.verb.with_essere:
        agreed = _agrees_with(clause)
        return italian.agree(form, agreed.gender, agreed.plural)
    if isinstance(clause.object, Pronoun) and clause.object.person == 3:
        return italian.agree(form, clause.object.gender, clause.object.plural)
    return form
