"""Losses: cross entropy with label smoothing (§5.4), and R-Drop (Liang et al. 2021).

R-Drop runs each batch twice with different dropout and penalizes different predictions. With the predictions P and Q
of the two passes, the loss of a target is

    ½ (loss(P) + loss(Q) + α · D),   D = ½ (KL(P‖Q) + KL(Q‖P)) = ½ Σ over v of (P[v] − Q[v]) (log P[v] − log Q[v]),

half of the paper's, so that it is comparable with the loss of one pass.

Each loss has its formula here. On CPUs `regard.nn.cpu.losses` computes the same numbers in less time and memory.

N targets · C model width · V vocabulary
"""

from dataclasses import dataclass

from torch import Tensor

from regard.nn import cpu
from regard.nn.cpu.losses import chunked_cross_entropy, chunked_rdrop, one_pass_cross_entropy
from regard.nn.embedding import OutputProjection
from regard.nn.functional import at_least_float32


@dataclass(frozen=True)
class Loss:
    """Sums over the targets of a batch, so that batches of any size add up to one large batch."""

    loss: Tensor  # what is minimized
    cross_entropy: Tensor  # negative log-likelihood in nats, without label smoothing; detached
    targets: int


def smoothed_cross_entropy(logits: Tensor, targets: Tensor, smoothing: float = 0.0) -> Loss:
    """Cross entropy of logits (N, V) and targets (N,), smoothed by ε = `smoothing`.

    The target distribution has 1 − ε at the right token, and ε spread evenly over the vocabulary:
    loss = (1 − ε)·(−log p[right]) + ε·mean over v of (−log p[v]).
    """
    logits = at_least_float32(logits)
    if cpu.enabled(logits.device):
        return Loss(*one_pass_cross_entropy(logits, targets, smoothing), len(targets))
    log_p = logits.log_softmax(-1)
    cross_entropy = -log_p.gather(1, targets[:, None]).sum()
    loss = (1 - smoothing) * cross_entropy - smoothing * log_p.mean(-1).sum()
    return Loss(loss, cross_entropy.detach(), len(targets))


def projected_cross_entropy(states: Tensor, output: OutputProjection, targets: Tensor, smoothing: float = 0.0) -> Loss:
    """`smoothed_cross_entropy` of `output(states)`, for states (N, C) and targets (N,)."""
    if output.logits.is_open or not cpu.enabled(states.device):  # an open tap must see the logits
        return smoothed_cross_entropy(output(states), targets, smoothing)
    losses = chunked_cross_entropy(at_least_float32(states), output.weight, output.bias, targets, smoothing)
    return Loss(*losses, len(targets))


def rdrop_cross_entropy(first: Tensor, second: Tensor, targets: Tensor, smoothing: float, weight: float) -> Loss:
    """The R-Drop loss of the logits (N, V) of two passes for the same targets (N,); `weight` is α."""
    first, second = at_least_float32(first), at_least_float32(second)
    one, other = (smoothed_cross_entropy(logits, targets, smoothing) for logits in (first, second))
    loss = (one.loss + other.loss + weight * symmetric_kl(first, second)) / 2
    return Loss(loss, (one.cross_entropy + other.cross_entropy) / 2, len(targets))


def projected_rdrop(
    first: Tensor, second: Tensor, output: OutputProjection, targets: Tensor, smoothing: float, weight: float
) -> Loss:
    """`rdrop_cross_entropy` of `output(first)` and `output(second)`, for states (N, C) and targets (N,)."""
    if output.logits.is_open or not cpu.enabled(first.device):
        return rdrop_cross_entropy(output(first), output(second), targets, smoothing, weight)
    states = at_least_float32(first), at_least_float32(second)
    return Loss(*chunked_rdrop(*states, output.weight, output.bias, targets, smoothing, weight), len(targets))


def symmetric_kl(first: Tensor, second: Tensor) -> Tensor:
    """D of the predictions of two logits (N, V), summed over the targets."""
    log_p, log_q = first.log_softmax(-1), second.log_softmax(-1)
    return ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum() / 2
