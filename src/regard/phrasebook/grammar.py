"""The whole grammar: every kind of sentence, and how often it is drawn."""

from collections.abc import Callable, Iterator
from dataclasses import replace

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

_WEIGHTS: dict[Callable[[Dice], Sentence], int] = {
    doing.actions: 18, doing.achievements: 6, doing.habits: 7, doing.states: 5, doing.owning: 2, doing.nobody: 4,
    people.meeting: 7, people.meeting_there: 3, people.have_met: 2, people.feeling: 7, people.calling_often: 4,
    people.giving: 8, people.giving_it: 3,
    being.moods: 4, being.character: 3, being.qualities: 5, being.comparing: 4, being.jobs: 3, being.bodies: 2,
    being.ages: 3, being.naming: 3,
    places.where_things_are: 5, places.there_is: 3, places.is_there_nearby: 1, places.where_people_are: 4,
    places.going: 7, places.going_often: 3, places.arriving: 4, places.living: 4,
    activities.activities: 7, activities.animals: 2, activities.the_day: 5,
    tastes.liking: 6, tastes.liked_it: 4, tastes.liking_to: 3, tastes.missing: 3, tastes.preferring: 3,
    wishes.wanting: 8, wishes.wanting_you: 6, wishes.wanting_to_go: 5, wishes.wanting_to_do: 4,
    ordering.ordering: 3, ordering.shopping: 3, ordering.prices: 3,
    commands.commands: 3, commands.commands_to_help: 3,
    asking.where_is: 2, asking.where_and_when: 3, asking.why_with_what: 4, asking.what_and_whom: 4,
    asking.how_many: 1, asking.how: 2,
    times.the_time: 1, times.timetable: 3, times.from_to: 2, times.weather: 2,
    stories.chains: 6, stories.not_found: 3, stories.remedies: 5, stories.offers: 3,
    linking.reasons: 4, linking.conditions: 4, linking.said_that: 7, linking.wondering: 4, linking.things_that: 5,
    linking.people_who: 3,
}  # fmt: skip
_DRAWN = tuple(chapter for chapter, weight in _WEIGHTS.items() for _ in range(weight))

FIRST_SENTENCE = replace(tell(Clause(I, FEELINGS["love"], YOU, degree=VERY_MUCH)), topic="people")


def sentences() -> Iterator[Sentence]:
    """Sentences without end, `I love you very much` first; the draws may repeat some."""
    yield FIRST_SENTENCE
    dice = Dice(seed=1)
    while True:
        chapter = dice.pick(_DRAWN)
        yield replace(chapter(dice), topic=chapter.__module__.rpartition(".")[2])
