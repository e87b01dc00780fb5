"""Sentences about what people like, prefer and miss, want, can and must do, and about ordering and shopping.

Each function draws a sentence; its docstring has examples.
"""

from dataclasses import replace

from regard.phrasebook.actions import EVERYONE, MISHAPS, NOBODY
from regard.phrasebook.clauses import (
    A_LOT,
    PLEASE,
    VERY_MUCH,
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
    CITY_NAMES,
    IT,
    PEOPLE,
    PLACES,
    SOON,
    THEY,
    WE,
    YOU,
    YOU_TWO,
    Determiner,
    I,
    NounPhrase,
    at_the_hour,
    noun_phrase,
    prepositional,
)
from regard.phrasebook.nouns import KINDS, nouns
from regard.phrasebook.phrases import GlossedWord, Phrase, english_number, italian_number, phrase
from regard.phrasebook.sampling import (
    POINTED,
    PortableRandom,
    generic_noun_phrase,
    random_adjective,
    random_company,
    random_hour,
    random_object,
    random_owner,
    random_person_except,
    random_pronoun_except,
    random_subject,
    random_time,
    sometimes,
)
from regard.phrasebook.verbs import (
    ACTIONS,
    ACTIVITIES,
    COST,
    GIVING,
    LIKE,
    MISS,
    MODALS,
    MOVING,
    ONESELF,
    STATES,
    TO_PEOPLE,
    WOULD_LIKE,
    Verb,
    tail_glosses,
)

_IN_GENERAL = nouns("+larder +prepared +pasta +produce +dish +drink +animal +language +sound +country")
_SEEN = nouns("+reading +garment +pair +event +building +furniture +vehicle +room garden city island beach idea gift")
_TRIED = nouns("+reading +event +dish +pasta soup salad hotel restaurant museum city island house gift idea")


def liking(rng: PortableRandom) -> Sentence:
    """I like bread. Do the children like animals? Nobody likes this soup. They like those shoes a lot."""
    is_question = rng.chance(25)
    who = random_subject(rng, is_question) if rng.chance(92) else rng.choice((NOBODY, EVERYONE))
    clause = Clause(who, LIKE, _liked(rng))
    return _to_a_degree(rng, clause, is_question, plain=who is NOBODY)


def _liked(rng: PortableRandom) -> NounPhrase:
    if rng.chance(3):
        return noun_phrase(nouns("sea")[0])
    if rng.chance(55):
        noun = rng.choice(_IN_GENERAL)
        return noun_phrase(noun, "generic") if noun.kind == "country" else generic_noun_phrase(noun)
    noun = rng.choice(_SEEN)
    owned = noun.kind in {"garment", "pair", "reading", "vehicle", "room"} and rng.chance(30)
    return noun_phrase(
        noun, random_owner(rng) if owned else rng.choice(POINTED), rng.chance(25), random_adjective(rng, noun)
    )


def liked_it(rng: PortableRandom) -> Sentence:
    """We liked the film very much. Did you like the gnocchi? They will like this house."""
    is_question, noun = rng.chance(28), rng.choice(_TRIED)
    pointed = "the" if noun.kind == "pasta" else rng.choice(POINTED)
    what = noun_phrase(noun, pointed, rng.chance(25) and not noun.is_mass)
    tense: Tense = rng.choice(("past", "past", "future"))
    return _to_a_degree(rng, Clause(random_subject(rng, is_question), LIKE, what, tense=tense), is_question)


def liking_to(rng: PortableRandom) -> Sentence:
    """I like to swim. Does your father like to drink coffee?"""
    is_question = rng.chance(25)
    return _to_a_degree(
        rng, Clause(random_subject(rng, is_question), LIKE, after=(to_do(rng),)), is_question, plain=True
    )


def missing(rng: PortableRandom) -> Sentence:
    """I miss you. My grandmother misses Italy a lot. Do you miss your parents?"""
    is_question = rng.chance(22)
    who = random_subject(rng, is_question)
    whom: Nominal = random_pronoun_except(rng, who) if rng.chance(50) else random_person_except(rng, who)
    if isinstance(who, NounPhrase) and whom.person == 3:  # `ad Anna manca` does not name the person
        whom = random_person_except(rng, who)
    if rng.chance(25):
        whom = rng.choice(_MISSED)
    return _to_a_degree(rng, Clause(who, MISS, whom), is_question)


_MISSED = (
    *(noun_phrase(noun, "generic") for noun in KINDS["country"]),
    *(noun_phrase(noun) for noun in nouns("sea garden city school")),
    *CITY_NAMES,
)


def _to_a_degree(rng: PortableRandom, clause: Clause, is_question: bool, plain: bool = False) -> Sentence:
    if is_question:
        return as_question(clause)
    if rng.chance(25):
        return as_statement(replace(clause, negated=clause.subject is not NOBODY))
    return as_statement(clause if plain or rng.chance(60) else replace(clause, degree=rng.choice((VERY_MUCH, A_LOT))))


