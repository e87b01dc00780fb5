"""Gold sentences, written by hand before the grammar: every rule must produce them."""

import pytest

from regard.phrasebook.actions import ANYONE, ANYTHING, EVERYONE, NOBODY, WHO
from regard.phrasebook.clauses import (
    A_LOT,
    ALREADY,
    COMMA,
    EVER,
    NEVER,
    PLEASE,
    QUESTION_MARK,
    VERY_MUCH,
    YET,
    Clause,
    Nominal,
    join,
    render,
)
from regard.phrasebook.complex_sentences import AND, BECAUSE, IF, THAT, with_relative
from regard.phrasebook.noun_phrases import (
    CITIES,
    EXPERTS,
    FUTURE,
    HABIT,
    HE,
    IT,
    PAST,
    SHE,
    THEY,
    WE,
    YOU,
    YOU_TWO,
    Determiner,
    I,
    NounPhrase,
    Pronoun,
    agreeing_adjective,
    at_the_hour,
    joined_by_and,
    joined_with_i,
    noun_phrase,
    places,
    prepositional,
    referring_pronoun,
    with_pronoun,
)
from regard.phrasebook.nouns import CHARACTER, FEMININE, FIRST, MOOD, NOUNS, SAME, attributive_adjectives
from regard.phrasebook.people import VERY, more
from regard.phrasebook.phrases import Phrase, phrase, spell, years
from regard.phrasebook.places import there_is_sentence, time_sentence
from regard.phrasebook.preferences import HOW_MUCH, euros, infinitive
from regard.phrasebook.questions import HOW_OLD, WHAT, WHEN, WHERE, WHY, command, how_many_of
from regard.phrasebook.sampling import PERSON_NAMES
from regard.phrasebook.verbs import (
    ACTIONS,
    ACTIVITIES,
    BE,
    BE_HAVING,
    BE_MAKING,
    COST,
    FEELINGS,
    GIVING,
    HAVE,
    LIKE,
    MISS,
    MODALS,
    MOVING,
    OF_THINGS,
    ONESELF,
    STATES,
    STAYING,
    TALKING,
    TO_PEOPLE,
    WEATHER,
    WOULD_LIKE,
)

V = TO_PEOPLE | FEELINGS | GIVING | ACTIVITIES | MOVING | STAYING | OF_THINGS | ONESELF | WEATHER | STATES | ACTIONS
MARCO, MARIA, ANNA = PERSON_NAMES[0], PERSON_NAMES[6], PERSON_NAMES[7]
YESTERDAY, THIS_MORNING, TOMORROW, EVERY_DAY = PAST[0], PAST[1], FUTURE[0], HABIT[0]
ROME, FLORENCE = CITIES[0], CITIES[2]


def n(
    name: str, whose: Determiner | Pronoun | NounPhrase | int = "the", plural: bool = False, adjective: str = ""
) -> NounPhrase:
    noun = NOUNS[name]
    return noun_phrase(
        noun, whose, plural, next((how for how in attributive_adjectives(noun) if how.english == adjective), None)
    )


def some(name: str) -> NounPhrase:
    return n(name, "some", plural=not NOUNS[name].is_mass)


def many(name: str, whose: Determiner | Pronoun | NounPhrase = "the") -> NounPhrase:
    return n(name, whose, plural=True)


def is_(who: Nominal, how: str, name: str = "", degree: Phrase | None = None) -> Clause:
    """Return a clause with `be` and an adjective, which the noun `name` can have."""
    adjectives = attributive_adjectives(NOUNS[name]) if name else (*CHARACTER, *MOOD.values())
    return Clause(who, BE, after=(agreeing_adjective(next(a for a in adjectives if a.english == how), who, degree),))


def at(name: str) -> Phrase:
    return places(name)[0].at


def to(name: str) -> Phrase:
    return places(name)[0].to


def by(english: str, italian: str, name: str) -> Phrase:
    return prepositional(english, italian, n(name))


def past(who: Nominal, verb: str, what: Nominal | None = None, *after: Phrase, whom: Nominal | None = None) -> Clause:
    return Clause(who, V[verb], what, whom, tense="past", after=after)


