"""Schedules by the step, counted from 1: learning rates, and the number of batches per update.

A learning rate is a function of real numbers: a run that is fitted to a time passes its planned steps faster or slower.
"""

import math
from collections.abc import Callable

from regard.config import (
    ConstantScheduleConfig,
    CosineScheduleConfig,
    InverseSqrtScheduleConfig,
    PlateauScheduleConfig,
    ScheduleConfig,
    WsdScheduleConfig,
)

Schedule = Callable[[float], float]


def build_schedule(config: ScheduleConfig, width: int, steps: int) -> Schedule:
    """The schedule of a config, for a network of this width and a run of this many steps."""
    schedule: Schedule = config.build(width, steps)
    return schedule


def build_inverse_sqrt(config: InverseSqrtScheduleConfig, width: int, steps: int) -> Schedule:
    """Builder of `inverse-sqrt`; without a learning rate, its peak is the paper's."""
    warmup, peak = config.warmup_steps, config.learning_rate
    return inverse_square_root(paper_peak(width, warmup) if peak is None else peak, warmup)


def build_cosine(config: CosineScheduleConfig, width: int, steps: int) -> Schedule:
    """Builder of `cosine`."""
    return cosine(config.learning_rate, config.warmup_steps, steps, config.min_learning_rate)


def build_wsd(config: WsdScheduleConfig, width: int, steps: int) -> Schedule:
    """Builder of `wsd`."""
    decay = max(1, round(config.decay_fraction * steps))
    return warmup_stable_decay(config.learning_rate, config.warmup_steps, steps, decay, config.min_learning_rate)


def build_constant(config: ConstantScheduleConfig | PlateauScheduleConfig, width: int, steps: int) -> Schedule:
    """Builder of `constant` and of `plateau`, whose reductions depend on validation and not on the step."""
    return constant(config.learning_rate, config.warmup_steps)


def inverse_square_root(peak: float, warmup: int) -> Schedule:
    """Linear warmup to `peak`, then decay with the inverse square root of the step (§5.3).

    The paper's schedule, width^-0.5 · min(step^-0.5, step · warmup^-1.5), has the peak `paper_peak`.

    >>> learning_rate = inverse_square_root(1.0, warmup=4)
    >>> [learning_rate(step) for step in (1, 4, 16)]
    [0.25, 1.0, 0.5]
    """
    return lambda step: peak * min(step / warmup, math.sqrt(warmup / step)) if warmup else peak / math.sqrt(step)


def paper_peak(width: int, warmup: int) -> float:
    """The peak learning rate of the paper's schedule, reached at the end of warmup.

    >>> round(paper_peak(512, 4000), 6)
    0.000699
    """
    return float((width * warmup) ** -0.5)


def cosine(peak: float, warmup: int, steps: int, minimum: float = 0.0) -> Schedule:
    """Linear warmup to `peak`, then decay along a half cosine to `minimum` at `steps`.

    >>> learning_rate = cosine(1.0, warmup=2, steps=10)
    >>> [round(learning_rate(step), 3) for step in (1, 2, 6, 10, 11)]
    [0.5, 1.0, 0.5, 0.0, 0.0]
    """

    def learning_rate(step: float) -> float:
        if step < warmup:
            return peak * step / warmup
        progress = min(1.0, (step - warmup) / max(1, steps - warmup))
        return minimum + (peak - minimum) * (1 + math.cos(math.pi * progress)) / 2

    return learning_rate


def constant(peak: float, warmup: int) -> Schedule:
    """Linear warmup to `peak`, then constant."""
    return lambda step: peak * min(1.0, step / warmup) if warmup else peak


def warmup_stable_decay(peak: float, warmup: int, steps: int, decay: int, minimum: float = 0.0) -> Schedule:
    """Linear warmup to `peak`, then constant, then in the last `decay` steps linear to `minimum` at `steps`.

    >>> learning_rate = warmup_stable_decay(1.0, warmup=2, steps=10, decay=4)
    >>> [learning_rate(step) for step in (1, 2, 6, 8, 10, 11)]
    [0.5, 1.0, 1.0, 0.5, 0.0, 0.0]
    """

    def learning_rate(step: float) -> float:
        remaining = min(1.0, max(0.0, (steps - step) / decay))
        decayed = minimum + (peak - minimum) * remaining
        return min(decayed, peak * step / warmup) if step < warmup else decayed

    return learning_rate


def batches_of_update(step: int, accumulation: int, ramp_steps: int = 0) -> int:
    """The number of batches of a step: 1 at the first, `accumulation` after `ramp_steps`, evenly in between.

    >>> [batches_of_update(step, 4, ramp_steps=8) for step in range(1, 11)]
    [1, 1, 1, 2, 2, 2, 3, 3, 4, 4]
    """
    return accumulation if step > ramp_steps else 1 + (accumulation - 1) * (step - 1) // ramp_steps


def updates_of_batches(batches: float, accumulation: int, ramp_steps: int = 0) -> int:
    """The number of steps in which at least so many batches are used.

    >>> updates_of_batches(10, 4), updates_of_batches(10, 4, ramp_steps=8), updates_of_batches(30, 4, ramp_steps=8)
    (3, 7, 12)
    """
    for step in range(1, ramp_steps + 1):
        batches -= batches_of_update(step, accumulation, ramp_steps)
        if batches <= 0:
            return step
    return ramp_steps + math.ceil(batches / accumulation)


def batches_of_updates(steps: int, accumulation: int, ramp_steps: int = 0) -> int:
    """The number of batches of the first steps.

    >>> batches_of_updates(3, 4), batches_of_updates(7, 4, ramp_steps=8), batches_of_updates(12, 4, ramp_steps=8)
    (12, 12, 31)
    """
    ramp = sum(batches_of_update(step, accumulation, ramp_steps) for step in range(1, min(steps, ramp_steps) + 1))
    return ramp + max(0, steps - ramp_steps) * accumulation
