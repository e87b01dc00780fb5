"""Everyday phrases: greetings, thanks, introductions, requests; single words; simple sentences of textbooks.

`FIXED` are idioms and single words, which no rule translates; they are in train in every spelling. The functions
draw sentences, as those of the other modules do; their docstrings have examples.
"""

from regard.phrasebook.clauses import (
    COMMA,
    FULL_STOP,
    PLEASE,
    Clause,
    Sentence,
    as_question,
    as_sentence,
    as_statement,
    join,
    render,
)
from regard.phrasebook.italian import Gender
from regard.phrasebook.noun_phrases import (
    CITY_NAMES,
    OWNERS,
    YOU,
    Determiner,
    I,
    NounPhrase,
    noun_phrase,
    prepositional,
    proper_name,
)
from regard.phrasebook.nouns import COLOR_WORDS, KINDS, NOUNS, Adjective, Noun, attributive_adjectives, nouns
from regard.phrasebook.phrases import GlossedWord, Phrase, english_number, italian_number, phrase
from regard.phrasebook.places import there_is_sentence
from regard.phrasebook.preferences import ordering
from regard.phrasebook.questions import WHERE, commands, where_and_when
from regard.phrasebook.sampling import (
    PERSON_NAMES,
    POINTED,
    PortableRandom,
    random_adjective,
    random_subject,
    sometimes,
)
from regard.phrasebook.verbs import ACTIONS, BE, Verb


def _read(table: str) -> tuple[Phrase, ...]:
    entries = (entry.split("=") for entry in table.strip().strip(";").split(";"))
    return tuple(phrase(english.strip(), italian.strip()) for english, italian in entries)


