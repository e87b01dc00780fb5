"""The corpus: sentence pairs drawn from the grammar, and their train, dev and test splits."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from typing import Literal, get_args

from regard.errors import ConfigError
from regard.phrasebook.chapters import (
    activities,
    asking,
    being,
    commands,
    doing,
    linking,
    ordering,
    people,
    places,
    stories,
    tastes,
    times,
    wishes,
)
from regard.phrasebook.clause import VERY_MUCH, Clause
from regard.phrasebook.dice import Dice
from regard.phrasebook.pronouns import YOU, I
from regard.phrasebook.sentence import Sentence, tell
from regard.phrasebook.verbs import FEELINGS
from regard.phrasebook.words import Word, align, spell, split_words

SplitName = Literal["train", "dev", "test"]
NUM_PAIRS = 70_000
MAX_WORDS = 14  # of English, so that a small model can read every sentence
MIN_TRAIN_COUNT = 5  # how often every word of dev and test occurs in train
_THOUSANDTHS: dict[SplitName, range] = {"test": range(20), "dev": range(20, 40)}
_REPEATED_WORD = re.compile(r"\b(\w+) \1\b")  # `I gave you two two books` is correct, but confusing

# Functions that draw a sentence, with their weights, by topic. The order is part of the corpus.
_GRAMMAR: dict[str, dict[Callable[[Dice], Sentence], int]] = {
    "doing": {
        doing.actions: 18, doing.achievements: 6, doing.habits: 7, doing.states: 5, doing.owning: 2, doing.nobody: 4,
    },
    "people": {
        people.meeting: 7, people.meeting_there: 3, people.have_met: 2, people.feeling: 7, people.calling_often: 4,
        people.giving: 8, people.giving_it: 3,
    },
    "being": {
        being.moods: 4, being.character: 3, being.qualities: 5, being.comparing: 4, being.jobs: 3, being.bodies: 2,
        being.ages: 3, being.naming: 3,
    },
    "places": {
        places.where_things_are: 5, places.there_is: 3, places.is_there_nearby: 1, places.where_people_are: 4,
        places.going: 7, places.going_often: 3, places.arriving: 4, places.living: 4,
    },
    "activities": {activities.activities: 7, activities.animals: 2, activities.the_day: 5},
    "tastes": {tastes.liking: 6, tastes.liked_it: 4, tastes.liking_to: 3, tastes.missing: 3, tastes.preferring: 3},
    "wishes": {wishes.wanting: 8, wishes.wanting_you: 6, wishes.wanting_to_go: 5, wishes.wanting_to_do: 4},
    "ordering": {ordering.ordering: 3, ordering.shopping: 3, ordering.prices: 3},
    "commands": {commands.commands: 3, commands.commands_to_help: 3},
    "asking": {
        asking.where_is: 2, asking.where_and_when: 3, asking.why_with_what: 4, asking.what_and_whom: 4,
        asking.how_many: 1, asking.how: 2,
    },
    "times": {times.the_time: 1, times.timetable: 3, times.from_to: 2, times.weather: 2},
    "stories": {stories.chains: 6, stories.not_found: 3, stories.remedies: 5, stories.offers: 3},
    "linking": {
        linking.reasons: 4, linking.conditions: 4, linking.said_that: 7, linking.wondering: 4, linking.things_that: 5,
        linking.people_who: 3,
    },
}  # fmt: skip
_DRAWS = tuple(
    (topic, draw) for topic, draws in _GRAMMAR.items() for draw, weight in draws.items() for _ in range(weight)
)
FIRST_SENTENCE = tell(Clause(I, FEELINGS["love"], YOU, degree=VERY_MUCH)), "people"


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
    full_stops = Dice(seed=2)
    for sentence, topic in _sentences():
        english, italian = sentence.phrase.english, sentence.phrase.italian
        source, target = spell(english), spell(italian)
        repeats = _REPEATED_WORD.search(source) or _REPEATED_WORD.search(target)
        if len(english) > MAX_WORDS or repeats or source in translations:
            assert translations.get(source, target) == target, f"{source!r} is {translations[source]!r} and {target!r}"
            continue
        full_stop = bool(translations) and full_stops.chance(75)  # the first sentence has none
        mark = sentence.mark if sentence.mark != "." or full_stop else ""
        end = (Word(mark, ("mark",)),) if mark else ()
        translations[source] = target
        yield AlignedPair(source + mark, target + mark, align(english + end, italian + end), topic)
        if len(translations) == NUM_PAIRS:
            return


def split(name: SplitName) -> list[AlignedPair]:
    """Return the pairs of `train`, `dev` or `test`. No sentence of dev or test is in train, in either language.

    >>> any(pair.source == "I love you very much" for pair in split("test"))
    True
    """
    if name not in get_args(SplitName):
        raise ConfigError(f"The phrasebook has no split {name!r}; it has train, dev and test.")
    return list(_splits()[name])


def _sentences() -> Iterator[tuple[Sentence, str]]:
    """Yield sentences with their topics, without end; they may repeat."""
    yield FIRST_SENTENCE
    dice = Dice(seed=1)
    while True:
        topic, draw = dice.pick(_DRAWS)
        yield draw(dice), topic


@cache
def _splits() -> dict[SplitName, list[AlignedPair]]:
    everything = list(pairs())
    return _split_pairs(everything, in_test=everything[0])


def _split_pairs(pairs: Sequence[AlignedPair], in_test: AlignedPair) -> dict[SplitName, list[AlignedPair]]:
    """Return the pairs by split, in order.

    `He eats`, `She eats` and `Does he eat` have the same Italian words, so they stay together. A pair with a word that
    is rare in train is moved to train: the test is of grammar, not of unknown words.
    """
    groups: dict[str, list[AlignedPair]] = {}
    for pair in pairs:
        groups.setdefault(_without_mark(pair.target), []).append(pair)
    assigned: dict[str, SplitName] = {}
    for target, group in groups.items():
        assigned[target] = "test" if in_test in group else _split_by_hash(group[0].source)
    counts = Counter(word for target, group in groups.items() if assigned[target] == "train" for word in _words(group))
    for target, group in groups.items():
        if assigned[target] != "train" and any(counts[word] < MIN_TRAIN_COUNT for word in _words(group)):
            assigned[target] = "train"
    splits: dict[SplitName, list[AlignedPair]] = {"train": [], "dev": [], "test": []}
    for pair in pairs:
        splits[assigned[_without_mark(pair.target)]].append(pair)
    return splits


def _split_by_hash(source: str) -> SplitName:
    number = int.from_bytes(sha256(source.encode()).digest()[:4], "big") % 1000
    return next((name for name, numbers in _THOUSANDTHS.items() if number in numbers), "train")


def _without_mark(text: str) -> str:
    return text.rstrip(".?!")


def _words(group: Iterable[AlignedPair]) -> Iterable[tuple[str, str]]:
    for pair in group:
        yield from (("source", word) for word in split_words(pair.source))
        yield from (("target", word) for word in split_words(pair.target))
