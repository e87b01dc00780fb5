"""Blocks of queries meet the blocks of keys that they see, a few at a time: what sparse kernels run on a CPU.

For each few blocks the keys and values that they see are gathered, and scores, weights and outputs made, in the cache
of the processor; then the next few. Nothing of it is kept but the logarithm of each softmax's denominator, from which
the way back makes the same weights again (as FlashAttention does, Dao et al. 2022, §3.1):

    P = exp(S − log Σ exp S),   dV = Pᵀ dO,   dP = dO Vᵀ,   dS = P ⊙ (dP − rowsum(dO ⊙ O)),   dQ = dS K,   dK = dSᵀ Q

So memory grows with the length of the text alone, however many blocks each block sees.

B batch · H heads · N blocks of queries · L blocks of keys · T tokens in a block · D width of a query or key
E width of a value · c blocks at a time · M blocks that each of them sees · K = M·T keys
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.nn.functional import at_least_float32, autocast

Rows = Sequence[Sequence[int]]  # the blocks of keys that each block of queries sees
Hidden = Callable[[slice, Tensor], Tensor | None]
"""Which keys some blocks of queries may not see: from their slice of N and the blocks that they see (c, M) to what is
broadcastable to (B, H, c, T, K); None: they may see all."""

ENTRIES = 2**19  # scores at a time, two megabytes of them: what stays in a core's cache


def meet_in_blocks(q: Tensor, k: Tensor, v: Tensor, rows: Rows, hidden: Hidden, scale: float) -> Tensor:
    """q (B, H, N, T, D), k (B, H, L, T, D), v (B, H, L, T, E) -> the heads' outputs (B, H, N, T, E).

    A query that may look nowhere gets zeros.
    """
    with autocast(torch.float32, q.device):  # the way back subtracts logarithms, for which 16 bits are too few
        out: Tensor = _Meet.apply(at_least_float32(q), at_least_float32(k), at_least_float32(v), rows, hidden, scale)  # type: ignore[no-untyped-call]
    return out


class _Meet(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, rows: Rows, hidden: Hidden, scale: float) -> Tensor:
        out = q.new_empty(*q.shape[:4], v.size(4))
        logs = q.new_empty(*q.shape[:4], 1)
        for some, seen in _parts(rows, q):
            values = _gathered(v, seen)
            scores = _scores(q, k, some, seen, hidden, scale)
            highest = scores.amax(-1, keepdim=True).clamp_(min=torch.finfo(q.dtype).min)
            weights = scores.sub_(highest).exp_()
            total = weights.sum(-1, keepdim=True)
            found = torch.bmm(weights, values).div_(total.clamp(min=torch.finfo(q.dtype).tiny))
            out[:, :, some] = _apart(found, q)
            logs[:, :, some] = _apart(highest.add_(total.log()).masked_fill_(total == 0, math.inf), q)
        ctx.save_for_backward(q, k, v, out, logs)
        ctx.rows, ctx.hidden, ctx.scale = rows, hidden, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, logs = ctx.saved_tensors
        dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        shares = (gradient * out).sum(-1, keepdim=True)  # (B, H, N, T, 1)
        for some, seen in _parts(ctx.rows, q):
            keys, values = _gathered(k, seen), _gathered(v, seen)
            queries, do = _together(q[:, :, some]) * ctx.scale, _together(gradient[:, :, some])
            weights = _scores(q, k, some, seen, ctx.hidden, ctx.scale, keys, queries)
            weights.sub_(_together(logs[:, :, some])).exp_()
            _add(dv, seen, torch.bmm(weights.mT, do))
            ds = torch.bmm(do, values.mT).sub_(_together(shares[:, :, some])).mul_(weights)
            dq[:, :, some] = _apart(torch.bmm(ds, keys).mul_(ctx.scale), q)
            _add(dk, seen, torch.bmm(ds.mT, queries))
        return dq, dk, dv, None, None, None


def _scores(
    q: Tensor,
    k: Tensor,
    some: slice,
    seen: Tensor,
    hidden: Hidden,
    scale: float,
    keys: Tensor | None = None,
    queries: Tensor | None = None,
) -> Tensor:
    """(B·H·c, T, K), −∞ where a query may not look."""
    queries = _together(q[:, :, some]) * scale if queries is None else queries
    scores = torch.bmm(queries, (_gathered(k, seen) if keys is None else keys).mT)
    unseen = hidden(some, seen)
    if unseen is not None:
        _apart(scores, q).masked_fill_(unseen, -math.inf)
    return scores


def _parts(rows: Rows, q: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """A few neighbouring blocks at a time that see equally many: where they stand, and what they see (c, M)."""
    batch, heads, _, size, _ = q.shape
    start = 0
    while start < len(rows):
        width = len(rows[start])
        most = max(1, ENTRIES // (batch * heads * size * size * width))
        end = start + 1
        while end < min(len(rows), start + most) and len(rows[end]) == width:
            end += 1
        yield slice(start, end), torch.tensor(rows[start:end], device=q.device)
        start = end


def _gathered(x: Tensor, seen: Tensor) -> Tensor:
    """The blocks of x (B, H, L, T, D) that are seen (c, M), beside those that see them: (B·H·c, K, D)."""
    return x.index_select(2, seen.flatten()).view(-1, seen.size(1) * x.size(3), x.size(4))


def _add(x: Tensor, seen: Tensor, gathered: Tensor) -> None:
    """The way back: what blocks (B·H·c, K, D) have gathered is added up where it came from."""
    x.index_add_(2, seen.flatten(), gathered.view(*x.shape[:2], -1, *x.shape[3:]))


def _together(x: Tensor) -> Tensor:
    """(B, H, c, T, D) -> (B·H·c, T, D)"""
    return x.reshape(-1, *x.shape[3:])


def _apart(x: Tensor, q: Tensor) -> Tensor:
    """(B·H·c, T, D) -> (B, H, c, T, D)"""
    return x.view(*q.shape[:2], -1, *x.shape[1:])
