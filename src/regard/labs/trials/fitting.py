"""Training a network on examples that are made as it goes: our objectives and our update, without a run's folder."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor, nn

from regard.config.training import AdamConfig
from regard.models.network import Network
from regard.training.loss import Loss, smoothed_cross_entropy
from regard.training.objective import Batch
from regard.training.schedule import cosine
from regard.training.update import DivergedError, optimizer_of, update


@dataclass(frozen=True)
class Asked(Batch):
    """Texts of equal length of which all is read, and some tokens are to be predicted."""

    read: Tensor  # (B, T)
    answers: Tensor  # (B, T) the token that follows each
    asked: Tensor  # (B, T) True where the answer counts

    @property
    def examples(self) -> int:
        """How many texts."""
        return len(self.read)

    @property
    def targets(self) -> int:
        """How many answers count."""
        return int(self.asked.sum())


class Answering(nn.Module):
    """Predict what is asked for, and nothing else."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, batch: Asked) -> Loss:
        """The loss of a batch, summed over what is asked."""
        return smoothed_cross_entropy(_logits(self.network, batch), batch.answers[batch.asked], 0.0)


@dataclass(frozen=True)
class Fitted:
    """The loss in nats a target at each step, and whether training came to its end."""

    losses: list[float]
    diverged: bool = False

    @property
    def final(self) -> float:
        """The mean over the last tenth of the steps, for a single batch may be an easy one; infinite if it diverged.

        >>> Fitted([3.0, 2.0, 1.0]).final, Fitted([9.0] * 18 + [1.0, 2.0]).final, Fitted([3.0], diverged=True).final
        (1.0, 1.5, inf)
        """
        return math.inf if self.diverged else fmean(self.losses[-max(1, len(self.losses) // 10) :])


def fit(
    network: Network,
    batches: Iterator[Batch],
    steps: int,
    *,
    objective: nn.Module | None = None,
    peak: float = 3e-3,
    clip: float = 1.0,
    watch: Callable[[int], None] = lambda step: None,
) -> Fitted:
    """Train for so many steps, with a warm-up of a tenth and a cosine to zero; `watch` is called after each.

    Without another objective, batches are `Asked`, and what is asked for is learned.
    """
    objective, optimizer = objective or Answering(network), optimizer_of(network, AdamConfig())
    rate, losses = cosine(peak, warmup=max(1, steps // 10), steps=steps), list[float]()
    network.train()
    for step in range(1, steps + 1):
        try:
            seen = update(objective, optimizer, [next(batches)], rate(step), clip=clip)
        except DivergedError:
            return Fitted(losses, diverged=True)
        losses.append(seen.plain / seen.targets)
        watch(step)
    network.eval()
    return Fitted(losses)


@torch.no_grad()
def accuracy(network: Network, batch: Asked) -> float:
    """How often the most probable token is the one that was asked for."""
    network.eval()
    right = _logits(network, batch).argmax(-1) == batch.answers[batch.asked]
    return float(right.float().mean())


def parameters(network: nn.Module) -> int:
    """How many numbers a network learns.

    >>> parameters(nn.Linear(3, 2))
    8
    """
    return sum(parameter.numel() for parameter in network.parameters())


def _logits(network: Network, batch: Asked) -> Tensor:
    return network.logits(network.decode(batch.read)[batch.asked])  # (N, V)