def to_do(rng: PortableRandom) -> Phrase:
    """Return an activity as an infinitive: to swim, to eat apples."""
    if rng.chance(50):
        return infinitive(ACTIVITIES[rng.choice([name for name in ACTIVITIES if name not in _NO_PLEASURE])])
    verb = ACTIONS[rng.choice(("eat", "drink", "cook", "buy", "read", "visit", "study", "watch", "listen to", "play"))]
    noun = rng.choice(verb.objects)
    if noun.english in {"television", "radio"} or verb.english == "play":
        return infinitive(verb) + noun_phrase(noun, "generic" if noun.english == "television" else "the")
    generic: Determiner = "generic" if verb.english in {"study", "watch", "listen to"} else "bare"
    return infinitive(verb) + generic_noun_phrase(noun, generic)


_NO_PLEASURE = {"cry", "wait", "shout", "smile"}


def infinitive(verb: Verb) -> Phrase:
    """Return the infinitive of a verb: to swim, nuotare."""
    head, *tail = verb.english.split()
    capo, *coda = verb.italian.split()
    english_words = zip(tail, tail_glosses(verb, len(tail)), strict=True)
    italian_words = zip(coda, tail_glosses(verb, len(coda)), strict=True)
    return Phrase(
        (
            GlossedWord("to", ("verb",)),
            GlossedWord(head, ("verb",)),
            *(GlossedWord(text, (glosses or "verb",)) for text, glosses in english_words),
        ),
        (GlossedWord(capo, ("verb",)), *(GlossedWord(text, (glosses or "verb",)) for text, glosses in italian_words)),
    )


def preferring(rng: PortableRandom) -> Sentence:
    """I prefer tea to coffee. Does Anna prefer dogs to cats?"""
    is_question = rng.chance(25)
    kind = rng.choice(("produce", "drink", "larder", "prepared", "dish", "sound", "language", "animal"))
    first, second = rng.choice(KINDS[kind]), rng.choice(KINDS[kind])
    while first is second:
        second = rng.choice(KINDS[kind])
    rather = prepositional("to", "a", generic_noun_phrase(second))
    return as_sentence(
        Clause(random_subject(rng, is_question), STATES["prefer"], generic_noun_phrase(first), after=(rather,)),
        is_question,
    )


_ACTIONS = tuple(verb for name, verb in ACTIONS.items() if name not in MISHAPS)
_TO_PEOPLE = tuple(TO_PEOPLE.values())
_WITH_IT = tuple(verb for verb in _ACTIONS if not verb.preposition and not verb.splits)
_GIVING = tuple(GIVING[name] for name in ("give", "send", "show", "lend", "bring", "write", "tell", "sell"))
_SKILLS = ("swim", "dance", "cook", "drive", "sing", "play tennis", "play cards", "play football", "paint")
_DONE_FREELY = tuple(verb for name, verb in ACTIVITIES.items() if name not in {"cry", "smile", "shout"})
_DONE_TO_ONESELF = ("wake up", "get up", "rest", "relax", "stop", "sit down", "get dressed", "have fun", "get ready")


def modal(rng: PortableRandom, is_question: bool, negated: bool) -> Verb:
    """Return a modal verb; questions have no `must`, and negations no `have to`: `do not have to` is not `non devo`."""
    if negated:
        return MODALS[rng.choice(("can", "want to", "must"))]
    obligation = "have to" if is_question else rng.choice(("must", "have to"))
    return MODALS[rng.choice(("can", "want to", "would like to", obligation))]


def wanting(rng: PortableRandom) -> Sentence:
    """I have to wash the car. Can you open the window, please? We do not want to sell this house."""
    is_question = rng.chance(30)
    verb, who, negated = rng.choice(_ACTIONS), random_subject(rng, is_question), not is_question and rng.chance(20)
    can = modal(rng, is_question, negated)
    what = random_object(rng, rng.choice(verb.objects), who, sparse=negated)
    clause = Clause(who, verb, what, modal=can, negated=negated, question=is_question)
    if is_question and who is YOU and can.english == "can" and rng.chance(50):
        return Sentence(join(render(clause), PLEASE), "?")
    return as_sentence(
        replace(clause, after=() if is_question or negated else sometimes(rng, 25, rng.choice(SOON))), is_question
    )


def wanting_you(rng: PortableRandom) -> Sentence:
    """I want to see you. We cannot help them. Would you like to invite her? He has to give us the key."""
    is_question = rng.chance(30)
    who, negated = random_subject(rng, is_question), not is_question and rng.chance(20)
    clause = Clause(
        who,
        rng.choice(_TO_PEOPLE),
        random_pronoun_except(rng, who),
        modal=modal(rng, is_question, negated),
        negated=negated,
    )
    roll = rng.randbelow(100)
    if roll < 25:
        verb = rng.choice(_WITH_IT)
        uncounted = all(noun.is_mass for noun in verb.objects)
        clause = replace(clause, verb=verb, object=IT if uncounted else rng.choice((IT, IT, THEY)))
    elif roll < 50:
        verb = rng.choice(_GIVING)
        what = random_object(rng, rng.choice(verb.objects), who, sparse=True)
        clause = replace(clause, verb=verb, object=what, receiver=random_pronoun_except(rng, who))
    return as_sentence(replace(clause, after=() if negated else sometimes(rng, 25, rng.choice(SOON))), is_question)