GREETINGS = _read("""
    hello = ciao; hi = ciao; hey = ehi; good morning = buongiorno; good afternoon = buon pomeriggio;
    good evening = buonasera
""")
_GOODBYES = _read("goodbye = arrivederci; bye = ciao; good night = buonanotte")
_PARTING_WORDS = _read("""
    see you = ci vediamo; see/1 you/1 soon/2 = a/1 presto/2; see/1 you/1 later/2 = a/1 dopo/2;
    see/1 you/1 tomorrow/2 = a/1 domani/2; see/1 you/1 tonight/2 = a/1 stasera/2;
    see/1 you/1 on/1 Monday/2 = a/1 lunedì/2; see/1 you/1 next/2 week/3 = alla/1 prossima/2 settimana/3;
    have/2 a/2 nice/1 day/2 = buona/1 giornata/2; have/2 a/2 good/1 day/2 = buona/1 giornata/2;
    have/2 a/2 nice/1 evening/2 = buona/1 serata/2; have/2 a/2 nice/1 weekend/2 = buon/1 fine/2 settimana/2;
    have/2 a/2 good/1 trip/2 = buon/1 viaggio/2; have/2 a/2 nice/1 trip/2 = buon/1 viaggio/2; take care = stammi bene;
    sleep well = dormi bene
""")
_WISHES = _read("""
    happy birthday = buon compleanno; congratulations = congratulazioni; good luck = buona fortuna;
    merry Christmas = buon Natale; happy/1 New/2 Year/2 = buon/1 anno/2; enjoy/1 your/1 meal/2 = buon/1 appetito/2;
    welcome = benvenuto
""")
_EXCLAMATIONS = _read("""
    cheers = salute; bless you = salute; welcome to Italy = benvenuto in Italia; well done = bravo; help = aiuto;
    good idea = buona idea; hello world = ciao mondo; hello , world = ciao , mondo; be careful = attento;
    hello/1 everyone/2 = ciao/1 a/2 tutti/2; hi/1 everyone/2 = ciao/1 a/2 tutti/2; let us go = andiamo;
    what/1 a/1 pity/2 = che/1 peccato/2; come here = vieni qui
""")
THANKS = _read("""
    thanks = grazie; thank you = grazie; thank/1 you/1 very/2 much/2 = grazie/1 mille/2; many thanks = molte grazie;
    thank/1 you/1 so/2 much/2 = grazie/1 mille/2; thanks/1 a/2 lot/2 = grazie/1 mille/2
""")
_YES_NO = _read("yes = sì; no = no")
_ANSWERS = _read("""
    maybe = forse; of course = certo; OK = va bene; okay = va bene; all right = va bene; sure = certo;
    please = per favore; yes/1 ,/2 please/3 = sì/1 ,/2 per/3 favore/3; yes , thanks = sì , grazie;
    yes/1 ,/2 thank/3 you/3 = sì/1 ,/2 grazie/3; no/1 ,/2 thank/3 you/3 = no/1 ,/2 grazie/3; no , thanks = no , grazie;
    you are welcome = prego; no problem = nessun problema; do/2 not/1 worry/2 = non/1 preoccuparti/2;
    very good = molto bene; very well = molto bene; great = ottimo; perfect = perfetto; fine = bene; good = bene;
    me too = anch' io; one moment = un momento; wait/1 a/2 moment/3 = aspetta/1 un/2 momento/3;
    thank/1 you/1 for/2 your/3 help/4 = grazie/1 per/2 il/3 tuo/3 aiuto/4; I am coming = arrivo;
    thank/1 you/1 for/2 everything/3 = grazie/1 di/2 tutto/3
""")
_EXCUSES = _read("excuse me = scusa; sorry = scusa; I/1 am/1 sorry/2 = mi/1 dispiace/2")
_DIFFICULTIES = _read("""
    I know = lo so; I/2 do/2 not/1 know/2 = non/1 lo/2 so/2; I understand = capisco;
    I/2 do/2 not/1 understand/2 = non/1 capisco/2; I/1 am/1 lost/2 = mi/1 sono/1 perso/2;
    I/1 am/1 late/2 = sono/1 in/2 ritardo/2; I/2 need/2 help/3 = ho/2 bisogno/2 di/2 aiuto/3;
    I/2 speak/2 a/3 little/3 Italian/4 = parlo/2 un/3 po'/3 di/3 italiano/4;
    I/2 do/2 not/1 speak/2 Italian/3 = non/1 parlo/2 italiano/3
""")
_WELL = _read(
    "I/1 am/1 fine/2 = sto/1 bene/2; I/1 am/1 well/2 = sto/1 bene/2; I/1 am/1 very/2 well/3 = sto/1 molto/2 bene/3"
)
_STATEMENTS = _read("""
    I/1 am/1 here/2 = sono/1 qui/2; I/1 agree/2 = sono/1 d'/2 accordo/2; I/2 love/2 you/1 = ti/1 amo/2;
    I/1 love/2 you/3 too/4 = ti/3 amo/2 anch'/4 io/1; I/1 like/2 it/2 = mi/1 piace/2; I/1 am/1 hungry/2 = ho/1 fame/2;
    I/1 am/1 thirsty/2 = ho/1 sete/2; I/1 am/1 cold/2 = ho/1 freddo/2; I/1 am/1 tired/2 = sono/1 stanco/2;
    I/1 am/1 happy/2 = sono/1 felice/2; I/1 am/1 ready/2 = sono/1 pronto/2;
    I/1 am/1 very/2 happy/3 = sono/1 molto/2 felice/3; I/1 am/1 very/2 tired/3 = sono/1 molto/2 stanco/3;
    it/1 is/1 beautiful/2 = è/1 bello/2; it/1 is/1 true/2 = è/1 vero/2; it/1 is/1 not/2 true/3 = non/2 è/1 vero/3;
    the/1 weather/1 is/2 nice/3 = fa/2 bel/3 tempo/1; the/1 weather/1 is/2 bad/3 = fa/2 brutto/3 tempo/1;
    it/1 is/1 a/2 beautiful/3 day/4 = è/1 una/2 bella/3 giornata/4; this is a test = questo è un test;
    it/1 is/1 a/2 nice/3 day/4 = è/1 una/2 bella/3 giornata/4;
    attention/1 is/2 all/3 you/4 need/5 = l'/1 attenzione/1 è/2 tutto/3 ciò/3 che/3 ti/4 serve/5
""")
_AND_YOU = phrase("and you", "e tu")
_PERSONAL_QUESTIONS = _read("""
    how/1 are/2 you/2 = come/1 stai/2; how/1 are/2 you/2 doing/2 = come/1 stai/2; how/1 is/2 it/2 going/2 = come/1 va/2;
    how/1 are/2 you/2 today/3 = come/1 stai/2 oggi/3; what/1 is/3 your/2 name/3 = come/1 ti/2 chiami/3;
    where/1 are/3 you/3 from/2 = di/2 dove/1 sei/3; where/1 do/3 you/3 come/3 from/2 = da/2 dove/1 vieni/3;
    where/1 do/2 you/2 live/2 = dove/1 abiti/2; how/1 old/2 are/3 you/3 = quanti/1 anni/2 hai/3;
    what/1 do/2 you/2 do/3 = che/1 lavoro/3 fai/2; who/1 are/2 you/2 = chi/1 sei/2;
    what/1 are/2 you/2 doing/3 = che/1 cosa/1 stai/2 facendo/3; are/1 you/1 ready/2 = sei/1 pronto/2;
    are/1 you/1 hungry/2 = hai/1 fame/2
""")
_GREETING_QUESTIONS = _read("""
    hi/1 ,/2 how/3 are/4 you/4 = ciao/1 ,/2 come/3 stai/4; hi/1 how/3 are/4 you/4 = ciao/1 come/3 stai/4;
    hello/1 ,/2 how/3 are/4 you/4 = ciao/1 ,/2 come/3 stai/4; hello/1 how/3 are/4 you/4 = ciao/1 come/3 stai/4
""")
_PRACTICAL_QUESTIONS = _read("""
    do/2 you/2 speak/2 English/3 = parli/2 inglese/3; do/2 you/2 speak/2 Italian/3 = parli/2 italiano/3;
    do you understand = capisci; can/2 you/2 help/3 me/1 = mi/1 puoi/2 aiutare/3;
    can/1 you/1 repeat/2 = puoi/1 ripetere/2; how/1 much/1 does/2 it/2 cost/2 = quanto/1 costa/2;
    how/1 much/1 is/2 it/2 = quanto/1 costa/2; how/1 much/1 does/2 this/3 cost/2 = quanto/1 costa/2 questo/3;
    how/1 much/1 is/2 this/3 = quanto/1 costa/2 questo/3; is/1 it/1 far/2 = è/1 lontano/2;
    what/1 is/2 this/3 = che/1 cos'/1 è/2 questo/3; what/1 is/2 that/3 = che/1 cos'/1 è/2 quello/3;
    what/1 does/2 it/2 mean/2 = che/1 cosa/1 significa/2; what/1 time/2 is/3 it/3 = che/1 ore/2 sono/3;
    what/1 day/2 is/3 it/3 today/4 = che/1 giorno/2 è/3 oggi/4; how/1 is/2 the/3 weather/3 = che/1 tempo/3 fa/2
""")
_SHORT_QUESTIONS = _read("""
    really = davvero; why = perché; where = dove; when = quando; who = chi; how = come; what = che cosa;
    do/2 you/2 like/2 it/2 = ti/2 piace/2
""")
_MEETING = _read("""
    nice/1 to/2 meet/3 you/3 = piacere/1 di/2 conoscerti/3; pleased/1 to/2 meet/3 you/3 = piacere/1 di/2 conoscerti/3
""")
NUMBERS = tuple(phrase(english_number(n), italian_number(n)) for n in (*range(21), *range(30, 100, 10)))
_COUNTING = _read("one , two , three = uno , due , tre")
WORDS = (
    *(noun_phrase(noun, "bare") for noun in NOUNS.values() if noun.kind != "parents"),  # children are figli or bambini
    *(phrase(how.english, how.italian) for how in attributive_adjectives(NOUNS["shirt"]) if how.english in COLOR_WORDS),
    *NUMBERS,
)
# phrases, the topic, and the final marks they are written with, of which the first is the usual one
FIXED = tuple(
    (entry, topic, marks)
    for topic, marks, entries in (
        ("greetings", ("!", ".", ""), (*GREETINGS, *_GOODBYES, *_PARTING_WORDS, *_WISHES, *_EXCLAMATIONS, *THANKS)),
        ("greetings", (".", "!", ""), (*_YES_NO, *_ANSWERS, *_EXCUSES, *_MEETING, *_COUNTING)),
        ("greetings", (".", ""), (*_DIFFICULTIES, *_WELL, *_STATEMENTS)),
        ("greetings", ("?", ""), (_AND_YOU, *_GREETING_QUESTIONS, *_PERSONAL_QUESTIONS)),
        ("greetings", ("?", ""), (*_PRACTICAL_QUESTIONS, *_SHORT_QUESTIONS)),
        ("things", ("", "."), WORDS),
    )
    for entry in entries
)

