"""Cross entropy and R-Drop on CPUs: gradients computed in the forward pass, logits in chunks that fit the cache.

The logits of a batch are the largest tensor of training. Here they are computed a few rows at a time, and each chunk is
used for the gradients of states and matrix before the next one is computed. With P = softmax(H Wᵀ) and R one-hot at
the right tokens, the gradients of cross entropy smoothed by ε are

    ∂loss/∂H = (P − (1 − ε) R) W − ε mean(W),   ∂loss/∂W = (P − (1 − ε) R)ᵀ H − ε/V sum(H).

P is not normalized: its rows, e^logit, are divided by their sums only where that is cheaper, after a product. In
16-bit products, P − R is computed first, while it is exact. With P, Q the predictions of two passes, d = log P − log Q
and K = Σ P d, the gradient of R-Drop is

    ∂loss/∂logit of P = ½ (P − (1 − ε) R − ε/V + α/2 (P (d − K) + P − Q)),

and that of Q is the same with P and Q exchanged. `regard.training.losses` has the formulas that these equal.

N targets · n targets of a chunk · C model width · V vocabulary
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.nn.functional import at_least_float32, matmul_dtype

CHUNK_LOGITS = 2_500_000  # logits per chunk: 10 MB
RDROP_CHUNK_LOGITS = 1_000_000  # per pass: R-Drop needs several matrices of this size at once


def one_pass_cross_entropy(logits: Tensor, targets: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Return the smoothed loss and the cross entropy of logits (N, V) and targets (N,), summed over targets."""
    return _one_pass_cross_entropy(logits, targets, smoothing)


