"""Cross entropy from hidden states, a few rows of logits at a time: all at once are the largest thing in training.

Each piece of the logits becomes e^logit in place, while it is still in the processor's cache, and is used up for the
gradients of states and matrix before the next one is made. With P = softmax(H Wᵀ), the rows of e^logit over their sums,
and R with a one at each right token,

    ∂loss/∂H = (P − (1 − ε) R) W − ε mean(W),   ∂loss/∂W = (P − (1 − ε) R)ᵀ H − ε/V sum(H),

and the rows are divided by their sums only where they are short. It is the loss of `loss.py` in less time and memory.
Where products are taken in 16 bits the difference of P and R is made before, while it is still exact.

N predictions · n of them at a time · C model width · V vocabulary
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.nn.embedding import OutputProjection
from regard.nn.functional import at_least_float32, matmul_dtype
from regard.training.losses import Loss, rdrop_cross_entropy, smoothed_cross_entropy

CHUNK_LOGITS = 2_500_000  # logits at a time: 10 MB


def fused_cross_entropy(hidden: Tensor, output: OutputProjection, targets: Tensor, smoothing: float = 0.0) -> Loss:
    """What `smoothed_cross_entropy(output(hidden), targets, smoothing)` is, for states (N, C) and targets (N,)."""
    if output.logits.is_open:  # someone wants to see them
        return smoothed_cross_entropy(output(hidden), targets, smoothing)
    differentiated = torch.is_grad_enabled()
    smoothed, plain = _chunked_cross_entropy(
        at_least_float32(hidden), output.weight, output.bias, targets, smoothing, differentiated
    )
    return Loss(smoothed, plain, len(targets))


class _ChunkedCrossEntropy(torch.autograd.Function):
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
        size, kind = len(weight), matmul_dtype(hidden)
        factors, matrix = hidden.to(kind), weight.to(kind)
        rows = max(1, min(len(hidden), CHUNK_LOGITS // size))
        space = hidden.new_empty(rows, size)
        plain, normalisers = hidden.new_zeros(()), hidden.new_zeros(())
        of_hidden, of_weight = torch.empty_like(hidden), torch.zeros_like(weight)
        of_bias = None if bias is None else torch.zeros_like(bias)
        for first in range(0, len(hidden), rows):
            some = slice(first, first + rows)
            right = targets[some, None]
            powers, normaliser, chosen = _exponentials(factors[some], matrix, bias, right, space)
            totals = powers.sum(1, keepdim=True)  # (n, 1)
            normaliser += totals.log()
            normalisers += normaliser.sum()
            plain += (normaliser - chosen).sum()
            if differentiated:
                powers.scatter_add_(1, right, (smoothing - 1) * totals)
                narrow = powers.to(kind)
                of_hidden[some] = torch.mm(narrow, matrix) / totals
                add_product(of_weight, narrow.T, (hidden[some] / totals).to(kind))
                if of_bias is not None:
                    of_bias += (powers / totals).sum(0)
        average = (hidden.sum(0) * weight.mean(0)).sum()  # of the logits, summed over the predictions
        if bias is not None:
            average += len(hidden) * bias.mean()
        if differentiated:
            of_hidden.sub_(weight.mean(0), alpha=smoothing)
            of_weight.sub_(hidden.sum(0), alpha=smoothing / size)
            if of_bias is not None:
                of_bias -= smoothing * len(hidden) / size
            ctx.gradients = of_hidden, of_weight, of_bias
        ctx.mark_non_differentiable(plain)
        return (1 - smoothing) * plain + smoothing * (normalisers - average), plain

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        scaled = [None if gradient is None else gradient.mul_(scale) for gradient in ctx.gradients]
        return (*scaled, None, None, None)


def _exponentials(
    factors: Tensor, matrix: Tensor, bias: Tensor | None, right: Tensor, space: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """e^(logit − highest) (n, V), made in `space`; the highest logit of each row, and the right token's (n, 1)."""
    space = space[: len(factors)]
    logits = torch.mm(factors, matrix.T, out=space if space.dtype == matrix.dtype else None)
    if bias is not None:
        logits = torch.add(logits, bias, out=space)
    highest = logits.amax(1, keepdim=True).to(space.dtype)
    chosen = logits.gather(1, right).to(space.dtype)
    return torch.sub(logits, highest, out=space).exp_(), highest, chosen


def add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """total += a b, which is one operation where all have one type."""
    if total.dtype == a.dtype:
        total.addmm_(a, b)
    else:
        total += torch.mm(a, b)


_chunked_cross_entropy: Callable[[Tensor, Tensor, Tensor | None, Tensor, float, bool], tuple[Tensor, Tensor]] = (
    _ChunkedCrossEntropy.apply
)
RDROP_CHUNK_LOGITS = 1_000_000  # logits of each reading at a time: several matrices of this size are needed at once


def fused_rdrop_cross_entropy(
    first: Tensor, second: Tensor, output: OutputProjection, targets: Tensor, smoothing: float, weight: float
) -> Loss:
    """What `agreeing_cross_entropy` of `output(first)` and `output(second)` is, for states (N, C) and targets (N,)."""
    if output.logits.is_open:  # someone wants to see them
        return rdrop_cross_entropy(output(first), output(second), targets, smoothing, weight)
    states, settings = (at_least_float32(first), at_least_float32(second)), (smoothing, weight, torch.is_grad_enabled())
    smoothed, plain = _chunked_rdrop(*states, output.weight, output.bias, targets, *settings)
    return Loss(smoothed, plain, len(targets))


class _ChunkedRDrop(torch.autograd.Function):
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
        kind, rows = matmul_dtype(first), max(1, RDROP_CHUNK_LOGITS // len(weight))
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
    logits = at_least_float32(torch.mm(states, matrix.T))
    return (logits if bias is None else logits.add_(bias)).log_softmax(-1)


_chunked_rdrop: Callable[..., tuple[Tensor, Tensor]] = _ChunkedRDrop.apply
