"""The state of a run besides its tensors, and random seeds that follow from it.

Randomness depends only on the seed and the step, so that a resumed run draws the same numbers as an uninterrupted one.
"""

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.data.batching import DataPosition

if TYPE_CHECKING:
    from regard.training.optimizers import UpdateResult


@dataclass
class MetricsInterval:
    """Sums over the steps since the last line of metrics."""

    steps: int = 0
    loss: float = 0.0
    cross_entropy: float = 0.0
    targets: int = 0
    grad_norm: float = 0.0  # the largest
    flops: float = 0.0
    seconds: float = 0.0

    def add(self, result: "UpdateResult", flops: float, seconds: float) -> None:
        """Add one optimizer step."""
        self.steps += 1
        self.loss += result.loss
        self.cross_entropy += result.cross_entropy
        self.targets += result.targets
        self.grad_norm = max(self.grad_norm, result.grad_norm)
        self.flops += flops
        self.seconds += seconds


@dataclass
class TrainingState:
    """The state between two steps."""

    step: int = 0
    position: DataPosition = field(default_factory=DataPosition)
    first_loss: float | None = None  # of the first step
    targets: int = 0  # predicted so far
    seconds: float = 0.0  # spent training so far
    interval: MetricsInterval = field(default_factory=MetricsInterval)
    last_validation: int = 0  # step of the last validation
    best_scores: dict[str, float] | None = None
    best_step: int = 0
    validations_since_best: int = 0
    learning_rate_factor: float = 1.0  # set by a plateau schedule
    plateau_validations: int = 0  # validations since the best, or since the learning rate was last reduced
    averaged_steps: list[int] = field(default_factory=list)  # steps whose weights are saved for averaging
    file_sizes: dict[str, int] = field(default_factory=dict)  # bytes of the files that the run appends to

    def as_dict(self) -> dict[str, Any]:
        """For JSON, which keeps every bit of a float."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "TrainingState":
        """From JSON."""
        position, interval = DataPosition(**values["position"]), MetricsInterval(**values["interval"])
        return cls(**{**values, "position": position, "interval": interval})


def seed_step(seed: int, step: int, rank: int = 0) -> None:
    """Seed torch for one step of one process.

    >>> import torch
    >>> seed_step(1, step=7)
    >>> first = torch.rand(1)
    >>> seed_step(1, step=7)
    >>> bool(first == torch.rand(1))
    True
    """
    import torch

    torch.manual_seed(generator(seed, step, rank).integers(2**63))


def generator(*numbers: int) -> np.random.Generator:
    """A numpy generator seeded by a series of numbers."""
    return np.random.default_rng(numbers)
