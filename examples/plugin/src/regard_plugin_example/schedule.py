"""Cosine decay that starts again at the peak, at the end of each cycle (Loshchilov & Hutter 2017)."""

import math
from collections.abc import Callable
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from regard.config import ScheduleConfig


class WarmRestartsConfig(ScheduleConfig):
    """Settings of the schedule."""

    kind: Literal["warm-restarts"] = "warm-restarts"
    learning_rate: Annotated[float, Field(gt=0)] = 1e-3
    """Peak learning rate."""
    cycle_steps: Annotated[int, Field(gt=0)] = 1000
    """Steps of a cycle."""
    builder: ClassVar[str] = "regard_plugin_example.schedule:build"


def build(config: WarmRestartsConfig, width: int, steps: int) -> Callable[[int], float]:
    """Return the learning rate by step, counted from 1."""

    def learning_rate(step: int) -> float:
        warmup = min(1.0, step / config.warmup_steps) if config.warmup_steps else 1.0
        position = (step - 1) % config.cycle_steps / config.cycle_steps
        return config.learning_rate * min(warmup, (1 + math.cos(math.pi * position)) / 2)

    return learning_rate
