"""Sentences about what people do to each other, and about what people and things are.

Each function draws a sentence; its docstring has examples.
"""

from dataclasses import replace

from regard.phrasebook import italian
from regard.phrasebook.clauses import (
    A_LITTLE,
    A_LOT,
    ALREADY,
    ALWAYS,
    NEVER,
    OFTEN,
    STILL,
    VERY_MUCH,
    YET,
    Clause,
    Nominal,
    Sentence,
    Tense,
    as_question,
    as_sentence,
    as_statement,
    join,
    render,
)
from regard.phrasebook.noun_phrases import (
    HOME,
    IT,
    OWNERS,
    THEY,
    TODAY,
    TOWN,
    YOU,
    YOU_TWO,
    NounPhrase,
    agreeing_adjective,
    noun_phrase,
    places,
    prepositional,
    reflexive,
)
from regard.phrasebook.nouns import (
    CHARACTER,
    COLOR_WORDS,
    FEMININE,
    KINDS,
    MOOD,
    NOUNS,
    Adjective,
    attributive_adjectives,
    nouns,
    predicative_adjectives,
)
from regard.phrasebook.phrases import GlossedWord, Phrase, phrase, years
from regard.phrasebook.sampling import (
    MEN,
    PERSON_NAMES,
    POINTED,
    WOMEN,
    PortableRandom,
    random_object,
    random_owner,
    random_person,
    random_person_except,
    random_pronoun_except,
    random_relative,
    random_subject,
    random_time,
    sometimes,
)
from regard.phrasebook.verbs import BE, BE_HAVING, FEELINGS, GIVING, TO_PEOPLE

_TO_PEOPLE, _FEELINGS, _GIVING = tuple(TO_PEOPLE.values()), tuple(FEELINGS.values()), tuple(GIVING.values())
_LASTING = {"help", "wait for", "look for", "listen to", "call", "thank", "greet"}
_INVITING = places("home restaurant cinema theatre bar seaside lake mountains beach country museum party")


def other_person(rng: PortableRandom, who: Nominal) -> Nominal:
    """Return another person, mostly a pronoun."""
    return random_pronoun_except(rng, who) if rng.chance(70) else random_person_except(rng, who)


def meeting(rng: PortableRandom) -> Sentence:
    """I saw her yesterday. They will not invite us. Are you waiting for me?"""
    is_question, negated = rng.chance(25), rng.chance(20)
    verb, who = rng.choice(_TO_PEOPLE), random_subject(rng, is_question)
    tense: Tense = rng.choice(("past", "past", "past", "future", "future", "progressive"))
    if tense == "progressive" and verb.english not in _LASTING:
        tense = "past"
    clause = Clause(who, verb, other_person(rng, who), tense=tense)
    when = random_time(rng, tense, negated)
    if is_question:
        return as_question(replace(clause, after=sometimes(rng, 30, when)))
    clause = replace(clause, negated=negated)
    if rng.chance(20) and tense != "progressive":
        return Sentence(join(when, render(clause)))
    return as_statement(replace(clause, after=sometimes(rng, 40, when)))


def meeting_there(rng: PortableRandom) -> Sentence:
    """Will you wait for me at home? She met us at the station. They invited him to the theatre."""
    is_question = rng.chance(30)
    who, verb = random_subject(rng, is_question), TO_PEOPLE[rng.choice(("wait for", "see", "meet", "invite", "find"))]
    there = rng.choice(_INVITING).to if verb.english == "invite" else rng.choice((*HOME, *TOWN)).at
    tense: Tense = rng.choice(("past", "future"))
    return as_sentence(Clause(who, verb, other_person(rng, who), tense=tense, after=(there,)), is_question)


def have_met(rng: PortableRandom) -> Sentence:
    """I have already called him. We have never met them."""
    who = random_subject(rng)
    clause = Clause(who, rng.choice(_TO_PEOPLE), random_pronoun_except(rng, who), tense="perfect")
    adverb = rng.choice((ALREADY, YET, NEVER))
    return as_statement(replace(clause, adverb=adverb, negated=adverb is YET))


def feeling(rng: PortableRandom) -> Sentence:
    """I love you very much. Do you know her? They do not understand us."""
    is_question = rng.chance(20)
    verb, who = rng.choice((*_FEELINGS, *[FEELINGS["love"]] * 5)), random_subject(rng, is_question)
    clause = Clause(who, verb, other_person(rng, who))
    if verb.english == "love" and rng.chance(60):
        return as_sentence(replace(clause, degree=rng.choice((VERY_MUCH, VERY_MUCH, A_LOT))), is_question)
    return as_question(clause) if is_question else as_statement(replace(clause, negated=rng.chance(30)))