def wanting_to_go(rng: PortableRandom) -> Sentence:
    """Do you want to come to the seaside with us? I must go home. They would like to go to Paris."""
    is_question = rng.chance(35)
    who, negated = random_subject(rng, is_question), not is_question and rng.chance(20)
    verb = MOVING[rng.choice(("go", "go", "come", "come back"))]
    extra = random_company(rng, who) if rng.chance(50) else rng.choice(SOON)
    after = (rng.choice(PLACES).to, *sometimes(rng, 60, extra))
    return as_sentence(
        Clause(who, verb, modal=modal(rng, is_question, negated), after=after, negated=negated), is_question
    )


def wanting_to_do(rng: PortableRandom) -> Sentence:
    """You must study. Can we eat with you two? He knows how to swim. I want to get up at six."""
    is_question = rng.chance(30)
    who, negated = random_subject(rng, is_question), not is_question and rng.chance(20)
    if rng.chance(20):
        return as_sentence(
            Clause(who, ACTIVITIES[rng.choice(_SKILLS)], modal=MODALS["know how to"], negated=negated), is_question
        )
    verb, extra = rng.choice(_DONE_FREELY), random_company(rng, who) if rng.chance(40) else rng.choice(SOON)
    if rng.chance(40):
        verb = ONESELF[rng.choice(_DONE_TO_ONESELF)]
        extra = at_the_hour(*random_hour(rng, 5, 10)) if verb.english in {"wake up", "get up"} else rng.choice(SOON)
    after = sometimes(rng, 60, extra)
    return as_sentence(
        Clause(who, verb, modal=modal(rng, is_question, negated), after=after, negated=negated), is_question
    )


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


def measure(rng: PortableRandom) -> NounPhrase:
    """Return an amount of something: a glass of wine, two kilos of apples, una bottiglia d'acqua."""
    container = rng.choice(nouns("+measure glass cup bottle plate"))
    amount: Determiner | int = rng.choice(("a", "a", 2 + rng.randbelow(4)))
    noun = rng.choice(_MEASURED[container.english])
    in_pieces = container.english in {"piece", "slice"}
    content = noun_phrase(noun, "bare", plural=not noun.is_mass and not in_pieces).with_role("content")
    of = GlossedWord("d'" if content.italian[0].text in {"acqua", "olio"} else "di", ("of",))
    whole = noun_phrase(container, amount)
    english_words = (*whole.english, GlossedWord("of", ("of",)), *content.english)
    return NounPhrase(english_words, (*whole.italian, of, *content.italian), whole.gender, whole.plural, whole.plural)


def ordering(rng: PortableRandom) -> Sentence:
    """I would like a glass of wine, please. We want two pizzas. Would you like some cheese?"""
    who = rng.choice((I, I, I, WE, WE, YOU, YOU, YOU_TWO, *PEOPLE))
    what = measure(rng) if rng.chance(50) else random_object(rng, rng.choice(_ORDERED), who)
    verb = WOULD_LIKE if rng.chance(65) else STATES["want"]
    clause = Clause(who, verb, what)
    if who.person == 2:
        return as_question(clause)
    if who.person == 1 and verb is WOULD_LIKE and rng.chance(60):
        return Sentence(join(render(clause), PLEASE))
    return as_sentence(clause, who.person == 3 and rng.chance(25))


def shopping(rng: PortableRandom) -> Sentence:
    """She bought two kilos of apples. Will you bring a bottle of wine tomorrow?"""
    is_question = rng.chance(20)
    tense: Tense = rng.choice(("past", "past", "future"))
    verb = ACTIONS[rng.choice(("buy", "order", "bring"))]
    clause = Clause(random_subject(rng, is_question), verb, measure(rng), tense=tense)
    return as_sentence(replace(clause, after=sometimes(rng, 45, random_time(rng, tense))), is_question)


def prices(rng: PortableRandom) -> Sentence:
    """The shoes cost forty-eight euros. How much does that ring cost?"""
    noun = rng.choice(_SOLD)
    what = noun_phrase(noun, rng.choice(POINTED), rng.chance(20))
    if rng.chance(25):
        return as_question(Clause(what, COST, asking=HOW_MUCH))
    cheap = noun.kind in {"reading", "tableware", "dish"} or noun.english in {"pen", "pencil", "postcard", "ticket"}
    low, high = (2, 30) if cheap else (40, 100) if noun.kind in {"furniture", "instrument"} else (5, 100)
    return as_statement(Clause(what, COST, after=(euros(low + rng.randbelow(high - low + 1)),), negated=rng.chance(12)))


def euros(n: int) -> Phrase:
    """Return a price; euro has no plural in Italian."""
    english_words = tuple(GlossedWord(text, ("number",)) for text in english_number(n).split())
    return Phrase(
        (*english_words, GlossedWord("euros", ("euro",))),
        (GlossedWord(italian_number(n), ("number",)), GlossedWord("euro", ("euro",))),
    )
