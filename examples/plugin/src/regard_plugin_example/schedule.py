"""Warmup, constant learning rate, then linear decay to zero over the last part of training (Hu et al. 2024)."""

from collections.abc import Callable
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from regard.config import ScheduleConfig


class WarmupStableDecayConfig(ScheduleConfig):
    """Settings of the schedule."""

    kind: Literal["warmup-stable-decay"] = "warmup-stable-decay"
    learning_rate: Annotated[float, Field(gt=0)] = 1e-3
    """Peak learning rate."""
    decay_fraction: Annotated[float, Field(gt=0, le=1)] = 0.2
    """Fraction of the steps in which the learning rate decays to zero."""
    builder: ClassVar[str] = "regard_plugin_example.schedule:build"


def build(config: WarmupStableDecayConfig, width: int, steps: int) -> Callable[[int], float]:
    """Return the learning rate by step, counted from 1."""
    decay_steps = max(1, round(config.decay_fraction * steps))

    def learning_rate(step: int) -> float:
        warmup = min(1.0, step / config.warmup_steps) if config.warmup_steps else 1.0
        decay = min(1.0, max(0.0, (steps - step) / decay_steps))
        return config.learning_rate * min(warmup, decay)

    return learning_rate
