"""Time by the clock, for what is to be compared: all take turns, and of each the fastest counts."""

import time
from collections.abc import Callable, Sequence


def take_turns(passes: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """The fewest seconds of each over so many rounds.

    What slows the machine for a while slows all of them; and what is set up once is in the first round alone, which is
    not the fastest.
    """
    turns = [[_seconds(one) for one in passes] for _ in range(rounds)]
    return [min(seconds) for seconds in zip(*turns, strict=True)]


def _seconds(go: Callable[[], object]) -> float:
    begun = time.perf_counter()
    go()
    return time.perf_counter() - begun