def will(who: Nominal, verb: str, what: Nominal | None = None, *after: Phrase, whom: Nominal | None = None) -> Clause:
    return Clause(who, V[verb], what, whom, tense="future", after=after)


def now(who: Nominal, verb: str, what: Nominal | None = None, *after: Phrase, asking: Phrase | None = None) -> Clause:
    return Clause(who, V[verb], what, tense="progressive", after=after, asking=asking, question=asking is not None)


def modal(
    who: Nominal, name: str, verb: str, what: Nominal | None = None, *after: Phrase, negated: bool = False
) -> Clause:
    return Clause(who, V[verb], what, modal=MODALS[name], after=after, negated=negated)


def question(clause: Clause) -> Clause:
    return Clause(**{**vars(clause), "question": True})


THE_KEYS, THE_APPLES = many("key"), many("apple")
TALL = next(how for how in CHARACTER if how.english == "tall")
STUDENT = FEMININE["student"]
FAST = next(how for how in attributive_adjectives(NOUNS["train"]) if how.english == "fast")

# fmt: off
GOLD: list[tuple[Clause | Phrase, str, str]] = [
    # pronouns before the verb
    (Clause(I, V["love"], YOU, degree=VERY_MUCH), "I love you very much", "Ti amo molto"),
    (Clause(I, V["love"], n("mother", I), degree=VERY_MUCH), "I love my mother very much", "Amo molto mia madre"),
    (Clause(THEY, FEELINGS["love"], WE), "They love us", "Ci amano"),
    (past(I, "see", SHE, YESTERDAY), "I saw her yesterday", "L'ho vista ieri"),
    (past(I, "see", THEY, YESTERDAY), "I saw them yesterday", "Li ho visti ieri"),
    (will(WE, "help", YOU_TWO), "We will help you two", "Vi aiuteremo"),
    (Clause(MARIA, FEELINGS["know"], HE, negated=True), "Maria does not know him", "Maria non lo conosce"),
    (now(I, "wait for", YOU), "I am waiting for you", "Ti sto aspettando"),
    (past(SHE, "call", I, THIS_MORNING), "She called me this morning", "Mi ha chiamato stamattina"),
    (question(past(YOU, "see", WE)), "Did you see us", "Ci hai visto"),
    (past(I, "give", n("book"), whom=SHE), "I gave her the book", "Le ho dato il libro"),
    (will(I, "send", n("letter", "a"), whom=HE), "I will send him a letter", "Gli manderò una lettera"),
    (past(HE, "show", many("photo"), whom=THEY), "He showed them the photos", "Gli ha mostrato le foto"),
    (past(I, "give", IT, whom=SHE), "I gave it to her", "Gliel'ho dato"),
    (question(will(YOU, "give", THEY, whom=I)), "Will you give them to me", "Me li darai"),
    (past(SHE, "lend", IT, whom=WE), "She lent it to us", "Ce l'ha prestato"),
    (past(I, "give", n("book"), whom=n("brother", I)), "I gave the book to my brother",
     "Ho dato il libro a mio fratello"),
    (past(WE, "send", n("letter", "a"), whom=many("student")), "We sent a letter to the students",
     "Abbiamo mandato una lettera agli studenti"),
    # articles
    (now(n("student"), "read", n("newspaper")), "The student is reading the newspaper",
     "Lo studente sta leggendo il giornale"),
    (Clause(n("psychologist"), HAVE, n("backpack")), "The psychologist has the backpack", "Lo psicologo ha lo zaino"),
    (Clause(I, LIKE, n("gnocchi", "generic")), "I like gnocchi", "Mi piacciono gli gnocchi"),
    (is_(n("water"), "cold", "water"), "The water is cold", "L'acqua è fredda"),
    (past(I, "lose", n("umbrella")), "I lost the umbrella", "Ho perso l'ombrello"),
    (past(I, "find", many("mirror")), "I found the mirrors", "Ho trovato gli specchi"),
    (past(SHE, "buy", n("orange", "a")), "She bought an orange", "Ha comprato un'arancia"),
    (Clause(I, HAVE, n("idea", "a")), "I have an idea", "Ho un'idea"),
    (Clause(HE, HAVE, n("hat", "a")), "He has a hat", "Ha un cappello"),
    (Clause(I, HAVE, n("backpack", "a")), "I have a backpack", "Ho uno zaino"),
    (Clause(SHE, HAVE, n("uncle", "a")), "She has an uncle", "Ha uno zio"),
    (Clause(HE, BE, after=(n("man", "a", adjective="honest"),)), "He is an honest man", "È un uomo onesto"),
    (past(I, "buy", n("dictionary", "a", adjective="useful")), "I bought a useful dictionary",
     "Ho comprato un dizionario utile"),
    (past(I, "eat", n("egg", "a")), "I ate an egg", "Ho mangiato un uovo"),
    (past(I, "buy", n("egg", 12)), "I bought twelve eggs", "Ho comprato dodici uova"),
    (is_(many("egg"), "fresh", "egg"), "The eggs are fresh", "Le uova sono fresche"),
    (past(I, "buy", some("bread")), "I bought some bread", "Ho comprato del pane"),
    (Clause(WE, V["want"], some("sugar")), "We want some sugar", "Vogliamo dello zucchero"),
    (Clause(I, WOULD_LIKE, some("water")), "I would like some water", "Vorrei dell'acqua"),
    (past(SHE, "buy", some("orange")), "She bought some oranges", "Ha comprato delle arance"),
    (Clause(I, V["want"], n("beer", "another")), "I want another beer", "Voglio un'altra birra"),
    (past(WE, "read", noun_phrase(NOUNS["book"], adjective=SAME)), "We read the same book",
     "Abbiamo letto lo stesso libro"),
    # this and that, beautiful and good
    (is_(many("student", "that"), "nice"), "Those students are nice", "Quegli studenti sono simpatici"),
    (is_(n("hotel", "that"), "expensive", "hotel"), "That hotel is expensive", "Quell'albergo è caro"),
    (is_(n("backpack", "that"), "new", "backpack"), "That backpack is new", "Quello zaino è nuovo"),
    (is_(n("dog", "that"), "big", "dog"), "That dog is big", "Quel cane è grande"),
    (Clause(I, FEELINGS["know"], many("boy", "that")), "I know those boys", "Conosco quei ragazzi"),
    (is_(n("man", "this"), "kind"), "This man is kind", "Quest'uomo è gentile"),
    (is_(n("shoes", "this"), "comfortable", "shoes"), "These shoes are comfortable", "Queste scarpe sono comode"),
    (Clause(THEY, HAVE, n("garden", "a", adjective="beautiful")), "They have a beautiful garden",
     "Hanno un bel giardino"),
    (past(I, "see", n("mirror", 2, adjective="beautiful")), "I saw two beautiful mirrors",
     "Ho visto due begli specchi"),
    (Clause(SHE, BE, after=(noun_phrase(STUDENT, "a", adjective=attributive_adjectives(STUDENT)[0]),)),
     "She is a good student", "È una brava studentessa"),
    (past(I, "read", n("book", "a", adjective="good")), "I read a good book", "Ho letto un buon libro"),
    # possessives
    (Clause(n("book", I), BE, after=(by("on", "su", "table"),)), "My book is on the table",
     "Il mio libro è sul tavolo"),
    (is_(n("mother", I), "tired"), "My mother is tired", "Mia madre è stanca"),
    (is_(n("mother", THEY), "tired"), "Their mother is tired", "La loro madre è stanca"),
    (is_(many("brother", I), "tall"), "My brothers are tall", "I miei fratelli sono alti"),
    (Clause(n("husband", SHE), V["work"], after=(at("bank"),)), "Her husband works at the bank",
     "Suo marito lavora in banca"),
    (Clause(many("friend", WE), V["live"], after=(ROME.at,)), "Our friends live in Rome",
     "I nostri amici abitano a Roma"),
    (past(I, "find", many("key", MARIA)), "I found Maria's keys", "Ho trovato le chiavi di Maria"),
    (Clause(n("sister", MARCO), BE, after=(noun_phrase(FEMININE["teacher"], "a"),)), "Marco's sister is a teacher",
     "La sorella di Marco è un'insegnante"),
    # contracted prepositions
    (Clause(THE_KEYS, BE, after=(by("in", "in", "bag"),)), "The keys are in the bag", "Le chiavi sono nella borsa"),
    (Clause(n("cat"), BE, after=(by("under", "sotto", "bed"),)), "The cat is under the bed",
     "Il gatto è sotto il letto"),
    (Clause(n("bank"), BE, after=(by("near", "vicino a", "station"),)), "The bank is near the station",
     "La banca è vicino alla stazione"),
    (Clause(n("museum"), BE, after=(by("in front of", "davanti a", "church"),)), "The museum is in front of the church",
     "Il museo è davanti alla chiesa"),
    (now(WE, "talk about", n("film")), "We are talking about the film", "Stiamo parlando del film"),
    (now(THEY, "talk about", many("exam")), "They are talking about the exams", "Stanno parlando degli esami"),
    (now(I, "go", None, EXPERTS[0]), "I am going to the doctor", "Sto andando dal medico"),
    (past(THEY, "come back", None, prepositional("from", "da", n("Spain", "generic"))), "They came back from Spain",
     "Sono tornati dalla Spagna"),
    (there_is_sentence(n("letter", "a"), by("on", "su", "desk"), False).phrase, "There is a letter on the desk",
     "C'è una lettera sulla scrivania"),
    (there_is_sentence(n("glass", 2), by("on", "su", "shelf"), False).phrase, "There are two glasses on the shelf",
     "Ci sono due bicchieri sullo scaffale"),
    (Clause(n("gloves"), BE, after=(by("in", "in", "wardrobe"),)), "The gloves are in the wardrobe",
     "I guanti sono nell'armadio"),
    # essere and its participles
    (past(MARIA, "go", None, to("market")), "Maria went to the market", "Maria è andata al mercato"),
    (past(joined_by_and(MARIA, ANNA), "leave", None, YESTERDAY), "Maria and Anna left yesterday",
     "Maria e Anna sono partite ieri"),
    (past(joined_by_and(MARCO, ANNA), "leave", None, YESTERDAY), "Marco and Anna left yesterday",
     "Marco e Anna sono partiti ieri"),
    (Clause(joined_with_i(MARCO), BE_HAVING, after=(phrase("hungry", "fame"),)), "Marco and I are hungry",
     "Io e Marco abbiamo fame"),
    (past(SHE, "be born", None, FLORENCE.at), "She was born in Florence", "È nata a Firenze"),
    (past(many("girl"), "arrive", None, at("station")), "The girls arrived at the station",
     "Le ragazze sono arrivate alla stazione"),
    # reflexive verbs
    (Clause(I, V["wake up"], after=(at_the_hour(7), EVERY_DAY)), "I wake up at seven every day",
     "Mi sveglio alle sette ogni giorno"),
    (past(MARIA, "get up", None, at_the_hour(8, 30)), "Maria got up at half past eight",
     "Maria si è alzata alle otto e mezza"),
    (will(WE, "have fun", None, at("party")), "We will have fun at the party", "Ci divertiremo alla festa"),
    (now(many("child"), "fall asleep"), "The children are falling asleep", "I bambini si stanno addormentando"),
    # dative verbs: like and miss
    (Clause(I, LIKE, n("bread")), "I like the bread", "Mi piace il pane"),
    (Clause(SHE, LIKE, many("apple", "generic")), "She likes apples", "Le piacciono le mele"),
    (Clause(MARIA, LIKE, n("coffee", "generic"), negated=True), "Maria does not like coffee",
     "A Maria non piace il caffè"),
    (question(Clause(YOU, LIKE, n("sea"))), "Do you like the sea", "Ti piace il mare"),
    (Clause(many("child"), LIKE, n("zoo")), "The children like the zoo", "Ai bambini piace lo zoo"),
    (Clause(I, LIKE, after=(infinitive(V["swim"]),)), "I like to swim", "Mi piace nuotare"),
    (Clause(WE, LIKE, n("film"), tense="past", degree=VERY_MUCH), "We liked the film very much",
     "Ci è piaciuto molto il film"),
    (Clause(THEY, LIKE, many("song"), tense="past"), "They liked the songs", "Gli sono piaciute le canzoni"),
    (Clause(I, MISS, YOU), "I miss you", "Mi manchi"),
    (Clause(I, MISS, n("parents", I)), "I miss my parents", "Mi mancano i miei genitori"),
    # modal verbs
    (modal(I, "want to", "see", YOU), "I want to see you", "Ti voglio vedere"),
    (modal(WE, "can", "help", THEY, negated=True), "We cannot help them", "Non li possiamo aiutare"),
    (Clause(YOU, ACTIVITIES["study"], modal=MODALS["must"]), "You must study", "Devi studiare"),
    (modal(SHE, "have to", "wash", n("car")), "She has to wash the car", "Deve lavare la macchina"),
    (question(modal(YOU, "want to", "eat", None, with_pronoun("with", "con", WE))), "Do you want to eat with us",
     "Vuoi mangiare con noi"),
    (modal(HE, "know how to", "swim"), "He knows how to swim", "Sa nuotare"),
    (modal(I, "would like to", "book", n("room", "a")), "I would like to book a room", "Vorrei prenotare una stanza"),
    (modal(I, "want to", "get up", None, at_the_hour(6)), "I want to get up at six", "Mi voglio alzare alle sei"),
    # tenses, adverbs, negation
    (will(I, "eat", n("cake"), TOMORROW), "I will eat the cake tomorrow", "Mangerò la torta domani"),
    (will(WE, "pay", n("bill")), "We will pay the bill", "Pagheremo il conto"),
    (will(THEY, "come", None, ROME.to), "They will come to Rome", "Verranno a Roma"),
    (Clause(I, V["eat"], tense="perfect", adverb=ALREADY), "I have already eaten", "Ho già mangiato"),
    (Clause(I, V["finish"], n("book"), tense="perfect", adverb=YET, negated=True), "I have not finished the book yet",
     "Non ho ancora finito il libro"),
    (Clause(SHE, V["drink"], n("wine", "bare"), adverb=NEVER), "She never drinks wine", "Non beve mai vino"),
    (question(Clause(YOU, V["see"], n("sea"), tense="perfect", adverb=EVER)), "Have you ever seen the sea",
     "Hai mai visto il mare"),
    (Clause(I, V["see"], ANYONE, tense="past", negated=True), "I did not see anyone", "Non ho visto nessuno"),
    (Clause(WE, V["eat"], ANYTHING, tense="past", negated=True), "We did not eat anything",
     "Non abbiamo mangiato niente"),
    (Clause(NOBODY, LIKE, n("soup")), "Nobody likes the soup", "A nessuno piace la zuppa"),
    (is_(EVERYONE, "happy"), "Everyone is happy", "Tutti sono felici"),
    (now(IT, "rain"), "It is raining", "Sta piovendo"),
    (Clause(IT, BE_MAKING, tense="future", after=(phrase("cold", "freddo"), TOMORROW)), "It will be cold tomorrow",
     "Farà freddo domani"),
    # questions
    (Clause(n("station"), BE, asking=WHERE, question=True), "Where is the station", "Dov'è la stazione"),
    (Clause(many("key", I), BE, asking=WHERE, question=True), "Where are my keys", "Dove sono le mie chiavi"),
    (now(YOU, "eat", asking=WHAT), "What are you eating", "Che cosa stai mangiando"),
    (Clause(n("brother", YOU), V["leave"], tense="future", asking=WHEN, question=True), "When will your brother leave",
     "Quando partirà tuo fratello"),
    (now(MARIA, "cry", asking=WHY), "Why is Maria crying", "Perché Maria sta piangendo"),
    (past(WHO, "break", n("glass")), "Who broke the glass", "Chi ha rotto il bicchiere"),
    (Clause(n("dress", "this"), COST, asking=HOW_MUCH, question=True), "How much does this dress cost",
     "Quanto costa questo vestito"),
    (Clause(YOU, HAVE, asking=how_many_of(NOUNS["brother"]), question=True), "How many brothers do you have",
     "Quanti fratelli hai"),
    (Clause(n("daughter", YOU), BE_HAVING, asking=HOW_OLD, question=True), "How old is your daughter",
     "Quanti anni ha tua figlia"),
    # numbers and times
    (Clause(n("grandmother", I), BE_HAVING, after=(years(83),)), "My grandmother is eighty-three years old",
     "Mia nonna ha ottantatré anni"),
    (Clause(I, BE_HAVING, after=(years(30),)), "I am thirty years old", "Ho trent'anni"),
    (Clause(n("shoes"), COST, after=(euros(48),)), "The shoes cost forty-eight euros",
     "Le scarpe costano quarantotto euro"),
    (time_sentence(1), "It is one", "È l'una"),
    (time_sentence(5, 45), "It is a quarter to five", "Sono le cinque meno un quarto"),
    (Clause(n("train"), V["leave"], after=(at_the_hour(9, 10),)), "The train leaves at ten past nine",
     "Il treno parte alle nove e dieci"),
    (Clause(noun_phrase(NOUNS["bus"], adjective=FIRST), V["arrive"], after=(at_the_hour(1),)),
     "The first bus arrives at one", "Il primo autobus arriva all'una"),
    # comparatives, referring pronouns, joined clauses
    (Clause(MARIA, BE, after=(more(TALL, MARIA, ANNA),)), "Maria is taller than Anna", "Maria è più alta di Anna"),
    (Clause(n("train"), BE, after=(more(FAST, n("train"), n("bus")),)),
     "The train is faster than the bus", "Il treno è più veloce dell'autobus"),
    (join(render(past(I, "buy", THE_APPLES)), AND, render(past(I, "eat", referring_pronoun("f", True)))),
     "I bought the apples and I ate them", "Ho comprato le mele e le ho mangiate"),
    (join(render(Clause(n("key"), BE, asking=WHERE, question=True)), QUESTION_MARK,
          render(Clause(I, V["see"], referring_pronoun("f", False), negated=True))),
     "Where is the key? I do not see it", "Dov'è la chiave? Non la vedo"),
    (join(IF, render(Clause(YOU, V["want"], THE_KEYS)), COMMA,
          render(will(I, "give", referring_pronoun("f", True), whom=YOU))),
     "If you want the keys, I will give them to you", "Se vuoi le chiavi, te le darò"),
    (join(render(is_(n("car"), "dirty", "shirt")), AND,
          render(modal(I, "have to", "wash", referring_pronoun("f", False)))),
     "The car is dirty and I have to wash it", "La macchina è sporca e la devo lavare"),
    (join(render(Clause(I, TALKING["know"])), THAT, render(is_(MARIA, "tired"))), "I know that Maria is tired",
     "So che Maria è stanca"),
    (join(render(Clause(YOU, TALKING["know"], question=True)), render(Clause(n("sunglasses", I), BE, asking=WHERE))),
     "Do you know where my sunglasses are", "Sai dove sono i miei occhiali da sole"),
    (is_(with_relative(THE_APPLES, "that", past(I, "buy")), "delicious", "bread"),
     "The apples that I bought are delicious", "Le mele che ho comprato sono deliziose"),
    (join(render(is_(I, "tired")), BECAUSE, render(Clause(I, V["work"], tense="past", degree=A_LOT))),
     "I am tired because I worked a lot", "Sono stanco perché ho lavorato molto"),
    (join(render(is_(n("castle"), "beautiful", "castle", VERY)), AND, render(is_(n("castle"), "ancient", "castle"))),
     "The castle is very beautiful and the castle is ancient", "Il castello è molto bello e il castello è antico"),
    # commands
    (join(command(V["open"], n("window")), PLEASE), "Open the window, please", "Apri la finestra, per favore"),
    (command(V["open"], n("door"), banned=True), "Do not open the door", "Non aprire la porta"),
    (join(command(V["call"], None, I, "mi"), TOMORROW), "Call me tomorrow", "Chiamami domani"),
    (join(command(GIVING["give"], n("salt"), I, "mi"), PLEASE), "Give me the salt, please",
     "Dammi il sale, per favore"),
]
# fmt: on


@pytest.mark.parametrize(("meaning", "english", "italian"), GOLD, ids=[english for _, english, _ in GOLD])
def test_gold_sentences(meaning: Clause | Phrase, english: str, italian: str) -> None:
    rendered = render(meaning) if isinstance(meaning, Clause) else meaning
    assert spell(rendered.english) == english
    assert spell(rendered.italian) == italian