EXCLAMATION = phrase("!", "!")
NO_MARK = Phrase((), ())
_FOREIGN = "John, Peter, Tom, Paul, David, Michael, Jack, Emma, Lucy, Alice, Sarah, Mary, Kate, Sofia"
NAMES = (*PERSON_NAMES, *(proper_name(name, "m") for name in _FOREIGN.split(", ")))
_ADDRESSED = (*NAMES, phrase("my/2 friend/1", "amico/1 mio/2"))


def _separator(rng: PortableRandom) -> Phrase:
    return rng.choice((COMMA, COMMA, COMMA, EXCLAMATION, FULL_STOP, NO_MARK))


def greetings(rng: PortableRandom) -> Sentence:
    """Hello, Marco! Hi, how are you? Good morning. My name is Anna. Hi how are you"""
    opening = rng.choice((*GREETINGS, *GREETINGS[:2]))
    if rng.chance(25):
        return Sentence(join(opening, COMMA, rng.choice(_ADDRESSED)), rng.choice("!."))
    if rng.chance(20):
        opening = join(opening, COMMA, rng.choice(NAMES))
    following = _greeting_question(rng) if rng.chance(60) else introductions(rng)
    return Sentence(join(opening, _separator(rng), following.phrase), following.mark)


def _greeting_question(rng: PortableRandom) -> Sentence:
    return where_and_when(rng) if rng.chance(20) else Sentence(rng.choice(_PERSONAL_QUESTIONS), "?")


