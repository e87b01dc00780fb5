"""Everyday phrases and informal spellings, compared with translations written by hand."""

import pytest

from regard import phrasebook
from regard.phrasebook import AlignedPair
from regard.phrasebook.clauses import Clause, Sentence, as_statement, render
from regard.phrasebook.corpus import contract, every_spelling, random_spelling, typed
from regard.phrasebook.everyday import FIXED
from regard.phrasebook.noun_phrases import HE, YOU, I
from regard.phrasebook.phrases import phrase, spell
from regard.phrasebook.sampling import PortableRandom
from regard.phrasebook.verbs import ACTIVITIES, BE, MODALS

VISITORS = {
    "Hello": "Ciao",
    "hello": "ciao",
    "Hello!": "Ciao!",
    "Hi": "Ciao",
    "Good morning.": "Buongiorno.",
    "Good evening!": "Buonasera!",
    "good night": "buonanotte",
    "Goodbye!": "Arrivederci!",
    "See you tomorrow!": "A domani!",
    "Thanks!": "Grazie!",
    "thank you very much": "grazie mille",
    "Please": "Per favore",
    "Yes": "Sì",
    "no": "no",
    "Excuse me.": "Scusa.",
    "How are you?": "Come stai?",
    "how are you": "come stai",
    "What is your name?": "Come ti chiami?",
    "What's your name?": "Come ti chiami?",
    "Where are you from?": "Di dove sei?",
    "I don't understand.": "Non capisco.",
    "I do not understand": "Non capisco",
    "Do you speak English?": "Parli inglese?",
    "I'm hungry.": "Ho fame.",
    "i am tired": "sono stanco",
    "What time is it?": "Che ore sono?",
    "How much does it cost?": "Quanto costa?",
    "Can you help me?": "Mi puoi aiutare?",
    "The weather is nice.": "Fa bel tempo.",
    "Happy birthday!": "Buon compleanno!",
    "Congratulations!": "Congratulazioni!",
    "Have a nice day!": "Buona giornata!",
    "Nice to meet you.": "Piacere di conoscerti.",
    "three": "tre",
    "cat": "gatto",
}


def test_fixed_phrases_in_their_spellings() -> None:
    fixed = {pair.source: pair.target for entry, _, marks in FIXED for pair in every_spelling(entry, marks)}
    assert {source: fixed.get(source) for source in VISITORS} == VISITORS


@pytest.mark.slow
def test_fixed_phrases_are_in_train() -> None:
    train = {(pair.source, pair.target) for pair in phrasebook.split("train")}
    assert set(VISITORS.items()) <= train


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("Your cat is a lovely cat", "Il tuo gatto è un gatto adorabile"),
        ("Hi, how are you", "Ciao, come stai"),
        ("Man eats small dinosaur", "Un uomo mangia un dinosauro piccolo"),
        ("Where is the bathroom", "Dov'è il bagno"),
        ("Excuse me, where is the train station", "Scusa, dov'è la stazione"),
        ("I am from Italy", "Vengo dall'Italia"),
        ("I am from Rome", "Sono di Roma"),
        ("My name is John", "Mi chiamo John"),
        ("A coffee, please", "Un caffè, per favore"),
    ],
)
def test_drawn_sentences_have_the_sources_and_first_questions(source: str, target: str) -> None:
    spellings = {source.lower() + mark for mark in (".", "?", "!", "")}
    found = [pair for name in SPLITS for pair in phrasebook.split(name) if pair.source.lower() in spellings]
    assert {pair.target.rstrip(".?!").lower() for pair in found} == {target.lower()}


SPLITS: tuple[phrasebook.SplitName, ...] = ("train", "dev", "test")


def test_contractions() -> None:
    sleep = ACTIVITIES["sleep"]
    clauses = {
        Clause(I, BE, after=(phrase("here", "qui"),)): "I'm here",
        Clause(HE, sleep, tense="future", negated=True): "He won't sleep",
        Clause(HE, sleep, tense="future"): "He'll sleep",
        Clause(YOU, sleep, negated=True): "You don't sleep",
        Clause(YOU, sleep, modal=MODALS["can"], negated=True): "You can't sleep",
        Clause(I, sleep, modal=MODALS["would like to"]): "I'd like to sleep",
        Clause(YOU, sleep, question=True): "Do you sleep",
        Clause(HE, BE, asking=phrase("where", "dove")): "Where he is",
    }
    assert {spell(contract(render(clause).english)) for clause in clauses} == set(clauses.values())


def test_contractions_keep_the_alignment() -> None:
    clause = render(Clause(YOU, ACTIVITIES["sleep"], modal=MODALS["can"], negated=True))
    contracted = phrasebook.AlignedPair(*typed(type(clause)(contract(clause.english), clause.italian), "."))
    assert contracted == AlignedPair("You can't sleep.", "Non puoi dormire.", ((0, 1), (1, 1), (2, 0), (3, 2), (4, 3)))


def test_a_small_first_letter_and_no_mark() -> None:
    assert typed(phrase("I sleep", "dormo"), capital=False)[:2] == ("i sleep", "dormo")
    marco = phrase("Marco , where are you", "Marco , dove sei")
    assert typed(marco, "?", capital=False)[:2] == ("Marco, where are you?", "Marco, dove sei?")


def test_most_sentences_are_spelled_in_the_usual_way() -> None:
    rng, sentence = PortableRandom(seed=3), Sentence(render(Clause(YOU, ACTIVITIES["sleep"], question=True)), "?")
    spellings = [random_spelling(rng, sentence).source for _ in range(400)]
    assert set(spellings) == {"Do you sleep?", "Do you sleep", "do you sleep?", "do you sleep"}
    assert 320 < spellings.count("Do you sleep?") < 380
    statement = as_statement(Clause(I, BE, after=(phrase("here", "qui"),)))
    assert {random_spelling(rng, statement).source for _ in range(400)} >= {"I'm here.", "i am here", "I am here."}
