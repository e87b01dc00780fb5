"""Where training stands: everything besides tensors that a run must remember to go on as if nothing had happened."""

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch

from regard.data.batching import DataPosition
from regard.training.update import UpdateResult


@dataclass
class MetricsInterval:
    """What has been seen since the last line of metrics."""

    steps: int = 0
    loss: float = 0.0
    cross_entropy: float = 0.0
    targets: int = 0
    grad_norm: float = 0.0  # the largest
    flops: float = 0.0
    seconds: float = 0.0

    def add(self, seen: UpdateResult, flops: float, seconds: float) -> None:
        """Count one more update."""
        self.steps += 1
        self.loss += seen.loss
        self.cross_entropy += seen.cross_entropy
        self.targets += seen.targets
        self.grad_norm = max(self.grad_norm, seen.grad_norm)
        self.flops += flops
        self.seconds += seconds


@dataclass
class TrainingState:
    """A moment of a run, between two steps."""

    step: int = 0
    position: DataPosition = field(default_factory=DataPosition)
    first_loss: float | None = None  # the loss of the first step
    targets: int = 0  # predicted so far
    seconds: float = 0.0  # spent training so far
    interval: MetricsInterval = field(default_factory=MetricsInterval)
    last_validation: int = 0  # the step of the last validation
    best_scores: dict[str, float] | None = None  # its scores
    best_step: int = 0
    validations_since_best: int = 0  # validations since the best
    learning_rate_factor: float = 1.0  # what a plateau has made of the learning rate
    plateau_validations: int = 0  # validations since the best, or since the rate last shrank
    averaged_steps: list[int] = field(default_factory=list)  # steps whose weights are kept for averaging
    file_sizes: dict[str, int] = field(default_factory=dict)  # bytes of the files that grow with the run

    def as_dict(self) -> dict[str, Any]:
        """For JSON, which keeps every bit of a float."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "TrainingState":
        """From JSON."""
        return cls(
            **{
                **values,
                "position": DataPosition(**values["position"]),
                "interval": MetricsInterval(**values["interval"]),
            }
        )


def seed_step(seed: int, step: int, rank: int = 0) -> None:
    """Seed everything random that happens in one step of one process.

    >>> seed_step(1, step=7)
    >>> first = torch.rand(1)
    >>> seed_step(1, step=7)
    >>> bool(first == torch.rand(1))
    True
    """
    torch.manual_seed(generator(seed, step, rank).integers(2**63))


def generator(*numbers: int) -> np.random.Generator:
    """A generator of its own for each series of numbers."""
    return np.random.default_rng(numbers)
