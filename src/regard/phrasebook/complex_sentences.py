"""Sentences of several clauses: pronouns that refer to an earlier noun, subordinate and relative clauses.

Each function draws a sentence; its docstring has examples.
"""

from dataclasses import replace

from regard.phrasebook.actions import ANYTHING
from regard.phrasebook.clauses import (
    A_LOT,
    ALWAYS,
    COMMA,
    FULL_STOP,
    NEVER,
    OFTEN,
    QUESTION_MARK,
    TOO_MUCH,
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
    CITIES,
    IT,
    JUST_NOW,
    OWNERS,
    PEOPLE,
    WE,
    YOU,
    YOU_TWO,
    I,
    NounPhrase,
    Pronoun,
    agreeing_adjective,
    noun_phrase,
    places,
    referring_pronoun,
)
from regard.phrasebook.nouns import (
    CHARACTER,
    MOOD,
    Adjective,
    Noun,
    attributive_adjectives,
    nouns,
    predicative_adjectives,
)
from regard.phrasebook.people import degree, feeling, moods, qualities
from regard.phrasebook.phrases import GlossedWord, phrase
from regard.phrasebook.places import going, where_people_are
from regard.phrasebook.questions import WHEN, WHERE, WHY
from regard.phrasebook.sampling import (
    POINTED,
    PortableRandom,
    own_pronoun,
    random_object,
    random_owner,
    random_subject,
    random_time,
    sometimes,
)
from regard.phrasebook.verbs import (
    ACTIONS,
    ACTIVITIES,
    BE,
    BE_HAVING,
    GIVING,
    MODALS,
    MOVING,
    STATES,
    STAYING,
    TALKING,
    TO_PEOPLE,
    WEATHER,
    select_verbs,
)

AND, BUT, IF = phrase("and", "e"), phrase("but", "ma"), phrase("if", "se")


def _read(table: str) -> tuple[tuple[list[str], tuple[Noun, ...]], ...]:
    """Read entries of `words : nouns`, separated by bars."""
    entries = (entry.split(":") for entry in table.split("|"))
    return tuple(([word.replace("_", " ") for word in words.split()], nouns(things)) for words, things in entries)


# two actions on the same thing
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


def chains(rng: PortableRandom) -> Sentence:
    """I bought the apples and I ate them. Maria lost the ring, but we found it."""
    surprising = rng.chance(30)
    (first, second), things = rng.choice(_SURPRISES if surprising else _CHAINS)
    who = random_subject(rng)
    what = random_object(rng, rng.choice(things), who)
    tense: Tense = "past" if surprising or first == "break" or rng.chance(75) else "future"
    first_clause = render(Clause(who, ACTIONS[first], what, tense=tense))
    second_clause = render(
        Clause(_and_then(rng, who), ACTIONS[second], referring_pronoun(what.gender, what.plural), tense=tense)
    )
    connection = (COMMA, BUT) if surprising else (AND,)
    return Sentence(join(first_clause, *connection, second_clause))


def _and_then(rng: PortableRandom, who: NounPhrase | Pronoun) -> Pronoun:
    """Return the same subject, or one whose verb has another ending: a dropped subject refers to the last one."""
    if who is not YOU_TWO and rng.chance(50):
        return own_pronoun(who)
    return rng.choice([other for other in PEOPLE if (other.person, other.plural) != (who.person, who.plural)])


def not_found(rng: PortableRandom) -> Sentence:
    """Where is the key? I do not see it. Where are my shoes? We have to find them."""
    noun = rng.choice(nouns("+belonging +reading +garment +pair +tableware bicycle car dog cat"))
    what = noun_phrase(noun, random_owner(rng) if rng.chance(60) else "the", rng.chance(30))
    who, it = rng.choice((I, I, WE)), referring_pronoun(what.gender, what.plural)
    answer = rng.choice((
        Clause(who, TO_PEOPLE["see"], it, negated=True),
        Clause(who, ACTIONS["find"], it, modal=MODALS["can"], negated=True),
        Clause(who, ACTIONS["find"], it, modal=MODALS["have to"]),
        Clause(who, ACTIONS["look for"], it, tense="progressive"),
        Clause(who, ACTIONS["lose"], it, tense="past"),
        Clause(who, STATES["want"], it),
    ))  # fmt: skip
    return Sentence(join(render(Clause(what, BE, asking=WHERE, question=True)), QUESTION_MARK, render(answer)))


