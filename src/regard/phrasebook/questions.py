"""Questions with a question word, and commands.

Each function draws a sentence; its docstring has examples.
"""

from regard.phrasebook import italian
from regard.phrasebook.actions import MISHAPS, tense_for
from regard.phrasebook.clauses import COMMA, PLEASE, Clause, Nominal, Sentence, Tense, as_question, join
from regard.phrasebook.italian import agree
from regard.phrasebook.noun_phrases import (
    HE,
    HOME,
    PEOPLE,
    SHE,
    SOON,
    THEY,
    TOWN,
    YOU,
    YOU_TWO,
    I,
    NounPhrase,
    Pronoun,
    noun_phrase,
)
from regard.phrasebook.nouns import Noun, nouns
from regard.phrasebook.people import describable
from regard.phrasebook.phrases import GlossedWord, Phrase, phrase
from regard.phrasebook.sampling import (
    PERSON_NAMES,
    PortableRandom,
    random_object,
    random_owner,
    random_person,
    random_relative,
    random_subject,
    random_time,
    sometimes,
)
from regard.phrasebook.verbs import (
    ACTIONS,
    ACTIVITIES,
    BE,
    BE_HAVING,
    BE_WELL,
    GIVING,
    HAVE,
    MODALS,
    MOVING,
    ONESELF,
    STAYING,
    TO_PEOPLE,
    Verb,
    select_verbs,
)

WHERE, WHEN, WHY, HOW = (
    phrase(*words) for words in (("where", "dove"), ("when", "quando"), ("why", "perché"), ("how", "come"))
)
WHAT, WHOM, WHOSE = phrase("what", "che cosa"), phrase("who", "chi"), phrase("whose", "di chi")
HOW_OLD = phrase("how/1 old/2", "quanti/1 anni/2")

_OTHERS = (YOU, YOU, YOU, YOU_TWO, HE, SHE, THEY)
_WITH_REASON = ("cry", "laugh", "smile", "shout", "run", "wait", "smoke", "sing")
_SOMEWHERE = ("work", "sleep", "study", "have lunch", "have dinner", "play tennis", "eat", "swim")


def addressed(rng: PortableRandom, question: Sentence) -> Sentence:
    """Return the question, sometimes with the person addressed: Marco, where is …"""
    return Sentence(join(rng.choice(PERSON_NAMES), COMMA, question.phrase), "?") if rng.chance(12) else question


def where_is(rng: PortableRandom) -> Sentence:
    """Where is the station? Where are my keys? Where is your sister?"""
    if rng.chance(40):
        who: Nominal = random_person(rng) if rng.chance(70) else rng.choice(_OTHERS)
        return addressed(rng, as_question(Clause(who, BE, asking=WHERE)))
    noun = rng.choice(nouns("+belonging +reading +garment +pair +building +tableware +vehicle park beach garden"))
    owned = noun.kind in {"belonging", "reading", "garment", "pair", "vehicle"} and rng.chance(65)
    return addressed(
        rng,
        as_question(Clause(noun_phrase(noun, random_owner(rng) if owned else "the", rng.chance(25)), BE, asking=WHERE)),
    )


def where_and_when(rng: PortableRandom) -> Sentence:
    """When will your brother leave? Where do you work? Why is Maria crying?"""
    who, asking = random_subject(rng, is_question=True), rng.choice((WHERE, WHEN, WHY))
    tense: Tense = rng.choice(("past", "future"))
    if asking is WHEN:
        names = ("get up", "wake up", "get married")
        verb = rng.choice((*MOVING.values(), *(ONESELF[name] for name in names), STAYING["be born"]))
        tense = "past" if verb.english == "be born" else tense
    elif asking is WHY:
        verb = ACTIVITIES[rng.choice(_WITH_REASON)]
        tense = rng.choice(("progressive", "past"))
    elif rng.chance(25):
        verb, tense = STAYING["live"], "present"
    elif rng.chance(60):
        verb, tense = ACTIVITIES[rng.choice(_SOMEWHERE)], rng.choice(("past", "future", "present"))
    else:
        verb = rng.choice((MOVING["go"], STAYING["stay"]))
    return addressed(rng, as_question(Clause(who, verb, tense=tense, asking=asking)))


