"""Label-smoothed cross entropy (§5.4), and nothing at pads.

N predictions · V vocabulary
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.nn.functional import at_least_float32


@dataclass(frozen=True)
class Loss:
    """Sums over the real targets of a batch, so that batches of any size add up to what one large batch would give."""

    loss: Tensor  # what is minimized
    cross_entropy: Tensor  # the negative log-likelihood in nats, detached: what is reported
    targets: int


def smoothed_cross_entropy(logits: Tensor, targets: Tensor, smoothing: float = 0.0) -> Loss:
    """The cross entropy between logits (N, V) and targets (N,) softened by `smoothing`.

    The right token gets 1 − ε of the probability asked for, and ε is spread evenly over the vocabulary:
    loss = (1 − ε)·(−log p[right]) + ε·mean over v of (−log p[v]).
    """
    smoothed, plain = _cross_entropies(at_least_float32(logits), targets, smoothing)
    return Loss(smoothed, plain, len(targets))


class _CrossEntropies(torch.autograd.Function):
    """Both losses from one softmax, and their gradient in one pass more.

    Nothing in training is as large as the logits and their gradient; what PyTorch derives passes over them twice as
    often.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        log_p = logits.log_softmax(-1)
        plain = -log_p.gather(1, targets[:, None]).sum()
        smoothed = (1 - smoothing) * plain - smoothing * log_p.mean(-1).sum() if smoothing else plain.clone()
        ctx.save_for_backward(log_p.exp_(), targets)
        ctx.smoothing = smoothing
        ctx.mark_non_differentiable(plain)
        return smoothed, plain

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor, _: Tensor) -> tuple[Tensor, None, None]:
        """∂loss/∂logit[v] = p[v] − ε/V, and another −(1 − ε) at the right token."""
        p, targets = ctx.saved_tensors
        wanted = ctx.smoothing / p.size(1)
        gradient = torch.add(-wanted * scale, p, alpha=float(scale))
        right = targets[:, None]
        gradient.scatter_add_(1, right, ((ctx.smoothing - 1) * scale).expand(right.shape))
        return gradient, None, None


_cross_entropies: Callable[[Tensor, Tensor, float], tuple[Tensor, Tensor]] = _CrossEntropies.apply


def rdrop_cross_entropy(first: Tensor, second: Tensor, targets: Tensor, smoothing: float, weight: float) -> Loss:
    """The loss of two readings' logits (N, V) for the same targets (N,), by the formula; `weight` is α."""
    first, second = at_least_float32(first), at_least_float32(second)
    one, other = (smoothed_cross_entropy(logits, targets, smoothing) for logits in (first, second))
    smoothed = (one.loss + other.loss + weight * symmetric_kl(first, second)) / 2
    return Loss(smoothed, (one.cross_entropy + other.cross_entropy) / 2, len(targets))


def symmetric_kl(first: Tensor, second: Tensor) -> Tensor:
    """How far what logits (N, V) predict lies apart: D, summed over the predictions."""
    log_p, log_q = first.log_softmax(-1), second.log_softmax(-1)
    return ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum() / 2