# the state of a thing, and an action that it requires, invites or prevents
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


def remedies(rng: PortableRandom) -> Sentence:
    """The car is dirty and I have to wash it. This book is interesting. Do you want to read it?"""
    table, modals = rng.choice((
        (_URGENT, ("have to", "must")), (_TEMPTING, ("want to", "would like to", "can")), (_FORBIDDING, ("can",)),
    ))  # fmt: skip
    (english, italian, action), things = rng.choice(table)
    noun = rng.choice(things)
    owned = noun.kind in {"belonging", "garment", "pair", "vehicle", "room"} and action in {"wash", "clean", "sell"}
    whose = rng.choice(OWNERS) if owned and rng.chance(50) else rng.choice(POINTED)
    what = noun_phrase(noun, whose, rng.chance(30) and not noun.is_mass)
    is_so = render(Clause(what, BE, after=(agreeing_adjective(Adjective(english, italian), what),)))
    verb, it = ACTIONS.get(action) or STATES[action], referring_pronoun(what.gender, what.plural)
    if table is not _FORBIDDING and rng.chance(35):
        modal = MODALS["can" if table is _URGENT else rng.choice(("can", "want to", "would like to"))]
        who = rng.choice((YOU, YOU, YOU_TWO))
        return Sentence(join(is_so, FULL_STOP, render(Clause(who, verb, it, modal=modal, question=True))), "?")
    modal = MODALS[rng.choice(modals)]
    clause = Clause(rng.choice(PEOPLE), verb, it, modal=modal, negated=table is _FORBIDDING)
    return Sentence(join(is_so, AND, render(clause)))


def offers(rng: PortableRandom) -> Sentence:
    """If you want the keys, I will give them to you. If she needs the book, we will lend it to her."""
    whom = rng.choice([pronoun for pronoun in PEOPLE if pronoun is not YOU_TWO])
    giver = rng.choice([other for other in PEOPLE if other.person != whom.person])
    verb = GIVING[rng.choice(("give", "lend", "bring", "sell", "show", "send"))]
    noun = rng.choice([noun for noun in verb.objects if not noun.is_mass])
    what = noun_phrase(noun, rng.choice(POINTED), rng.chance(35))
    wish = render(Clause(whom, rng.choice((STATES["want"], STATES["want"], STATES["need"])), what))
    gift = render(Clause(giver, verb, referring_pronoun(what.gender, what.plural), whom, tense="future"))
    return Sentence(join(IF, wish, COMMA, gift))


BECAUSE, THAT = phrase("because", "perché"), phrase("that", "che")
_ONE_OR_OTHER = tuple(pronoun for pronoun in PEOPLE if pronoun is not YOU_TWO)  # `you two` is not repeated
_TIRING = ("work", "run", "study", "walk", "dance", "swim", "drive", "cook", "travel")
_MEALS = ("have lunch", "have breakfast", "have dinner", "eat")
_IN_THE_MOOD = ("sleep", "take a walk", "sing", "eat", "cook", "walk", "have a shower", "play cards", "dance", "paint")
_MOODY = ("tired", "sad", "happy", "nervous", "angry", "ill", "bored", "worried", "free")