def introductions(rng: PortableRandom) -> Sentence:
    """My name is John. I am Marco, nice to meet you. I am fine, thanks. And you?"""
    roll, name = rng.randbelow(100), rng.choice(NAMES)
    if roll < 45:
        words = phrase("my/1 name/2 is/2", "mi/1 chiamo/2").with_role("called") + name
    elif roll < 70:
        words = render(Clause(I, BE, after=(name,)))
    else:
        words = join(rng.choice(_WELL), rng.choice((COMMA, COMMA, NO_MARK)), rng.choice(THANKS[:4]))
        return Sentence(join(words, FULL_STOP, _AND_YOU), "?") if rng.chance(25) else Sentence(words)
    return Sentence(join(words, *sometimes(rng, 30, _separator(rng), rng.choice(_MEETING))))


def farewells(rng: PortableRandom) -> Sentence:
    """Goodbye, Anna! Thank you, Marco. Thank you and goodbye. Happy birthday, Maria! Good night, see you tomorrow."""
    roll, name = rng.randbelow(100), rng.choice(_ADDRESSED)
    if roll < 30:
        return Sentence(join(rng.choice(_GOODBYES), COMMA, name), rng.choice("!."))
    if roll < 50:
        return Sentence(join(rng.choice(THANKS), COMMA, name), rng.choice("!."))
    if roll < 65:
        return Sentence(join(rng.choice(_WISHES), COMMA, name), "!")
    if roll < 80:
        return Sentence(
            join(rng.choice(THANKS), _separator(rng), rng.choice((*_GOODBYES, *_PARTING_WORDS))), rng.choice("!.")
        )
    return Sentence(join(rng.choice(_GOODBYES), _separator(rng), rng.choice(_PARTING_WORDS)), rng.choice("!."))