def why_with_what(rng: PortableRandom) -> Sentence:
    """When did you buy this car? Where did she find the keys? Why are you washing the dog?"""
    who, verb = rng.choice(_OTHERS), rng.choice(tuple(ACTIONS.values()))
    asking, tense = rng.choice((WHERE, WHEN, WHY)), tense_for(rng, verb)
    if asking is not WHY and tense == "progressive":
        tense = "past"
    what = random_object(rng, rng.choice(verb.objects), who, sparse=True)
    return addressed(rng, as_question(Clause(who, verb, what, tense=tense, asking=asking)))


def what_and_whom(rng: PortableRandom) -> Sentence:
    """What are you eating? What did your sister buy yesterday? Who do you want to invite?"""
    who = random_subject(rng, is_question=True)
    if rng.chance(55):
        verb, asking = rng.choice(_OF_WHAT), WHAT
        tense = tense_for(rng, verb)
    else:
        verb, asking = TO_PEOPLE[rng.choice(("see", "meet", "help", "call", "invite", "wait for", "look for"))], WHOM
        tense = rng.choice(("past", "future"))
        if verb.english in {"help", "wait for", "call", "look for"} and rng.chance(40):
            tense = "progressive"
    if not isinstance(who, NounPhrase) and verb.english not in MISHAPS and rng.chance(25):
        modal = MODALS[rng.choice(("want to", "have to", "would like to"))]
        return addressed(rng, as_question(Clause(who, verb, modal=modal, asking=asking)))
    after = sometimes(rng, 35, random_time(rng, tense)) if tense != "progressive" else ()
    return addressed(rng, as_question(Clause(who, verb, tense=tense, asking=asking, after=after)))


_OF_WHAT = select_verbs(
    ACTIONS,
    "eat cook order buy sell read write find lose see drink prepare wash repair choose study bring forget break",
)


def how_many(rng: PortableRandom) -> Sentence:
    """How many brothers do you have? How many apples did you two buy?"""
    who = rng.choice(_OTHERS)
    if rng.chance(50):
        return addressed(rng, as_question(Clause(who, HAVE, asking=how_many_of(rng.choice(_COUNTED)))))
    verb = rng.choice(_WITH_MANY)
    countable = [noun for noun in verb.objects if not (noun.is_mass or noun.is_pair or noun.english == "sea")]
    return addressed(rng, as_question(Clause(who, verb, tense="past", asking=how_many_of(rng.choice(countable)))))


def how_many_of(noun: Noun) -> Phrase:
    """Return how many of a noun: quante mele."""
    what = noun_phrase(noun, "bare", plural=True).with_role("what")
    quanti = GlossedWord(agree("quanto", noun.plural_gender, True), ("how",))
    return Phrase((GlossedWord("how", ("how",)), GlossedWord("many", ("how",)), *what.english), (quanti, *what.italian))


_WITH_MANY = select_verbs(ACTIONS, "eat buy read write see sell order lose break")
_COUNTED = nouns("""
    brother sister son daughter cousin uncle aunt friend neighbour colleague dog cat horse rabbit key book house car
    bicycle hat coat dictionary computer guitar exam ticket suitcase
""")


def how(rng: PortableRandom) -> Sentence:
    """How old is your daughter? How are you? How is the soup? Whose is this umbrella?"""
    roll = rng.randbelow(100)
    if roll < 35:
        return addressed(
            rng,
            as_question(
                Clause(random_relative(rng) if rng.chance(50) else random_subject(rng, True), BE_HAVING, asking=HOW_OLD)
            ),
        )
    if roll < 60:
        return addressed(
            rng,
            as_question(
                Clause(random_relative(rng) if rng.chance(50) else random_subject(rng, True), BE_WELL, asking=HOW)
            ),
        )
    if roll < 75:
        what, _ = describable(rng)
        return as_question(Clause(what, BE, asking=HOW))
    noun = rng.choice(nouns("+reading +belonging +garment +pair +vehicle dog cat"))
    return as_question(Clause(noun_phrase(noun, rng.choice(("this", "that")), rng.chance(30)), BE, asking=WHOSE))


