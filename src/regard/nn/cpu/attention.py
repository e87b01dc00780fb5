"""Attention on a CPU: few keys as plain matrix products, block-sparse attention a few blocks at a time.

Plain matrix products beat PyTorch's fused kernel up to `SHORT` keys. The fused kernel for CPUs cannot drop attention
weights either, so dropout always takes this path.

For block-sparse attention, the keys and values of every few blocks of queries are gathered, and scores, weights and
outputs computed in the cache of the processor. Only the logarithm of each softmax denominator is kept, from which the
backward pass computes the same weights again (as FlashAttention does, Dao et al. 2022, §3.1):

    P = exp(S − log Σ exp S),   dV = Pᵀ dO,   dP = dO Vᵀ,   dS = P ⊙ (dP − rowsum(dO ⊙ O)),   dQ = dS K,   dK = dSᵀ Q

So memory grows with the length of the sequence alone, however many blocks each block attends to.

B batch · H heads · G key and value heads · S keys · T queries, or tokens in a block · D width of a query or key
E width of a value · N blocks of queries · L blocks of keys · c blocks of a chunk
M blocks that each of them attends to · K = M·T keys
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from regard.nn.cpu.functional import byte_dropout
from regard.nn.functional import at_least_float32, autocast, grouped_matmul
from regard.nn.layout import AttentionMask

SHORT = 64  # keys up to which plain matrix products are faster, forward and backward
LANES = 16  # floats in the widest vector register: PyTorch's softmax handles shorter rows element by element
BlockRows = Sequence[Sequence[int]]  # the blocks of keys that each block of queries attends to
HiddenKeys = Callable[[slice, Tensor], Tensor | None]
"""Which keys are masked for a chunk of query blocks: from their slice of N and the blocks that they attend to (c, M) to
a mask broadcastable to (B, H, c, T, K); None: no key is masked."""

CHUNK_SCORES = 2**19  # scores computed at a time, two megabytes: what stays in a core's cache


def prefers_matmul(q: Tensor, k: Tensor, dropout: float) -> bool:
    """Return whether `matmul_attention` is the faster one: with dropout, or few keys and more than one query."""
    return bool(dropout) or (k.size(2) <= SHORT and q.size(2) > 1)


def matmul_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, bias: Tensor | None, *, scale: float, dropout: float
) -> Tensor:
    """Compute attention from q (B, H, T, D), k and v (B, G, S, D) as batched matrix products."""
    additive = mask.additive
    if bias is not None:
        additive = bias if additive is None else bias + additive
    scores = grouped_matmul(q, k.mT)  # (B, H, T, S)
    scores = scores * scale if additive is None else torch.add(additive.to(scores.dtype), scores, alpha=scale)
    weights = short_softmax(scores)
    if mask.fully_masked is not None:
        weights = weights.masked_fill(mask.fully_masked, 0.0)
    return grouped_matmul(byte_dropout(weights, dropout) if dropout else weights, v)


def short_softmax(scores: Tensor) -> Tensor:
    """Softmax along each row, padded to a full vector register: for a few keys up to ten times faster."""
    keys = scores.size(-1)
    if keys >= LANES:
        return scores.softmax(-1)
    return F.pad(scores, (0, LANES - keys), value=-math.inf).softmax(-1)[..., :keys]


def blockwise_attention(q: Tensor, k: Tensor, v: Tensor, rows: BlockRows, hidden: HiddenKeys, scale: float) -> Tensor:
    """q (B, H, N, T, D), k (B, H, L, T, D), v (B, H, L, T, E) -> the heads' outputs (B, H, N, T, E).

    A query that may attend to no key gets zeros.
    """
    with autocast(torch.float32, q.device):  # the backward pass subtracts logarithms, for which 16 bits are too few
        q, k, v = at_least_float32(q), at_least_float32(k), at_least_float32(v)
        out: Tensor = _BlockwiseAttention.apply(q, k, v, rows, hidden, scale)  # type: ignore[no-untyped-call]
    return out


class _BlockwiseAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, rows: BlockRows, hidden: HiddenKeys, scale: float) -> Tensor:
        out = q.new_empty(*q.shape[:4], v.size(4))
        logs = q.new_empty(*q.shape[:4], 1)
        for chunk, seen in _chunks(rows, q):
            values = _gather(v, seen)
            scores = _scores(q, k, chunk, seen, hidden, scale)
            highest = scores.amax(-1, keepdim=True).clamp_(min=torch.finfo(q.dtype).min)
            weights = scores.sub_(highest).exp_()
            total = weights.sum(-1, keepdim=True)
            outputs = torch.bmm(weights, values).div_(total.clamp(min=torch.finfo(q.dtype).tiny))
            out[:, :, chunk] = _unmerge(outputs, q)
            logs[:, :, chunk] = _unmerge(highest.add_(total.log()).masked_fill_(total == 0, math.inf), q)
        ctx.save_for_backward(q, k, v, out, logs)
        ctx.rows, ctx.hidden, ctx.scale = rows, hidden, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, logs = ctx.saved_tensors
        dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        row_sums = (gradient * out).sum(-1, keepdim=True)  # (B, H, N, T, 1)
        for chunk, seen in _chunks(ctx.rows, q):
            keys, values = _gather(k, seen), _gather(v, seen)
            queries, do = _merge(q[:, :, chunk]) * ctx.scale, _merge(gradient[:, :, chunk])
            weights = _scores(q, k, chunk, seen, ctx.hidden, ctx.scale, keys, queries)
            weights.sub_(_merge(logs[:, :, chunk])).exp_()
            _add_blocks(dv, seen, torch.bmm(weights.mT, do))
            ds = torch.bmm(do, values.mT).sub_(_merge(row_sums[:, :, chunk])).mul_(weights)
            dq[:, :, chunk] = _unmerge(torch.bmm(ds, keys).mul_(ctx.scale), q)
            _add_blocks(dk, seen, torch.bmm(ds.mT, queries))
        return dq, dk, dv, None, None, None


def _scores(
    q: Tensor,
    k: Tensor,
    chunk: slice,
    seen: Tensor,
    hidden: HiddenKeys,
    scale: float,
    keys: Tensor | None = None,
    queries: Tensor | None = None,
) -> Tensor:
    """Return the scaled scores (B·H·c, T, K), −∞ at masked keys."""
    queries = _merge(q[:, :, chunk]) * scale if queries is None else queries
    scores = torch.bmm(queries, (_gather(k, seen) if keys is None else keys).mT)
    masked = hidden(chunk, seen)
    if masked is not None:
        _unmerge(scores, q).masked_fill_(masked, -math.inf)
    return scores


def _chunks(rows: BlockRows, q: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yield consecutive blocks that attend to equally many: their slice of N, and the blocks they attend to (c, M)."""
    batch, heads, _, size, _ = q.shape
    start = 0
    while start < len(rows):
        width = len(rows[start])
        most = max(1, CHUNK_SCORES // (batch * heads * size * size * width))
        end = start + 1
        while end < min(len(rows), start + most) and len(rows[end]) == width:
            end += 1
        yield slice(start, end), torch.tensor(rows[start:end], device=q.device)
        start = end


def _gather(x: Tensor, seen: Tensor) -> Tensor:
    """Return the blocks of x (B, H, L, T, D) that `seen` (c, M) lists: (B·H·c, K, D)."""
    return x.index_select(2, seen.flatten()).view(-1, seen.size(1) * x.size(3), x.size(4))


def _add_blocks(x: Tensor, seen: Tensor, gathered: Tensor) -> None:
    """Add (B·H·c, K, D) to the blocks of x that it was gathered from: the backward pass of `_gather`."""
    x.index_add_(2, seen.flatten(), gathered.view(*x.shape[:2], -1, *x.shape[3:]))


def _merge(x: Tensor) -> Tensor:
    """(B, H, c, T, D) -> (B·H·c, T, D)"""
    return x.reshape(-1, *x.shape[3:])


def _unmerge(x: Tensor, q: Tensor) -> Tensor:
    """(B·H·c, T, D) -> (B, H, c, T, D)"""
    return x.view(*q.shape[:2], -1, *x.shape[1:])
