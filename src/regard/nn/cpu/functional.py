"""The functions of `nn.functional` on a CPU: dropout from random bytes, and heads by one gather.

Dropout costs about a tenth of PyTorch's. `F.dropout` draws a random number for every element; here eight elements share
one 64-bit number, and each is dropped if its byte is less than 256·p. The rate is thereby rounded to 256ths (0.1
becomes 26/256 = 0.1016), and kept elements are scaled by the rounded rate, so that the expectation stays exact.

Tokens are moved into heads and back by one gather, forward and backward, which also skips padding: three to four times
faster than padding, splitting, transposing and copying one after the other.

B batch · T tokens · N tokens without padding · H heads · D head width · P projections
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from regard.nn.layout import Tokens

BYTE_LEVELS = 256  # values of a byte
RATE_TOLERANCE = 0.05  # largest error of a rounded rate, relative to p and to 1 − p: 0.02 may be rounded, 0.01 may not


def byte_dropout(x: Tensor, p: float) -> Tensor:
    """Apply dropout in training; rates too near 0 or 1 for a byte use `F.dropout`."""
    dropped = round(BYTE_LEVELS * p)
    error = abs(dropped / BYTE_LEVELS - p)
    if error >= RATE_TOLERANCE * min(p, 1 - p):  # also true for p = 1, which leaves nothing to scale
        return F.dropout(x, p)
    return x * keep_mask(x, dropped)


def keep_mask(x: Tensor, dropped: int) -> Tensor:
    """Return a random mask with the shape and dtype of x: 0 in `dropped` of 256 cases, else 256 / (256 − dropped)."""
    words = torch.empty(-(-x.numel() // 8), dtype=torch.int64)
    words.random_(-(2**63), None)  # all 64 bits: without arguments, `random_` never sets the sign bit
    kept = words.view(torch.uint8).ge_(dropped)  # in place, as bytes: a comparison to bools is 20 times slower
    return kept[: x.numel()].view(x.shape).to(x.dtype).mul_(BYTE_LEVELS / (BYTE_LEVELS - dropped))


@dataclass(frozen=True)
class _HeadIndex:
    """Source rows of both gathers. A padding slot of (B, H, T) is filled with some token's row."""

    into: Tensor  # (P·B·H·T,) among the N·P·H rows of tokens
    out_of: Tensor  # (N·P·H,) among the P·B·H·T rows of heads


def gather_heads(x: Tensor, tokens: Tokens, heads: int, parts: int = 1) -> tuple[Tensor, ...]:
    """Split projections (…, P·H·D) into P tensors (B, H, T, D), as `split_heads` does."""
    batch, length = _shape(x, tokens)
    if length == 1 and tokens.packing is None:  # a cached step has nothing to move
        return tuple(part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in x.chunk(parts, dim=-1))
    index = _head_index(tokens, heads, parts, batch, length, x.device)
    width = x.size(-1) // (parts * heads)
    rows = _gather(x.reshape(-1, width), index.into, index.out_of)
    return rows.view(parts, batch, heads, length, width).unbind(0)


def scatter_heads(x: Tensor, tokens: Tokens) -> Tensor:
    """Concatenate heads (B, H, T, D) to (N, H·D) or (B, T, H·D), as `merge_heads` does."""
    batch, heads, length, width = x.shape
    if length == 1 and tokens.packing is None:
        return x.transpose(1, 2).flatten(2)
    index = _head_index(tokens, heads, 1, batch, length, x.device)
    rows = _gather(x.reshape(-1, width), index.out_of, None if tokens.packing is not None else index.into)
    return rows.view(*((-1,) if tokens.packing is not None else (batch, length)), heads * width)


def _shape(x: Tensor, tokens: Tokens) -> tuple[int, int]:
    return (tokens.packing.batch, tokens.packing.length) if tokens.packing is not None else (x.size(0), x.size(1))


def _head_index(tokens: Tokens, heads: int, parts: int, batch: int, length: int, device: torch.device) -> _HeadIndex:
    """Return the index for these tokens; it is the same in every layer and computed once."""
    key = f"head index {heads} {parts} {batch}"
    if key not in tokens.memo:
        tokens.memo[key] = _make_index(tokens, heads, parts, batch, length, device)
    index: _HeadIndex = tokens.memo[key]
    return index


def _make_index(tokens: Tokens, heads: int, parts: int, batch: int, length: int, device: torch.device) -> _HeadIndex:
    slots = torch.arange(batch * length, device=device)
    filled = slots if tokens.packing is None else tokens.packing.slots  # (N,)
    number = torch.zeros_like(slots).index_copy_(0, filled, torch.arange(len(filled), device=device))
    part, head = torch.arange(parts, device=device), torch.arange(heads, device=device)
    token_part = number.view(1, batch, 1, length) * parts + part[:, None, None, None]
    into = token_part * heads + head[:, None]  # (P, B, H, T)
    row, column = filled // length, filled % length
    out_of = ((part[:, None] * batch + row[:, None, None]) * heads + head) * length + column[:, None, None]  # (N, P, H)
    return _HeadIndex(into.flatten(), out_of.flatten())


class _Gather(torch.autograd.Function):
    """Select rows of x. No row that matters is selected twice, so the backward pass is a gather as well.

    `backward_index` are the rows of the backward gather; without it, rows that are not selected get a zero gradient.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor, backward_index: Tensor | None) -> Tensor:
        ctx.save_for_backward(index, backward_index)
        ctx.rows = len(x)
        return x.index_select(0, index)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        index, backward_index = ctx.saved_tensors
        if backward_index is not None:
            return gradient.index_select(0, backward_index), None, None
        return gradient.new_zeros(ctx.rows, gradient.size(1)).index_copy_(0, index, gradient), None, None


_gather: Callable[[Tensor, Tensor, Tensor | None], Tensor] = _Gather.apply
