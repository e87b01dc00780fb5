"""The contract of an engine, so that whoever asks for a translation need not know who makes it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from regard.config import Config
from regard.data.parses import TokenFeatures
from regard.decoding.settings import EXTRA_TARGET_TOKENS, Hypothesis, SearchOptions
from regard.errors import InputError

Ids = Sequence[int]


@dataclass(frozen=True)
class Task:
    """What to search for in a batch of sentences."""

    sources: Sequence[Ids]
    """The ids of each sentence, without its end."""
    search: SearchOptions = field(default_factory=SearchOptions)
    prefixes: Sequence[Ids] | None = None
    """How each translation must begin."""
    scored: bool = True
    """Whether the probability of each token is wanted."""
    watched: bool = False
    """Whether it is wanted what each token looked at."""
    spelling: Sequence[str] = ()
    """The text of each token of the target by its id, where words are forbidden."""
    facts: Sequence[TokenFeatures] = ()
    """What is known of each sentence's tokens, for networks that read parses; for others, nothing."""


class Engine(Protocol):
    """Finds translations."""

    name: str

    def search(self, task: Task) -> list[list[Hypothesis]]:
        """The hypotheses for each sentence, the best first, in the order of the sentences."""
        ...


def limits(task: Task, config: Config) -> list[int]:
    """The most tokens that each translation may have, its end included: 50 more than its source (§6.1)."""
    longest, learned = task.search.bounds.longest, config.model.max_length
    found = []
    for source in task.sources:
        limit = len(source) + 1 + EXTRA_TARGET_TOKENS if longest is None else longest
        found.append(limit if learned is None else min(limit, learned))
        if learned is not None and len(source) + 1 > learned:
            raise InputError(
                f"The sentence is {len(source) + 1} tokens long with its end, but this network learned {learned} "
                "positions: split it, or train with more."
            )
    return found
