"""The loss of two readings that should agree, from hidden states, a few rows of logits at a time.

As in `projected_loss.py`, each piece is used up for the gradients before the next one is made. With P, Q the two
predictions of a row, d = log P − log Q, K = Σ P d and R one at the right token, the loss of `agreement.py` has

    ∂loss/∂logit of P = ½ (P − (1 − ε) R − ε/V + α/2 (P (d − K) + P − Q)),

and the same for Q with P and Q exchanged.

N predictions · n of them at a time · C model width · V vocabulary
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.nn.output import Output
from regard.nn.precision import product_type, whole
from regard.training.agreement import agreeing_cross_entropy
from regard.training.loss import Loss
from regard.training.projected_loss import add_product

PIECE = 1_000_000  # logits of each reading at a time: several matrices of this size are needed at once


def projected_agreement(
    first: Tensor, second: Tensor, output: Output, targets: Tensor, smoothing: float, weight: float
) -> Loss:
    """What `agreeing_cross_entropy` of `output(first)` and `output(second)` is, for states (N, C) and targets (N,)."""
    if output.logits.is_open:  # someone wants to see them
        return agreeing_cross_entropy(output(first), output(second), targets, smoothing, weight)
    states, settings = (whole(first), whole(second)), (smoothing, weight, torch.is_grad_enabled())
    smoothed, plain = _in_pieces(*states, output.weight, output.bias, targets, *settings)
    return Loss(smoothed, plain, len(targets))


class _InPieces(torch.autograd.Function):
    """The gradients are found on the way, for a loss that is taken as it is; backward only scales them."""

    @staticmethod
    def forward(
        ctx: Any,
        first: Tensor,
        second: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        smoothing: float,
        agreement: float,
        differentiated: bool,
    ) -> tuple[Tensor, Tensor]:
        kind, rows = product_type(first), max(1, PIECE // len(weight))
        matrix = weight.to(kind)
        plain, spread, apart = (first.new_zeros(()) for _ in range(3))
        of_states = [torch.empty_like(first), torch.empty_like(second)]
        of_weight, of_bias = torch.zeros_like(weight), None if bias is None else torch.zeros_like(bias)
        for start in range(0, len(targets), rows):
            some = slice(start, start + rows)
            right = targets[some, None]
            readings = [states[some] for states in (first, second)]
            logs = [_log_probabilities(states.to(kind), matrix, bias) for states in readings]
            plain -= sum(log.gather(1, right).sum() for log in logs) / 2
            spread -= sum(log.mean(1).sum() for log in logs) / 2
            gap = logs[0] - logs[1]
            p, q = (log.exp_() for log in logs)
            ahead, back = ((p * gap).sum(1, keepdim=True), (q * gap).sum(1, keepdim=True))  # (n, 1)
            apart += (ahead.sum() - back.sum()) / 2
            if not differentiated:
                continue
            # of P: P (1 + α/2 (d − K + 1)) − α/2 Q; of Q: Q (1 + α/2 (−d + K' + 1)) − α/2 P, with K' = Σ Q d
            half = agreement / 2
            of_p = torch.addcmul((1 + half * (1 - ahead)) * p, p, gap, value=half).sub_(q, alpha=half)
            of_q = torch.addcmul((1 + half * (1 + back)) * q, q, gap, value=-half).sub_(p, alpha=half)
            for states, of_logits, of in zip(readings, (of_p, of_q), of_states, strict=True):
                of_logits.sub_(smoothing / len(weight))
                of_logits.scatter_add_(1, right, torch.full_like(right, smoothing - 1, dtype=of_logits.dtype))
                narrow = of_logits.mul_(0.5).to(kind)
                of[some] = torch.mm(narrow, matrix)
                add_product(of_weight, narrow.T, states.to(kind))
                if of_bias is not None:
                    of_bias += of_logits.sum(0)
        ctx.gradients = (*of_states, of_weight, of_bias)
        ctx.mark_non_differentiable(plain)
        return (1 - smoothing) * plain + smoothing * spread + agreement / 2 * apart, plain

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        scaled = [None if gradient is None else gradient.mul_(scale) for gradient in ctx.gradients]
        return (*scaled, None, None, None, None)


def _log_probabilities(states: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor:
    logits = whole(torch.mm(states, matrix.T))
    return (logits if bias is None else logits.add_(bias)).log_softmax(-1)


_in_pieces: Callable[..., tuple[Tensor, Tensor]] = _InPieces.apply