def replies(rng: PortableRandom) -> Sentence:
    """Yes, I understand. Marco, the weather is nice. Congratulations, I am very happy. Hey, what time is it?"""
    opening = rng.choice((*_YES_NO, *GREETINGS, *THANKS[:2], *_EXCUSES, *_OPENINGS))
    if rng.chance(30):
        opening = rng.choice(_ADDRESSED)
    if rng.chance(30):
        return Sentence(join(opening, _separator(rng), rng.choice(_QUESTIONS)), "?")
    return Sentence(join(opening, _separator(rng), rng.choice(_REPLIES)), rng.choice("..!"))


_OPENINGS = _read(
    "OK = va bene; of course = certo; maybe = forse; perfect = perfetto; great = ottimo; well done = bravo"
)
_QUESTIONS = (*_PERSONAL_QUESTIONS, *_PRACTICAL_QUESTIONS, *_PRACTICAL_QUESTIONS, *_SHORT_QUESTIONS)
_REPLIES = (
    *(_ANSWERS + _DIFFICULTIES + _WELL + _STATEMENTS + _STATEMENTS),
    *(_WISHES + _WISHES + _EXCLAMATIONS + _PARTING_WORDS + _MEETING + _MEETING),
)


# what visitors look for, besides buildings
_SIGHT_GENDERS: tuple[Gender, ...] = ("m", "f", "f", "f", "m")
_SIGHTS = (
    *(noun_phrase(noun) for noun in nouns("bathroom bathroom kitchen beach market station bank hotel restaurant")),
    *(
        NounPhrase(entry.english, entry.italian, gender)
        for gender, entry in zip(
            _SIGHT_GENDERS,
            _read("""
                the toilet = il bagno; the/1 train/2 station/2 = la/1 stazione/2; the police = la polizia;
                the/1 bus/3 stop/2 = la/1 fermata/2 dell'/3 autobus/3; the/1 city/2 centre/2 = il/1 centro/2
            """),
            strict=True,
        )
    ),
)


def asking_for_help(rng: PortableRandom) -> Sentence:
    """Excuse me, where is the bathroom? Sorry, I do not understand. Is there a bank near here?"""
    roll = rng.randbelow(100)
    if roll < 40:
        question = as_question(Clause(rng.choice(_SIGHTS), BE, asking=WHERE))
    elif roll < 55:
        nearby = phrase("near here", "qui vicino")
        question = there_is_sentence(noun_phrase(rng.choice(KINDS["building"]), "a"), nearby, is_question=True)
    elif roll < 85:
        question = Sentence(rng.choice(_PRACTICAL_QUESTIONS), "?")
    else:
        question = Sentence(rng.choice(_DIFFICULTIES))
    if rng.chance(25):
        return question
    return Sentence(
        join(rng.choice((*_EXCUSES, *_EXCUSES, *GREETINGS[:4])), _separator(rng), question.phrase), question.mark
    )


def requests(rng: PortableRandom) -> Sentence:
    """A coffee, please. Two beers, please! Hello, I would like a sandwich. Yes, a glass of water. The bill, please."""
    roll = rng.randbelow(100)
    if roll < 50:
        amount: Determiner | int = rng.choice(("a", "a", "the", 2 + rng.randbelow(4)))
        return Sentence(join(noun_phrase(rng.choice(_ORDERED), amount), PLEASE), rng.choice(".!"))
    before = join(rng.choice((*GREETINGS[:2], GREETINGS[3], *_YES_NO)), COMMA)
    following = ordering(rng) if roll < 80 else commands(rng)
    return Sentence(join(before, following.phrase), following.mark)


_ORDERED = nouns("coffee coffee tea beer pizza sandwich ice_cream cake salad water bill map key ticket table room")


def origins(rng: PortableRandom) -> Sentence:
    """I am from Rome. Are you from Italy? My mother is from Japan. I am not from here."""
    is_question = rng.chance(25)
    who = rng.choice((YOU, random_subject(rng, True))) if is_question else rng.choice((I, I, random_subject(rng)))
    negated = not is_question and rng.chance(12)
    if rng.chance(40):
        where = prepositional("from", "di", rng.choice(CITY_NAMES))
        return as_sentence(Clause(who, BE, negated=negated, after=(where,)), is_question)
    country = noun_phrase(rng.choice((*KINDS["country"], *KINDS["far country"])), "generic")
    where = prepositional("from", "da", country)
    return as_sentence(Clause(who, _COME, negated=negated, after=(where,)), is_question)


