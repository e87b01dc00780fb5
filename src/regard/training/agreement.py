"""Two readings of each batch that should agree: R-Drop (Liang et al. 2021), against learning by heart.

Dropout makes another network of each reading. With P and Q what two of them predict, the loss of a prediction is

    ½ (loss(P) + loss(Q) + α · D),   D = ½ (KL(P‖Q) + KL(Q‖P)) = ½ Σ over v of (P[v] − Q[v]) (log P[v] − log Q[v]),

which is half of the paper's, so that it compares with that of one reading.

N predictions · V vocabulary
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from regard.nn.precision import whole
from regard.training.loss import Loss, smoothed_cross_entropy
from regard.training.objective import Batch, Objective

PIECE = 256  # predictions at a time: all of their logits at once would be the largest thing in training


class Agreeing(nn.Module):
    """An objective that reads each batch twice, with other dropout, and asks that both predict the same."""

    def __init__(self, objective: Objective[Any], weight: float) -> None:
        super().__init__()
        self.objective = objective
        self.weight = weight  # α

    def forward(self, batch: Batch) -> Loss:
        """The loss of a batch, summed over its targets."""
        states, targets = self.objective.states(batch.twice())
        half = len(targets) // 2
        first, second, targets = states[:half], states[half:], targets[:half]
        pieces = list(zip(first.split(PIECE), second.split(PIECE), targets.split(PIECE), strict=True))
        if len(pieces) == 1:
            smoothed, plain = self._of_some(*pieces[0])
        else:  # logits are made again for the gradient, rather than kept
            made = [checkpoint(self._of_some, *piece, use_reentrant=False) for piece in pieces]
            smoothed, plain = (torch.stack(parts).sum() for parts in zip(*made, strict=True))
        return Loss(smoothed, plain, targets.numel())

    def _of_some(self, first: Tensor, second: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        logits = [self.objective.network.logits(states) for states in (first, second)]
        smoothing = self.objective.label_smoothing
        loss = agreeing_cross_entropy(logits[0], logits[1], targets, smoothing, self.weight)
        return loss.smoothed, loss.plain


def agreeing_cross_entropy(first: Tensor, second: Tensor, targets: Tensor, smoothing: float, weight: float) -> Loss:
    """The loss of two readings' logits (…, V) for the same targets (…), as the formula above has it."""
    first, second = (whole(logits).flatten(0, -2) for logits in (first, second))  # (N, V)
    one, other = (smoothed_cross_entropy(logits, targets.flatten(), smoothing) for logits in (first, second))
    smoothed = (one.smoothed + other.smoothed + weight * divergence(first, second)) / 2
    return Loss(smoothed, (one.plain + other.plain) / 2, one.targets)


def divergence(first: Tensor, second: Tensor) -> Tensor:
    """How far what logits (N, V) predict lies apart: D of the formula above, summed over the predictions."""
    log_p, log_q = first.log_softmax(-1), second.log_softmax(-1)
    return ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum() / 2