def calling_often(rng: PortableRandom) -> Sentence:
    """She often calls me. We never see them. He helps us every day. I thank you very much."""
    is_question = rng.chance(20)
    who = random_subject(rng, is_question)
    verb = TO_PEOPLE[rng.choice(("call", "see", "help", "meet", "wait for", "thank", "invite"))]
    clause = Clause(who, verb, other_person(rng, who))
    if verb.english == "thank":
        return (
            as_statement(replace(clause, degree=rng.choice((A_LOT, VERY_MUCH))))
            if not is_question
            else as_question(clause)
        )
    if verb.english == "help" and rng.chance(40):
        return as_sentence(replace(clause, degree=rng.choice((A_LOT, A_LITTLE))), is_question)
    if rng.chance(50):
        return as_sentence(replace(clause, adverb=OFTEN if is_question else rng.choice((OFTEN, NEVER))), is_question)
    return as_sentence(replace(clause, after=(random_time(rng, "present"),)), is_question)


def giving(rng: PortableRandom) -> Sentence:
    """I gave her the book. They will send a letter to my mother. Did you show them the photos?"""
    is_question, negated = rng.chance(25), rng.chance(15)
    verb, who = rng.choice(_GIVING), random_subject(rng, is_question)
    tense: Tense = rng.choice(("past", "past", "past", "future", "future", "progressive"))
    # `explain me the problem` is not English
    receiver = random_person_except(rng, who) if verb.english == "explain" else other_person(rng, who)
    uncounted = negated or receiver in (YOU, YOU_TWO)  # `I gave you two books` has two meanings
    clause = Clause(who, verb, random_object(rng, rng.choice(verb.objects), who, uncounted), receiver, tense=tense)
    if is_question:
        return as_question(clause)
    return as_statement(replace(clause, negated=negated, after=sometimes(rng, 30, random_time(rng, tense, negated))))


def giving_it(rng: PortableRandom) -> Sentence:
    """I gave it to her. Will you show them to me? He has not sent it to us yet."""
    is_question = rng.chance(22)
    verb = GIVING[rng.choice(("give", "send", "show", "lend", "bring", "sell", "explain"))]
    who = random_subject(rng, is_question)
    tense: Tense = rng.choice(("past", "past", "future", "perfect"))
    clause = Clause(who, verb, rng.choice((IT, IT, THEY)), random_pronoun_except(rng, who), tense=tense)
    if tense == "perfect":
        adverb = ALREADY if is_question else rng.choice((ALREADY, YET))
        return as_sentence(replace(clause, adverb=adverb, negated=adverb is YET), is_question)
    negated = not is_question and rng.chance(20)
    when = random_time(rng, tense, negated)
    return as_sentence(replace(clause, after=sometimes(rng, 40, when), negated=negated), is_question)


VERY, TOO, SO = phrase("very", "molto"), phrase("too", "troppo"), phrase("so", "così")
_ABSOLUTE = {"married", "open", "closed", "broken", "alone", "ready", "free", *COLOR_WORDS}  # without degrees
_THINGS = nouns("""
    +larder +prepared +produce +dish +drink +reading +belonging +tableware +garment +pair +furniture +opening +vehicle
    +transport +building +outdoors +room +animal +matter +event
""")
_POSSESSIONS = {"reading", "belonging", "garment", "pair", "vehicle", "room", "furniture"}


def degree(rng: PortableRandom, how: Adjective, percent: int) -> Phrase | None:
    """Return very, too or so, if the adjective has degrees."""
    return rng.choice((VERY, VERY, TOO, SO)) if how.english not in _ABSOLUTE and rng.chance(percent) else None


def moods(rng: PortableRandom) -> Sentence:
    """I am tired. Is your brother angry? We will be ready tomorrow. She is always happy."""
    is_question = rng.chance(22)
    who, how = random_subject(rng, is_question), rng.choice(tuple(MOOD.values()))
    clause = Clause(who, BE, after=(agreeing_adjective(how, who),))
    roll = rng.randbelow(100)
    if roll < 20:
        return as_statement(replace(clause, negated=True)) if not is_question else as_question(clause)
    if roll < 35 and how.english not in {"short", "poor", "married"}:
        return as_sentence(
            replace(clause, adverb=rng.choice((ALWAYS, OFTEN, STILL) if is_question else _HOW_OFTEN)), is_question
        )
    if roll < 50 and how.english not in {"short", "curious"}:
        return as_sentence(
            replace(clause, tense="future", after=(*clause.after, random_time(rng, "future"))), is_question
        )
    graded = agreeing_adjective(how, who, degree(rng, how, 40))
    return as_sentence(replace(clause, after=(graded, *sometimes(rng, 15, TODAY))), is_question)


