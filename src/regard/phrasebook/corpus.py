"""The corpus: sentence pairs drawn from the grammar, and their train, dev and test splits.

Sentences vary in how they are typed: with contractions, a small first letter, or without a final mark.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from itertools import pairwise
from typing import Literal, NamedTuple, get_args

from regard.errors import ConfigError
from regard.phrasebook import actions, complex_sentences, everyday, people, places, preferences, questions
from regard.phrasebook.clauses import VERY_MUCH, Clause, Sentence, render
from regard.phrasebook.noun_phrases import YOU, I, noun_phrase
from regard.phrasebook.nouns import NOUNS, attributive_adjectives
from regard.phrasebook.phrases import GlossedWord, Phrase, Words, align, spell, words_and_punctuation
from regard.phrasebook.sampling import PortableRandom
from regard.phrasebook.verbs import ACTIONS, BE, FEELINGS

_BEFORE_NOT = {
    "do": "don", "does": "doesn", "did": "didn", "is": "isn", "are": "aren", "will": "won", "have": "haven",
    "has": "hasn", "would": "wouldn",
}  # fmt: skip
_AFTER_SUBJECT = {
    **{(who, "are"): "'re" for who in ("you", "we", "they")},
    **{(who, "is"): "'s" for who in ("he", "she", "it", "that", "what", "where", "who", "how", "there")},
    **{(who, "will"): "'ll" for who in ("I", "you", "he", "she", "it", "we", "they")},
    **{(who, "would"): "'d" for who in ("I", "you", "he", "she", "we", "they")},
    ("I", "am"): "'m",
    ("let", "us"): "'s",
}
_CLAUSE_STARTS = {",", ".", "?", "!", "and", "but", "because", "that"}
SplitName = Literal["train", "dev", "test"]
NUM_PAIRS = 70_000
MAX_ENGLISH_WORDS = 14  # of English, so that a small model can read every sentence
MIN_TRAIN_COUNT = 5  # how often every word of dev and test occurs in train
_THOUSANDTHS: dict[SplitName, range] = {"test": range(20), "dev": range(20, 40)}
_REPEATED_WORD = re.compile(r"\b(\w+) \1\b")  # `I gave you two two books` is correct, but confusing

# Functions that draw a sentence, with their weights, by topic. The order is part of the corpus.
_GRAMMAR: dict[str, dict[Callable[[PortableRandom], Sentence], int]] = {
    "doing": {
        actions.actions: 18,
        actions.achievements: 6,
        actions.habits: 7,
        actions.states: 5,
        actions.owning: 2,
        actions.negative_pronouns: 4,
        everyday.headlines: 4,
    },
    "people": {
        people.meeting: 7,
        people.meeting_there: 3,
        people.have_met: 2,
        people.feeling: 7,
        people.calling_often: 4,
        people.giving: 8,
        people.giving_it: 3,
    },
    "being": {
        people.moods: 4,
        people.character: 3,
        people.qualities: 5,
        people.comparing: 4,
        people.jobs: 3,
        people.sensations: 2,
        people.ages: 3,
        people.naming: 3,
        everyday.kinds_of: 4,
        everyday.origins: 3,
    },
    "places": {
        places.where_things_are: 5,
        places.there_is: 3,
        places.is_there_nearby: 1,
        places.where_people_are: 4,
        places.going: 7,
        places.going_often: 3,
        places.arriving: 4,
        places.living: 4,
    },
    "activities": {actions.activities: 7, actions.animals: 2, actions.daily_routine: 5},
    "tastes": {
        preferences.liking: 6,
        preferences.liked_it: 4,
        preferences.liking_to: 3,
        preferences.missing: 3,
        preferences.preferring: 3,
    },
    "wishes": {
        preferences.wanting: 8,
        preferences.wanting_you: 6,
        preferences.wanting_to_go: 5,
        preferences.wanting_to_do: 4,
    },
    "ordering": {preferences.ordering: 3, preferences.shopping: 3, preferences.prices: 3},
    "commands": {questions.commands: 3, questions.commands_to_help: 3},
    "asking": {
        questions.where_is: 2,
        questions.where_and_when: 3,
        questions.why_with_what: 4,
        questions.what_and_whom: 4,
        questions.how_many: 1,
        questions.how: 2,
    },
    "times": {places.clock_times: 1, places.timetable: 3, places.from_to: 2, places.weather: 2},
    "stories": {
        complex_sentences.chains: 6,
        complex_sentences.not_found: 3,
        complex_sentences.remedies: 5,
        complex_sentences.offers: 3,
    },
    "linking": {
        complex_sentences.reasons: 4,
        complex_sentences.conditions: 4,
        complex_sentences.said_that: 7,
        complex_sentences.wondering: 4,
        complex_sentences.things_that: 5,
        complex_sentences.people_who: 3,
    },
    "greetings": {
        everyday.greetings: 6,
        everyday.introductions: 1,
        everyday.farewells: 3,
        everyday.replies: 8,
        everyday.asking_for_help: 4,
        everyday.requests: 3,
    },
    "things": {everyday.fragments: 5},
}
_DRAWS = tuple(
    (topic, draw) for topic, draws in _GRAMMAR.items() for draw, weight in draws.items() for _ in range(weight)
)
_LOVELY = next(how for how in attributive_adjectives(NOUNS["cat"]) if how.english == "lovely")
_SMALL = next(how for how in attributive_adjectives(NOUNS["dinosaur"]) if how.english == "small")
# sentences of well-known explanations of the Transformer, always in test: phrase, final mark and topic
KNOWN_SENTENCES = (
    (render(Clause(I, FEELINGS["love"], YOU, degree=VERY_MUCH)), "", "people"),
    (
        render(Clause(noun_phrase(NOUNS["cat"], YOU), BE, after=(noun_phrase(NOUNS["cat"], "a", adjective=_LOVELY),))),
        "",
        "being",
    ),
    (everyday.headline(NOUNS["man"], ACTIONS["eat"], NOUNS["dinosaur"], _SMALL), ".", "doing"),
)


def contract(words: Words) -> Words:
    """Return English words with contractions, of two words each: I'm, don't, what's.

    >>> from regard.phrasebook.phrases import phrase
    >>> spell(contract(phrase("I am here and you cannot sleep", "sono qui e non puoi dormire").english))
    "I'm here and you can't sleep"
    >>> spell(contract(phrase("I do not know who he is", "non so chi è").english))
    "I don't know who he is"
    """
    contracted = list(words)
    for n, (word, following) in enumerate(pairwise(words)):
        starts_clause = n == 0 or words[n - 1].text in _CLAUSE_STARTS
        ends_clause = n + 2 >= len(words) or words[n + 2].text in _CLAUSE_STARTS
        if following.text == "not" and word.text in _BEFORE_NOT:
            contracted[n : n + 2] = word._replace(text=_BEFORE_NOT[word.text]), following._replace(text="'t")
        elif (word.text, following.text) in _AFTER_SUBJECT and starts_clause and not ends_clause:
            contracted[n + 1] = following._replace(text=_AFTER_SUBJECT[word.text, following.text])
    return tuple(part for word in contracted for part in _split_cannot(word))


def _split_cannot(word: GlossedWord) -> Words:
    if word.text != "cannot":
        return (word,)
    *can, negation = word.glosses
    return GlossedWord("can", tuple(can)), GlossedWord("'t", (negation,))


class TypedPair(NamedTuple):
    """A sentence in both languages as text, and the pairs of word indices that align."""

    source: str
    target: str
    alignment: tuple[tuple[int, int], ...]


def typed(phrase: Phrase, mark: str = "", capital: bool = True) -> TypedPair:
    """Return a phrase as text with a final mark, which may be empty.

    >>> from regard.phrasebook.phrases import phrase
    >>> typed(phrase("I/1 am/1 here/2", "sono/1 qui/2"), "!", capital=False)
    TypedPair(source='i am here!', target='sono qui!', alignment=((0, 0), (1, 0), (2, 1), (3, 2)))
    """
    end = (GlossedWord(mark, ("mark",)),) if mark else ()
    english, italian = phrase.english + end, phrase.italian + end
    if not capital and english[0].text == "I":
        english = (english[0]._replace(text="i"), *english[1:])
    return TypedPair(spell(english, capital), spell(italian, capital), align(english, italian))


def every_spelling(phrase: Phrase, marks: Sequence[str]) -> Iterator[TypedPair]:
    """Yield the phrase with each mark, with a capital and a small letter, and with contractions if it has any."""
    contracted = Phrase(contract(phrase.english), phrase.italian)
    spellings = {
        spelling.source: spelling
        for form in (phrase, contracted)
        for mark in marks
        for spelling in (typed(form, mark), typed(form, mark, capital=False))
    }
    yield from spellings.values()


def random_spelling(rng: PortableRandom, sentence: Sentence) -> TypedPair:
    """Return a sentence as most people write it, and sometimes as others do."""
    phrase, mark = sentence.phrase, sentence.mark
    if rng.chance(12):
        phrase = Phrase(contract(phrase.english), phrase.italian)
    capital = rng.chance(92)
    if not rng.chance(75 if mark == "." else 95 if capital else 50):
        mark = ""
    return typed(phrase, mark, capital)


@dataclass(frozen=True)
class AlignedPair:
    """An English sentence, its Italian translation, and the pairs of word indices (English, Italian) that align."""

    source: str
    target: str
    alignment: tuple[tuple[int, int], ...]
    topic: str = field(default="", repr=False, compare=False)


def pairs() -> Iterator[AlignedPair]:
    """Yield all pairs, in an order that is the same on every machine.

    >>> next(pairs())
    AlignedPair(source='I love you very much', target='Ti amo molto',
                alignment=((0, 1), (1, 1), (2, 0), (3, 2), (4, 2)))
    """
    translations: dict[str, str] = {}
    count = len(KNOWN_SENTENCES)
    for phrase, mark, topic in KNOWN_SENTENCES:
        source, target = spell(phrase.english), spell(phrase.italian)
        translations[source] = target
        yield AlignedPair(*typed(phrase, mark), topic)
    for phrase, topic, marks in everyday.FIXED:
        source, target = spell(phrase.english), spell(phrase.italian)
        assert translations.setdefault(source, target) == target, f"{source!r} has two translations"
        for spelling in every_spelling(phrase, marks):
            count += 1
            yield AlignedPair(*spelling, topic)
    spellings = PortableRandom(seed=2)
    for sentence, topic in _drawn_sentences():
        source, target = spell(sentence.phrase.english), spell(sentence.phrase.italian)
        repeats = _REPEATED_WORD.search(source) or _REPEATED_WORD.search(target)
        if len(sentence.phrase.english) > MAX_ENGLISH_WORDS or repeats or source in translations:
            assert translations.get(source, target) == target, f"{source!r} is {translations[source]!r} and {target!r}"
            continue
        translations[source] = target
        count += 1
        yield AlignedPair(*random_spelling(spellings, sentence), topic)
        if count == NUM_PAIRS:
            return


def split(name: SplitName) -> list[AlignedPair]:
    """Return the pairs of `train`, `dev` or `test`. No sentence of dev or test is in train, in either language.

    >>> any(pair.source == "I love you very much" for pair in split("test"))
    True
    """
    if name not in get_args(SplitName):
        raise ConfigError(f"The phrasebook has no split {name!r}; it has train, dev and test.")
    return list(_splits()[name])


def coverage() -> str:
    """Return what the phrasebook covers, in words."""
    words = {word.lower() for pair in _splits()["train"] for word in words_and_punctuation(pair.source)}
    return (
        "Everyday English and Italian: greetings, family and friends, food, shopping, travel, work, daily routine, "
        f"times and weather. About {round(len(words), -2):,} English words, in sentences of up to {MAX_ENGLISH_WORDS} "
        "words."
    )


def _drawn_sentences() -> Iterator[tuple[Sentence, str]]:
    """Yield sentences with their topics, without end; they may repeat."""
    rng = PortableRandom(seed=1)
    while True:
        topic, draw = rng.choice(_DRAWS)
        yield draw(rng), topic


@cache
def _splits() -> dict[SplitName, list[AlignedPair]]:
    everything = list(pairs())
    fixed = {_group_name(typed(phrase).target) for phrase, _, _ in everyday.FIXED}
    known = {_group_name(typed(phrase).target) for phrase, _, _ in KNOWN_SENTENCES}
    return _split_pairs(everything, in_test=known, in_train=fixed)


def _split_pairs(
    pairs: Sequence[AlignedPair], in_test: Collection[str], in_train: Collection[str]
) -> dict[SplitName, list[AlignedPair]]:
    """Return the pairs by split, in order.

    `He eats`, `She eats` and `Does he eat` have the same Italian words, so they stay together; so do all spellings of a
    sentence. `in_test` and `in_train` are the names of groups whose split is fixed. Other pairs with a word that is
    rare in train are moved to train: the test is of grammar, not of unknown words.
    """
    groups: dict[str, list[AlignedPair]] = {}
    for pair in pairs:
        groups.setdefault(_group_name(pair.target), []).append(pair)
    assigned: dict[str, SplitName] = {}
    for name, group in groups.items():
        by_hash = "train" if name in in_train else _split_by_hash(group[0].source)
        assigned[name] = "test" if name in in_test else by_hash
    counts = Counter(word for name, group in groups.items() if assigned[name] == "train" for word in _words(group))
    for name, group in groups.items():
        if (
            assigned[name] != "train"
            and name not in in_test
            and any(counts[word] < MIN_TRAIN_COUNT for word in _words(group))
        ):
            assigned[name] = "train"
    splits: dict[SplitName, list[AlignedPair]] = {"train": [], "dev": [], "test": []}
    for pair in pairs:
        splits[assigned[_group_name(pair.target)]].append(pair)
    return splits


def _split_by_hash(source: str) -> SplitName:
    number = int.from_bytes(sha256(source.encode()).digest()[:4], "big") % 1000
    return next((name for name, numbers in _THOUSANDTHS.items() if number in numbers), "train")


def _group_name(target: str) -> str:
    """Return the words of a text in lower case, without punctuation.

    >>> _group_name("Ciao, dov'è Anna?")
    "ciao dov'è anna"
    """
    return re.sub(r"[^\w\s']", "", target.lower())


def _words(group: Iterable[AlignedPair]) -> Iterable[tuple[str, str]]:
    for pair in group:
        yield from (("source", word) for word in words_and_punctuation(pair.source))
        yield from (("target", word) for word in words_and_punctuation(pair.target))
