"""Cross entropy from hidden states, a few rows of logits at a time: all at once are the largest thing in training.

Each piece of the logits becomes its own gradient in place, while it is still in the processor's cache, and is used up
for the gradients of states and matrix before the next one is made. It is the loss of `loss.py` in less time and memory.

N predictions · C model width · V vocabulary
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.nn.output import Output
from regard.training.loss import Loss, smoothed_cross_entropy

PIECE = 2_500_000  # logits at a time: 10 MB


def projected_cross_entropy(hidden: Tensor, output: Output, targets: Tensor, smoothing: float = 0.0) -> Loss:
    """What `smoothed_cross_entropy(output(hidden), targets, smoothing)` is, for states (N, C) and targets (N,)."""
    if output.logits.is_open:  # someone wants to see them
        return smoothed_cross_entropy(output(hidden), targets, smoothing)
    differentiated = torch.is_grad_enabled()
    smoothed, plain = _in_pieces(hidden, output.weight, output.bias, targets, smoothing, differentiated)
    return Loss(smoothed, plain, len(targets))


class _InPieces(torch.autograd.Function):
    """The gradients are found on the way, for a loss that is taken as it is; backward only scales them."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        smoothing: float,
        differentiated: bool,
    ) -> tuple[Tensor, Tensor]:
        size = len(weight)
        rows = max(1, min(len(hidden), PIECE // size))
        smoothed, plain = hidden.new_zeros(()), hidden.new_zeros(())
        gradients = [None if x is None else torch.zeros_like(x) for x in (hidden, weight, bias)]
        space = hidden.new_empty(rows, size)
        for first in range(0, len(hidden), rows):
            piece, right = hidden[first : first + rows], targets[first : first + rows, None]
            logits = torch.mm(piece, weight.T, out=space[: len(piece)])  # (n, V)
            if bias is not None:
                logits += bias
            normaliser = logits.logsumexp(1, keepdim=True)
            lost = (normaliser - logits.gather(1, right)).sum()
            plain += lost
            smoothed += (1 - smoothing) * lost
            if smoothing:
                smoothed += smoothing * (normaliser.sum() - logits.mean(1).sum())
            if differentiated:  # ∂loss/∂logit[v] = p[v] − ε/V, and another −(1 − ε) at the right token
                wrong = logits.sub_(normaliser).exp_().sub_(smoothing / size)
                wrong.scatter_add_(1, right, wrong.new_full(right.shape, smoothing - 1))
                _follow(gradients, wrong, piece, weight, first)
        if differentiated:
            ctx.gradients = gradients
        ctx.mark_non_differentiable(plain)
        return smoothed, plain

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        scaled = [None if gradient is None else gradient.mul_(scale) for gradient in ctx.gradients]
        return (*scaled, None, None, None)


def _follow(gradients: list[Tensor | None], wrong: Tensor, piece: Tensor, weight: Tensor, first: int) -> None:
    """Add what a piece of the logits' gradient (n, V) means for states, matrix and bias."""
    of_hidden, of_weight, of_bias = gradients
    assert of_hidden is not None
    assert of_weight is not None
    torch.mm(wrong, weight, out=of_hidden[first : first + len(piece)])
    of_weight.addmm_(wrong.T, piece)
    if of_bias is not None:
        of_bias += wrong.sum(0)


_in_pieces: Callable[[Tensor, Tensor, Tensor | None, Tensor, float, bool], tuple[Tensor, Tensor]] = _InPieces.apply
