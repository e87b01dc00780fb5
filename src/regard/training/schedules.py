"""Learning rates as functions of the step, counted from 1."""

import math
from collections.abc import Callable

from regard.config import (
    ConstantScheduleConfig,
    CosineScheduleConfig,
    InverseSqrtScheduleConfig,
    PlateauScheduleConfig,
    ScheduleConfig,
)

Schedule = Callable[[int], float]


def inverse_square_root(peak: float, warmup: int) -> Schedule:
    """Rise linearly for `warmup` steps to `peak`, then fall with the inverse square root of the step (§5.3).

    The paper's rate, width^-0.5 · min(step^-0.5, step · warmup^-1.5), is this one with the peak of `paper_peak`.

    >>> rate = inverse_square_root(1.0, warmup=4)
    >>> [rate(step) for step in (1, 4, 16)]
    [0.25, 1.0, 0.5]
    """
    return lambda step: peak * min(step / warmup, math.sqrt(warmup / step)) if warmup else peak / math.sqrt(step)


def paper_peak(width: int, warmup: int) -> float:
    """The highest rate of the paper's schedule, reached when the warm-up ends.

    >>> round(paper_peak(512, 4000), 6)
    0.000699
    """
    return float((width * warmup) ** -0.5)


def cosine(peak: float, warmup: int, steps: int, floor: float = 0.0) -> Schedule:
    """Rise linearly for `warmup` steps to `peak`, then fall along a half cosine to `floor` at `steps`.

    >>> rate = cosine(1.0, warmup=2, steps=10)
    >>> [round(rate(step), 3) for step in (1, 2, 6, 10, 11)]
    [0.5, 1.0, 0.5, 0.0, 0.0]
    """

    def rate(step: int) -> float:
        if step < warmup:
            return peak * step / warmup
        progress = min(1.0, (step - warmup) / max(1, steps - warmup))
        return floor + (peak - floor) * (1 + math.cos(math.pi * progress)) / 2

    return rate


def constant(peak: float, warmup: int) -> Schedule:
    """Rise linearly for `warmup` steps to `peak`, and stay there."""
    return lambda step: peak * min(1.0, step / warmup) if warmup else peak


def build_schedule(settings: ScheduleConfig, width: int, steps: int) -> Schedule:
    """The schedule that the settings describe, for a network of this width and a run of so many steps."""
    match settings:
        case InverseSqrtScheduleConfig(learning_rate=peak, warmup_steps=warmup):
            return inverse_square_root(paper_peak(width, warmup) if peak is None else peak, warmup)
        case CosineScheduleConfig(learning_rate=peak, warmup_steps=warmup, min_learning_rate=floor):
            return cosine(peak, warmup, steps, floor)
        case (
            ConstantScheduleConfig(learning_rate=peak, warmup_steps=warmup)
            | PlateauScheduleConfig(learning_rate=peak, warmup_steps=warmup)
        ):
            return constant(peak, warmup)  # what a plateau makes of it follows from validation, not from the step
        case registered:
            schedule: Schedule = registered.load_builder()(registered, width, steps)
            return schedule