_HOW_OFTEN = (ALWAYS, OFTEN, NEVER, STILL)


def character(rng: PortableRandom) -> Sentence:
    """His wife is very kind. Those students are not lazy."""
    is_question = rng.chance(20)
    who = random_person(rng) if rng.chance(75) else random_subject(rng, is_question)
    how = rng.choice(CHARACTER)
    clause = Clause(who, BE, after=(agreeing_adjective(how, who, degree(rng, how, 35)),))
    return as_question(clause) if is_question else as_statement(replace(clause, negated=rng.chance(20)))


def qualities(rng: PortableRandom) -> Sentence:
    """The soup is cold. Are these shoes comfortable? My car is too old."""
    what, how = describable(rng)
    clause = Clause(what, BE, after=(agreeing_adjective(how, what, degree(rng, how, 35)),))
    return as_question(clause) if rng.chance(22) else as_statement(replace(clause, negated=rng.chance(20)))


def describable(rng: PortableRandom) -> tuple[NounPhrase, Adjective]:
    """Return a thing, and an adjective that can describe it."""
    noun = rng.choice(_THINGS)
    whose = random_owner(rng) if noun.kind in _POSSESSIONS and rng.chance(35) else rng.choice(POINTED)
    is_plural = rng.chance(30) and not noun.is_mass and noun.english != "sea"
    return noun_phrase(noun, "the" if noun.english == "sea" else whose, is_plural), rng.choice(
        predicative_adjectives(noun)
    )


def comparing(rng: PortableRandom) -> Sentence:
    """Maria is taller than Anna. The train is faster than the bus. Is Spain bigger than Greece?"""
    is_question = rng.chance(25)
    if rng.chance(50):
        who, how = random_subject(rng, is_question), rng.choice(CHARACTER)
        than = random_person_except(rng, who)
        return as_sentence(Clause(who, BE, after=(more(how, who, than),)), is_question)
    kind = rng.choice(_COMPARED)
    noun, another = rng.choice(KINDS[kind]), rng.choice(KINDS[kind])
    while noun is another:
        another = rng.choice(KINDS[kind])
    comparable = [
        how
        for how in attributive_adjectives(noun)
        if how.english not in _INCOMPARABLE and how in attributive_adjectives(another)
    ]
    is_plural = rng.chance(20) and kind != "country" and "sea" not in {noun.english, another.english}
    first = noun_phrase(noun, "generic" if kind == "country" else "the", is_plural)
    second = noun_phrase(another, "generic" if kind == "country" else "the", is_plural)
    return as_sentence(Clause(first, BE, after=(more(rng.choice(comparable), first, second),)), is_question)


_COMPARED = ("vehicle", "transport", "building", "reading", "garment", "room", "animal", "outdoors", "event", "country")
_INCOMPARABLE = {"good", "empty", "full", *COLOR_WORDS}


def more(how: Adjective, first: Nominal, second: NounPhrase) -> Phrase:
    """Return a comparative: taller than Anna, più alta di Anna."""
    english_words: tuple[GlossedWord, ...] = (GlossedWord(how.comparative, ("more", "adjective")),)
    if not how.comparative:
        english_words = (GlossedWord("more", ("more",)), GlossedWord(how.english, ("adjective",)))
    form = italian.agree(how.italian, first.gender, first.plural)
    italian_words = (GlossedWord("più", ("more",)), GlossedWord(form, ("adjective",)))
    return Phrase(english_words, italian_words) + prepositional("than", "di", second.with_role("second"))


def jobs(rng: PortableRandom) -> Sentence:
    """My sister is a doctor. They are students. Is Marco a good cook?"""
    is_question = rng.chance(25)
    who = random_subject(rng, is_question)
    while isinstance(who, NounPhrase) and who.english[-1].text in _JOB_WORDS:
        who = random_subject(rng, is_question)
    noun = rng.choice(tuple(FEMININE.values()) if who.gender == "f" else nouns("+job waiter actor policeman"))
    how = rng.choice(attributive_adjectives(noun)) if rng.chance(30) and not who.plural else None
    what = noun_phrase(noun, "bare" if who.plural else "a", who.plural, how)
    return as_sentence(Clause(who, BE, after=(what,)), is_question)