def reasons(rng: PortableRandom) -> Sentence:
    """I am tired because I worked a lot. She is sad because she lost her ring. We are hungry because …"""
    who = random_subject(rng)
    while who is YOU_TWO:
        who = random_subject(rng)
    same, mood = own_pronoun(who), rng.choice(("tired", "sad", "angry", "happy", "worried", "hungry"))
    if mood == "hungry":
        state = Clause(who, BE_HAVING, after=(phrase("hungry", "fame"),))
        cause = Clause(same, ACTIVITIES[rng.choice(_MEALS)], tense="past", negated=True)
        if rng.chance(40):
            cause = replace(cause, verb=ACTIONS["eat"], object=ANYTHING)
        return Sentence(
            join(render(state), BECAUSE, render(replace(cause, after=sometimes(rng, 40, rng.choice(JUST_NOW)))))
        )
    state = Clause(who, BE, after=(agreeing_adjective(MOOD[mood], who),))
    if mood == "tired":
        cause = Clause(same, ACTIVITIES[rng.choice(_TIRING)], tense="past", degree=rng.choice((A_LOT, TOO_MUCH)))
        return Sentence(
            join(render(state), BECAUSE, render(replace(cause, after=sometimes(rng, 30, rng.choice(JUST_NOW)))))
        )
    verb = ACTIONS[rng.choice(("find", "buy", "finish") if mood == "happy" else ("lose", "forget", "break", "miss"))]
    cause = Clause(same, verb, random_object(rng, rng.choice(verb.objects), same), tense="past")
    return Sentence(
        join(render(state), BECAUSE, render(replace(cause, after=sometimes(rng, 20, random_time(rng, "past")))))
    )


def conditions(rng: PortableRandom) -> Sentence:
    """If it rains, we will stay at home. When I am tired, I always sleep. If you are hungry, you can eat the soup."""
    roll = rng.randbelow(100)
    if roll < 35:
        then = Clause(random_subject(rng), STAYING["stay"], tense="future", after=(rng.choice(_UNDER_A_ROOF).at,))
        if rng.chance(50):
            then = replace(then, verb=MOVING[rng.choice(("go", "come back"))], after=(rng.choice(_UNDER_A_ROOF).to,))
        return Sentence(join(IF, render(Clause(IT, WEATHER[rng.choice(("rain", "snow"))])), COMMA, render(then)))
    who = rng.choice(_ONE_OR_OTHER)
    if roll < 70:
        english, italian, action, things = rng.choice(_NEEDS)
        need = render(Clause(who, BE_HAVING, after=(phrase(english, italian),)))
        then = Clause(who, ACTIONS[action], random_object(rng, rng.choice(nouns(things)), who), modal=MODALS["can"])
        if rng.chance(40):
            then = replace(then, modal=None, tense="future")
        return Sentence(join(IF, need, COMMA, render(then)))
    mood = render(Clause(who, BE, after=(agreeing_adjective(MOOD[rng.choice(_MOODY)], who),)))
    then = Clause(who, ACTIVITIES[rng.choice(_IN_THE_MOOD)], adverb=rng.choice((ALWAYS, OFTEN, NEVER)))
    return Sentence(join(WHEN, mood, COMMA, render(then)))


_UNDER_A_ROOF = places("home home hotel office library bar museum school work cinema theatre restaurant gym pool")
_NEEDS = (
    ("hungry", "fame", "eat", "+dish +larder +prepared +produce"),
    ("thirsty", "sete", "drink", "water lemonade tea milk beer"),
    ("sleepy", "sonno", "drink", "coffee tea"),
    ("cold", "freddo", "close", "window door"),
    ("hot", "caldo", "open", "window door"),
)


def said_that(rng: PortableRandom) -> Sentence:
    """I know that Maria is tired. He says that the soup is cold. You know that I love you."""
    who = random_subject(rng)
    content = rng.choice(_SAID)(rng)
    while content.mark != "." or content.phrase.english[0].text in _unclear_after(who):
        content = rng.choice(_SAID)(rng)
    return Sentence(join(render(Clause(who, TALKING[rng.choice(("know", "say"))])), THAT, content.phrase))


_SAID = (moods, qualities, where_people_are, going, feeling, feeling)


def _unclear_after(who: Nominal) -> set[str]:
    """Return subjects that would be dropped in Italian and taken for `who`; `that` is excluded after `that`."""
    if who.person == 3:
        return {"that", "they"} if who.plural else {"that", "he", "she"}
    return {"that", who.subject.split()[0]} if isinstance(who, Pronoun) else {"that", "we"}


