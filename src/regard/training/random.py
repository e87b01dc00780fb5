"""Randomness that follows from the seed and the step alone, so that a resumed run draws what it would have drawn."""

import numpy as np
import torch


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
