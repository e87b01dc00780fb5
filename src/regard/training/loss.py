"""Label-smoothed cross entropy (§5.4), and nothing at pads.

N predictions · V vocabulary
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class Loss:
    """Sums over the real targets of a batch, so that batches of any size add up to what one large batch would give."""

    smoothed: Tensor  # what is minimised
    plain: Tensor  # the negative log-likelihood in nats, detached: what is reported
    targets: int


def smoothed_cross_entropy(logits: Tensor, targets: Tensor, smoothing: float = 0.0) -> Loss:
    """The cross entropy between logits (N, V) and targets (N,) softened by `smoothing`.

    The right token gets 1 − ε of the probability asked for, and ε is spread evenly over the vocabulary:
    loss = (1 − ε)·(−log p[right]) + ε·mean over v of (−log p[v]).
    """
    smoothed = F.cross_entropy(logits, targets, label_smoothing=smoothing, reduction="sum")
    if smoothing == 0.0:
        return Loss(smoothed, smoothed.detach(), len(targets))
    with torch.no_grad():
        plain = F.cross_entropy(logits, targets, reduction="sum")
    return Loss(smoothed, plain, len(targets))