def wondering(rng: PortableRandom) -> Sentence:
    """Do you know where my keys are? I know why Maria is crying. Do they know when you will arrive?"""
    is_question = rng.chance(60)
    who = rng.choice((YOU, YOU, YOU, *PEOPLE[2:4], *PEOPLE[5:])) if is_question else random_subject(rng)
    if rng.chance(50):
        noun = rng.choice(nouns("+belonging +pair +building +garment +vehicle +reading"))
        owned = noun.kind in {"belonging", "pair", "garment", "vehicle"} and rng.chance(70)
        inner = Clause(noun_phrase(noun, random_owner(rng) if owned else "the", rng.chance(25)), BE, asking=WHERE)
    else:
        whom = random_subject(rng)
        while isinstance(whom, Pronoun) and whom.person == who.person:
            whom = random_subject(rng)
        verb = ACTIVITIES[rng.choice(("cry", "laugh", "shout", "run", "wait", "smile"))]
        inner = Clause(whom, verb, tense="progressive", asking=WHY)
        if rng.chance(50):
            inner = Clause(whom, MOVING[rng.choice(("leave", "arrive", "come back"))], tense="future", asking=WHEN)
    opening = render(Clause(who, TALKING["know"], question=is_question))
    return Sentence(join(opening, render(inner)), "?" if is_question else ".")


def with_relative(what: NounPhrase, english: str, clause: Clause) -> NounPhrase:
    """Return a noun phrase with a relative clause: the book that I bought, il libro che ho comprato."""
    inner = render(clause).with_role("relative")
    english_words = (*what.english, GlossedWord(english, ("that",)), *inner.english)
    italian_words = (*what.italian, GlossedWord("che", ("that",)), *inner.italian)
    return NounPhrase(english_words, italian_words, what.gender, what.plural, what.english_plural)


_WITH_RESULT = select_verbs(ACTIONS, "buy read write find order cook visit choose sell book prepare bring send")


def things_that(rng: PortableRandom) -> Sentence:
    """The apples that I bought are delicious. Where is the letter that you wrote?"""
    verb = rng.choice(_WITH_RESULT)
    noun = rng.choice([noun for noun in verb.objects if attributive_adjectives(noun) and noun.kind != "acquaintance"])
    what = noun_phrase(noun, "the", rng.chance(30) and not noun.is_mass)
    when = (
        ()
        if noun.kind in {"larder", "prepared", "produce", "dish", "drink"}
        else sometimes(rng, 25, random_time(rng, "past"))
    )
    past = Clause(random_subject(rng), verb, tense="past", after=when)
    whole = with_relative(what, "that", past)
    if noun.kind in {"belonging", "reading", "garment", "pair"} and verb.english != "sell" and rng.chance(40):
        return as_question(Clause(whole, BE, asking=WHERE))
    hows = [how for how in predicative_adjectives(noun) if how.english != "fresh" or verb.english in {"buy", "find"}]
    how = rng.choice(hows)
    return as_statement(Clause(whole, BE, after=(agreeing_adjective(how, whole, degree(rng, how, 35)),)))


def people_who(rng: PortableRandom) -> Sentence:
    """The woman who works at the bank is very kind. Do you know the boy who lives in Rome?"""
    what = noun_phrase(rng.choice(nouns("man woman boy girl +job +person")), "the", rng.chance(20))
    silent = NounPhrase((), (), what.gender, what.plural, what.plural)  # the subject is `who`
    workplace = rng.choice((*places("bank market office library pharmacy bar museum university"), *CITIES)).at
    inner = rng.choice((
        Clause(silent, ACTIVITIES["work"], after=(workplace,)),
        Clause(silent, STAYING["live"], after=(rng.choice(CITIES).at,)),
        Clause(silent, STATES["speak"], noun_phrase(rng.choice(nouns("+language")), "bare")),
    ))  # fmt: skip
    whole = with_relative(what, "who", inner)
    if rng.chance(50):
        how = rng.choice(CHARACTER)
        return as_statement(Clause(whole, BE, after=(agreeing_adjective(how, whole, degree(rng, how, 30)),)))
    is_question = rng.chance(35)
    clause = Clause(random_subject(rng, is_question), STATES["know"], whole)
    if rng.chance(40):
        tense: Tense = rng.choice(("past", "past", "future"))
        clause = replace(clause, verb=TO_PEOPLE[rng.choice(("see", "meet", "help", "call", "thank"))], tense=tense)
    return as_sentence(replace(clause, negated=not is_question and rng.chance(20)), is_question)
