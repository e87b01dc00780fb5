"""Short training runs on generated batches, without a run folder, and the selection of a learning rate."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor, nn

from regard.config import AdamConfig
from regard.labs.trials.tasks import SymbolBatch
from regard.models.network import Network
from regard.training.losses import Batch, Loss, smoothed_cross_entropy
from regard.training.optimizers import DivergedError, build_optimizer, update
from regard.training.schedules import cosine


class SymbolPrediction(nn.Module):
    """Objective of a `SymbolBatch`: cross entropy of the labels that count."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, batch: SymbolBatch) -> Loss:
        """Return the loss of a batch, summed over the labels that count."""
        return smoothed_cross_entropy(_masked_logits(self.network, batch), batch.labels[batch.label_mask], 0.0)


@dataclass(frozen=True)
class FitResult:
    """Cross entropy in nats per target at each step, and whether training diverged."""

    losses: list[float]
    diverged: bool = False

    @property
    def final_loss(self) -> float:
        """The mean over the last tenth of the steps; infinite if training diverged.

        >>> losses = [9.0] * 18 + [1.0, 2.0]
        >>> FitResult([3.0, 2.0, 1.0]).final_loss, FitResult(losses).final_loss, FitResult([3.0], True).final_loss
        (1.0, 1.5, inf)
        """
        return math.inf if self.diverged else fmean(self.losses[-max(1, len(self.losses) // 10) :])


def fit(
    network: Network,
    batches: Iterator[Batch],
    steps: int,
    *,
    objective: nn.Module | None = None,
    learning_rate: float = 3e-3,
) -> FitResult:
    """Train with Adam, linear warmup over a tenth of the steps, cosine decay to zero and gradients clipped at 1.

    Without another objective, batches are `SymbolBatch` and their labels are learned.
    """
    objective, optimizer = objective or SymbolPrediction(network), build_optimizer(network, AdamConfig())
    schedule, losses = cosine(learning_rate, warmup=max(1, steps // 10), steps=steps), list[float]()
    network.train()
    for step in range(1, steps + 1):
        try:
            done = update(objective, optimizer, [next(batches)], schedule(step), max_grad_norm=1.0)
        except DivergedError:
            return FitResult(losses, diverged=True)
        losses.append(done.cross_entropy / done.targets)
    network.eval()
    return FitResult(losses)


@torch.no_grad()
def accuracy(network: Network, batch: SymbolBatch) -> float:
    """Return the fraction of labels that are the most probable token."""
    network.eval()
    correct = _masked_logits(network, batch).argmax(-1) == batch.labels[batch.label_mask]
    return float(correct.float().mean())


def _masked_logits(network: Network, batch: SymbolBatch) -> Tensor:
    return network.logits(network.decode(batch.inputs)[batch.label_mask])  # (N, V)


def count_parameters(network: nn.Module) -> int:
    """Return the number of parameters.

    >>> count_parameters(nn.Linear(3, 2))
    8
    """
    return sum(parameter.numel() for parameter in network.parameters())


# --- learning rate ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrialAccuracy:
    """Accuracy of a trained network on the data that select the learning rate and on the data that are reported.

    They are kept separate because the maximum over learning rates is biased on the data that selected it.
    """

    selection: float
    reported: float


@dataclass(frozen=True)
class SelectedLearningRate:
    """The best learning rate and the reported accuracy of each seed with it."""

    learning_rate: float
    reported: list[float]


def select_learning_rate(trials: Mapping[float, Sequence[TrialAccuracy]]) -> SelectedLearningRate:
    """Return the learning rate with the highest mean selection accuracy over seeds; the first of equals.

    >>> low, high = [TrialAccuracy(0.5, 0.9)] * 2, [TrialAccuracy(1.0, 0.7), TrialAccuracy(0.6, 0.6)]
    >>> select_learning_rate({1e-3: low, 1e-2: high})
    SelectedLearningRate(learning_rate=0.01, reported=[0.7, 0.6])
    """
    best = max(trials, key=lambda rate: fmean(trial.selection for trial in trials[rate]))
    return SelectedLearningRate(best, [trial.reported for trial in trials[best]])