_JOB_WORDS = {word for noun in nouns("+job +person boss") for word in (noun.english, noun.english_plural)}


def sensations(rng: PortableRandom) -> Sentence:
    """I am hungry. We are very thirsty. Are you afraid of dogs?"""
    is_question = rng.chance(25)
    who, (english, name, gender) = random_subject(rng, is_question), rng.choice(_AVERE)
    plain = phrase(english, name)
    after: tuple[Phrase, ...] = ()
    if english == "afraid":
        feared = noun_phrase(rng.choice(KINDS["animal"]), "generic", plural=True)
        after = (prepositional("of", "di", feared if rng.chance(75) else noun_phrase(NOUNS["exam"], "the")),)
    clause = Clause(who, BE_HAVING, after=(plain, *after))
    roll = rng.randbelow(100)
    if is_question or english == "right" or roll < 35:
        return as_question(clause) if is_question else as_statement(replace(clause, negated=rng.chance(30)))
    if roll < 65:
        graded = phrase(f"very {english}", f"{italian.agree('molto', 'f' if gender == 'f' else 'm', False)} {name}")
        return as_statement(replace(clause, after=(graded, *after)))
    return as_statement(replace(clause, adverb=rng.choice((ALWAYS, OFTEN, NEVER))))


_AVERE = (
    ("hungry", "fame", "f"), ("thirsty", "sete", "f"), ("sleepy", "sonno", "m"), ("cold", "freddo", "m"),
    ("hot", "caldo", "m"), ("afraid", "paura", "f"), ("afraid", "paura", "f"), ("right", "ragione", "f"),
)  # fmt: skip


def ages(rng: PortableRandom) -> Sentence:
    """My grandmother is eighty-two years old. I am thirty years old."""
    is_question = rng.chance(15)
    who: Nominal = random_relative(rng) if rng.chance(50) else random_subject(rng, is_question)
    last = who.english[-1].text if isinstance(who, NounPhrase) else ""
    low, high = _AGES.get(last, (4, 99))
    return as_sentence(Clause(who, BE_HAVING, after=(years(low + rng.randbelow(high - low + 1)),)), is_question)


_AGES = {
    "child": (2, 11), "children": (2, 30), "boy": (8, 17), "boys": (8, 17), "girl": (8, 17), "girls": (8, 17),
    "grandfather": (60, 99), "grandmother": (60, 99), "grandparents": (60, 99), "father": (35, 80), "mother": (35, 80),
    "parents": (35, 80), "husband": (22, 90), "wife": (22, 90), "doctor": (28, 65), "I": (18, 99),
}  # fmt: skip


def naming(rng: PortableRandom) -> Sentence:
    """My name is Marco. This is my book. Are those your parents?"""
    if rng.chance(15):
        return _called(rng)
    is_question, is_plural = rng.chance(25), rng.chance(35)
    noun = rng.choice(nouns("+reading +belonging +garment +pair +family +acquaintance +vehicle"))
    what = noun_phrase(noun, random_owner(rng), is_plural and noun.english not in {"mother", "father"})
    is_plural = what.plural
    english, name = rng.choice((("this", "questo"), ("that", "quello")))
    english_words = {"this": "these", "that": "those"}[english] if is_plural else english
    form = italian.agree(name, what.gender, is_plural)
    pointed = NounPhrase(
        (GlossedWord(english_words, ("noun",)),), (GlossedWord(form, ("noun",)),), what.gender, is_plural, is_plural
    )
    return as_sentence(Clause(pointed, BE, after=(what,)), is_question)


def _called(rng: PortableRandom) -> Sentence:
    whose = rng.choice(OWNERS[:4])
    name = rng.choice(WOMEN if whose.gender == "f" else MEN if whose.person == 3 else PERSON_NAMES)
    english_words = (
        GlossedWord(whose.possessive, ("whose",)),
        GlossedWord("name", ("called",)),
        GlossedWord("is", ("called",)),
    )
    clitic = GlossedWord(reflexive(whose.person, whose.plural), ("whose", "called"))
    called = GlossedWord(italian.present("chiamare", whose.person, whose.plural), ("whose", "called"))
    return Sentence(Phrase(english_words + name.english, (clitic, called, *name.italian)))