def chunked_cross_entropy(
    states: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """Return the smoothed loss and the cross entropy of states (N, C) · weight (V, C)ᵀ + bias, summed over targets."""
    return _chunked_cross_entropy(states, weight, bias, targets, smoothing, torch.is_grad_enabled())


def chunked_rdrop(
    first: Tensor,
    second: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    smoothing: float,
    rdrop: float,
) -> tuple[Tensor, Tensor]:
    """Return the R-Drop loss with α = `rdrop` and the cross entropy of the states (N, C) of two passes."""
    return _chunked_rdrop(first, second, weight, bias, targets, smoothing, rdrop, torch.is_grad_enabled())


class _OnePassCrossEntropy(torch.autograd.Function):
    """Both losses from one softmax, and the gradient in one more pass: autograd would take twice as many passes."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        log_p = logits.log_softmax(-1)
        cross_entropy = -log_p.gather(1, targets[:, None]).sum()
        loss = cross_entropy.clone()
        if smoothing:
            loss = (1 - smoothing) * cross_entropy - smoothing * log_p.mean(-1).sum()
        ctx.save_for_backward(log_p.exp_(), targets)
        ctx.smoothing = smoothing
        ctx.mark_non_differentiable(cross_entropy)
        return loss, cross_entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor, _: Tensor) -> tuple[Tensor, None, None]:
        """∂loss/∂logit[v] = p[v] − ε/V, and another −(1 − ε) at the right token."""
        p, targets = ctx.saved_tensors
        gradient = torch.add(-(ctx.smoothing / p.size(1)) * scale, p, alpha=float(scale))
        right = targets[:, None]
        gradient.scatter_add_(1, right, ((ctx.smoothing - 1) * scale).expand(right.shape))
        return gradient, None, None


class _ChunkedCrossEntropy(torch.autograd.Function):
    """The gradients are computed in the forward pass; backward only scales them."""

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        smoothing: float,
        needs_gradient: bool,
    ) -> tuple[Tensor, Tensor]:
        vocabulary, dtype = len(weight), matmul_dtype(states)
        factors, matrix = states.to(dtype), weight.to(dtype)
        rows = max(1, min(len(states), CHUNK_LOGITS // vocabulary))
        buffer = states.new_empty(rows, vocabulary)
        cross_entropy, log_normalizers = states.new_zeros(()), states.new_zeros(())
        trains_weight = needs_gradient and weight.requires_grad  # LoRA keeps it
        grad_states, grad_weight = torch.empty_like(states), torch.zeros_like(weight) if trains_weight else None
        grad_bias = None if bias is None else torch.zeros_like(bias)
        for start in range(0, len(states), rows):
            chunk = slice(start, start + rows)
            right = targets[chunk, None]
            exponentials, log_normalizer, right_logits = _exponentials(factors[chunk], matrix, bias, right, buffer)
            sums = exponentials.sum(1, keepdim=True)  # (n, 1)
            log_normalizer += sums.log()
            log_normalizers += log_normalizer.sum()
            cross_entropy += (log_normalizer - right_logits).sum()
            if needs_gradient:
                exponentials.scatter_add_(1, right, (smoothing - 1) * sums)
                grad_logits = exponentials.to(dtype)  # not yet divided by the sums
                grad_states[chunk] = torch.mm(grad_logits, matrix) / sums
                if grad_weight is not None:
                    _add_product(grad_weight, grad_logits.T, (states[chunk] / sums).to(dtype))
                if grad_bias is not None:
                    grad_bias += (exponentials / sums).sum(0)
        mean_logits = (states.sum(0) * weight.mean(0)).sum()  # summed over the targets
        if bias is not None:
            mean_logits += len(states) * bias.mean()
        if needs_gradient:
            grad_states.sub_(weight.mean(0), alpha=smoothing)
            if grad_weight is not None:
                grad_weight.sub_(states.sum(0), alpha=smoothing / vocabulary)
            if grad_bias is not None:
                grad_bias -= smoothing * len(states) / vocabulary
            ctx.gradients = grad_states, grad_weight, grad_bias
        ctx.mark_non_differentiable(cross_entropy)
        return (1 - smoothing) * cross_entropy + smoothing * (log_normalizers - mean_logits), cross_entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        scaled = [None if gradient is None else gradient.mul_(scale) for gradient in ctx.gradients]
        return (*scaled, None, None, None)


class _ChunkedRDrop(torch.autograd.Function):
    """The gradients are computed in the forward pass; backward only scales them."""

    @staticmethod
    def forward(
        ctx: Any,
        first: Tensor,
        second: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        smoothing: float,
        rdrop: float,
        needs_gradient: bool,
    ) -> tuple[Tensor, Tensor]:
        dtype, rows = matmul_dtype(first), max(1, RDROP_CHUNK_LOGITS // len(weight))
        matrix = weight.to(dtype)
        cross_entropy, uniform, divergence = (first.new_zeros(()) for _ in range(3))
        grad_states = [torch.empty_like(first), torch.empty_like(second)]
        grad_weight, grad_bias = torch.zeros_like(weight), None if bias is None else torch.zeros_like(bias)
        for start in range(0, len(targets), rows):
            chunk = slice(start, start + rows)
            right = targets[chunk, None]
            passes = [states[chunk] for states in (first, second)]
            logs = [_log_probabilities(states.to(dtype), matrix, bias) for states in passes]
            cross_entropy -= sum(log.gather(1, right).sum() for log in logs) / 2
            uniform -= sum(log.mean(1).sum() for log in logs) / 2
            d = logs[0] - logs[1]
            p, q = (log.exp_() for log in logs)
            k_p, k_q = ((p * d).sum(1, keepdim=True), (q * d).sum(1, keepdim=True))  # (n, 1)
            divergence += (k_p.sum() - k_q.sum()) / 2
            if not needs_gradient:
                continue
            # of P: P (1 + α/2 (d − K + 1)) − α/2 Q; of Q: Q (1 + α/2 (−d + K' + 1)) − α/2 P, with K' = Σ Q d
            half = rdrop / 2
            grad_p = torch.addcmul((1 + half * (1 - k_p)) * p, p, d, value=half).sub_(q, alpha=half)
            grad_q = torch.addcmul((1 + half * (1 + k_q)) * q, q, d, value=-half).sub_(p, alpha=half)
            for states, grad_logits, grad in zip(passes, (grad_p, grad_q), grad_states, strict=True):
                grad_logits.sub_(smoothing / len(weight))
                grad_logits.scatter_add_(1, right, torch.full_like(right, smoothing - 1, dtype=grad_logits.dtype))
                narrow = grad_logits.mul_(0.5).to(dtype)
                grad[chunk] = torch.mm(narrow, matrix)
                _add_product(grad_weight, narrow.T, states.to(dtype))
                if grad_bias is not None:
                    grad_bias += grad_logits.sum(0)
        ctx.gradients = (*grad_states, grad_weight, grad_bias)
        ctx.mark_non_differentiable(cross_entropy)
        return (1 - smoothing) * cross_entropy + smoothing * uniform + rdrop / 2 * divergence, cross_entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        scaled = [None if gradient is None else gradient.mul_(scale) for gradient in ctx.gradients]
        return (*scaled, None, None, None, None)


def _exponentials(
    factors: Tensor, matrix: Tensor, bias: Tensor | None, right: Tensor, buffer: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return e^(logit − max) (n, V), written to `buffer`, the largest logit of each row and the right one (n, 1)."""
    buffer = buffer[: len(factors)]
    logits = torch.mm(factors, matrix.T, out=buffer if buffer.dtype == matrix.dtype else None)
    if bias is not None:
        logits = torch.add(logits, bias, out=buffer)
    largest = logits.amax(1, keepdim=True).to(buffer.dtype)
    right_logits = logits.gather(1, right).to(buffer.dtype)
    return torch.sub(logits, largest, out=buffer).exp_(), largest, right_logits


def _log_probabilities(states: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor:
    logits = at_least_float32(torch.mm(states, matrix.T))
    return (logits if bias is None else logits.add_(bias)).log_softmax(-1)


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """total += a b, in one operation where all have the same dtype."""
    if total.dtype == a.dtype:
        total.addmm_(a, b)
    else:
        total += torch.mm(a, b)


_one_pass_cross_entropy: Callable[[Tensor, Tensor, float], tuple[Tensor, Tensor]] = _OnePassCrossEntropy.apply
_chunked_cross_entropy: Callable[..., tuple[Tensor, Tensor]] = _ChunkedCrossEntropy.apply
_chunked_rdrop: Callable[..., tuple[Tensor, Tensor]] = _ChunkedRDrop.apply