_COME = Verb("be", "venire", with_essere=True)  # I am from Italy: vengo dall'Italia


def kinds_of(rng: PortableRandom) -> Sentence:
    """Your cat is a lovely cat. This book is an interesting book. Is Rome a beautiful city?"""
    is_question = rng.chance(20)
    noun = rng.choice(nouns("+animal +animal +animal +reading +vehicle +garment +building +event"))
    owned = noun.kind not in {"building", "event"} and rng.chance(70)
    what = noun_phrase(noun, rng.choice(OWNERS) if owned else rng.choice(POINTED))
    named = noun_phrase(noun, "a", adjective=rng.choice(attributive_adjectives(noun)))
    return as_sentence(Clause(what, BE, negated=not is_question and rng.chance(15), after=(named,)), is_question)


def headlines(rng: PortableRandom) -> Sentence:
    """Man eats small dinosaur. Woman sees old castle. The dog sees a cat."""
    verb = rng.choice((*_HEADLINE_VERBS, ACTIONS["eat"], ACTIONS["eat"]))
    prey = verb.english in {"eat", "look for"} and rng.chance(60)
    things = [noun for noun in (KINDS["animal"] if prey else verb.objects) if not (noun.is_mass or noun.is_pair)]
    of_animals = verb.english in {"eat", "see", "find", "look for"} and rng.chance(45)
    agent, thing = rng.choice(KINDS["animal" if of_animals else "person"]), rng.choice(things)
    while agent is thing:
        agent = rng.choice(KINDS["person"])
    how = rng.choice(attributive_adjectives(thing)) if attributive_adjectives(thing) and rng.chance(60) else None
    if not rng.chance(35):
        return Sentence(headline(agent, verb, thing, how))
    articles: tuple[Determiner, ...] = ("the", "a")
    who, what = noun_phrase(agent, rng.choice(articles)), noun_phrase(thing, rng.choice(articles), adjective=how)
    return as_statement(Clause(who, verb, what))


_HEADLINE_VERBS = tuple(ACTIONS[name] for name in ("eat", "see", "find", "buy", "sell", "look for", "open", "wash"))


def headline(agent: Noun, verb: Verb, thing: Noun, how: Adjective | None = None) -> Phrase:
    """Return a sentence without articles in English: man eats small dinosaur, un uomo mangia un dinosauro piccolo."""
    who, what = noun_phrase(agent, "a"), noun_phrase(thing, "a", adjective=how)
    return render(Clause(_without_article(who), verb, _without_article(what)))


def _without_article(named: NounPhrase) -> NounPhrase:
    """Return the noun phrase without its English article; the Italian one is aligned with the noun."""
    article, *rest = named.italian
    return NounPhrase(named.english[1:], (GlossedWord(article.text, ("noun",)), *rest), named.gender)


def fragments(rng: PortableRandom) -> Sentence:
    """The cat. A red car. My mother. Two apples. These shoes"""
    noun = rng.choice(tuple(NOUNS.values()))
    if noun.kind in _UNDETERMINED:
        return Sentence(noun_phrase(noun, "the" if noun.is_pair else "bare"))
    how, roll = random_adjective(rng, noun), rng.randbelow(100)
    if roll < 35 or noun.is_mass:
        return Sentence(noun_phrase(noun, rng.choice(POINTED), roll < 10 and not noun.is_mass, how))
    if noun.is_pair:
        return Sentence(noun_phrase(noun, rng.choice((*OWNERS, *POINTED)), adjective=how))
    if roll < 65:
        return Sentence(noun_phrase(noun, "a", adjective=how))
    if roll < 85:
        return Sentence(noun_phrase(noun, rng.choice(OWNERS), adjective=how))
    return Sentence(noun_phrase(noun, 2 + rng.randbelow(9), adjective=how))


_UNDETERMINED = {"country", "far country", "language", "studies", "meal", "sound", "parents"}