_ORDERS = select_verbs(
    ACTIONS,
    """
    open close clean wash repair turn_on turn_off buy read bring take cut pay choose finish study taste answer listen_to
    prepare sell use visit explain look_for
""",
)
_BANS = select_verbs(
    ACTIONS, "open close eat drink buy sell forget lose break turn_on turn_off take read use cut wash order"
)
_WHOM = tuple(pronoun for pronoun in PEOPLE if pronoun.person != 2)


def commands(rng: PortableRandom) -> Sentence:
    """Open the window, please. Do not sell the house! Marco, turn off the light."""
    banned = rng.chance(40)
    verb = rng.choice(_BANS if banned else _ORDERS)
    what = random_object(rng, rng.choice(verb.objects), I if banned else rng.choice((I, YOU)), sparse=True)
    return _called(rng, command(verb, what, banned=banned))


def commands_to_help(rng: PortableRandom) -> Sentence:
    """Call me tomorrow. Give me the salt, please. Wait for us at the station. Show her the photos."""
    whom = rng.choice(_WHOM)
    if rng.chance(45):
        verb = GIVING[rng.choice(("give", "bring", "show", "send", "lend", "write", "tell"))]
        what = random_object(rng, rng.choice(verb.objects), YOU, sparse=True)
        if verb.english == "give" and rng.chance(40):
            what = noun_phrase(rng.choice(nouns("+basics bread butter water")))
        return _called(rng, command(verb, what, whom, whom.indirect))
    verb = TO_PEOPLE[rng.choice(("call", "help", "wait for", "listen to", "invite", "thank", "greet", "look for"))]
    english_words = command(verb, None, whom, whom.direct)
    if verb.english in {"wait for", "look for"} and rng.chance(45):
        return Sentence(join(english_words, rng.choice((*HOME, *TOWN)).at))
    return Sentence(join(english_words, rng.choice(SOON))) if rng.chance(30) else _called(rng, english_words)


def command(
    verb: Verb, what: NounPhrase | None, whom: Pronoun | None = None, clitic: str = "", banned: bool = False
) -> Phrase:
    """Return a command or prohibition with its objects; `clitic` is the Italian pronoun for `whom`."""
    head, *particles = verb.english.split()
    particle = "particle" if verb.preposition and particles else "verb"
    english_words: tuple[GlossedWord, ...] = (
        (GlossedWord("do", ("verb",)), GlossedWord("not", ("not",))) if banned else ()
    )
    english_words += (GlossedWord(head, ("verb",)), *(GlossedWord(text, (particle,)) for text in particles))
    english_words += tuple(GlossedWord(text, ("whom",)) for text in whom.object.split()) if whom else ()
    form = verb.infinitive if banned else italian.imperative(verb.infinitive, clitic)
    italian_words: tuple[GlossedWord, ...] = (GlossedWord("non", ("not",)),) if banned else ()
    italian_words += (GlossedWord(form, ("verb", "whom")),)
    if what is None:
        return Phrase(english_words, italian_words)
    named = what.with_role("what")
    objects = (
        italian.prepend(GlossedWord(verb.preposition, (particle,)), named.italian)
        if verb.preposition
        else named.italian
    )
    return Phrase(english_words + named.english, italian_words + objects)


def _called(rng: PortableRandom, english_words: Phrase) -> Sentence:
    """Return the command with `please`, with a name, or with an exclamation mark."""
    roll = rng.randbelow(100)
    if roll < 40:
        return Sentence(join(english_words, PLEASE))
    if roll < 60:
        return Sentence(join(rng.choice(PERSON_NAMES), COMMA, english_words))
    return Sentence(english_words, "!")
