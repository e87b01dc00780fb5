"""How long things take that are to be compared: all take turns, and of each the fastest counts."""

import time
from collections.abc import Callable, Sequence

import torch


def take_turns(passes: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """The fewest seconds of each over so many rounds.

    What slows the machine for a while slows all of them; and what is set up once is in the first round alone, which is
    not the fastest. With one thread the processor's time is taken, in which other programs have no part; with several
    only the clock tells how well they work together.
    """
    now = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    turns = [[_seconds(one, now) for one in passes] for _ in range(rounds)]
    return [min(seconds) for seconds in zip(*turns, strict=True)]


def _seconds(go: Callable[[], object], now: Callable[[], float]) -> float:
    begun = now()
    go()
    return now() - begun
