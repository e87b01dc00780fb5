"""Functions that layers share: dropout, attention heads, mixed precision.

Each is a plain formula. Where `regard.nn.cpu` has a faster version of it, that version runs on CPUs.

B batch · T tokens · N tokens without padding · H heads · G key and value heads · D head width · P projections
"""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.nn import cpu
from regard.nn.cpu.functional import byte_dropout, gather_heads, scatter_heads
from regard.nn.layout import Tokens


class Dropout(nn.Dropout):
    """Dropout (§5.4): in training, zeroes each element with probability p and divides the others by 1 − p.

    >>> _ = torch.manual_seed(0)
    >>> Dropout(0.5)(torch.ones(6))
    tensor([0., 2., 2., 2., 2., 0.])
    """

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p, self.training)


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Apply dropout; masks come from torch's default generator, so `torch.manual_seed` makes them repeat."""
    if not training or p == 0.0:
        return x
    return byte_dropout(x, p) if cpu.enabled(x.device) else F.dropout(x, p)


def random_normal(*shape: int, std: float) -> Tensor:
    """Draw a tensor from N(0, std²); on the meta device without values, which would import the compiler."""
    empty = torch.empty(shape)
    return empty if empty.is_meta else empty.normal_(std=std)


def split_heads(x: Tensor, tokens: Tokens, heads: int, parts: int = 1) -> tuple[Tensor, ...]:
    """Split projections (…, P·H·D) into P tensors (B, H, T, D); tokens are packed, (N, …), or not, (B, T, …).

    Values at padding are arbitrary, since attention masks them.
    """
    if cpu.enabled(x.device):
        return gather_heads(x, tokens, heads, parts)
    return tuple(part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in tokens.pad(x).chunk(parts, dim=-1))


def merge_heads(x: Tensor, tokens: Tokens) -> Tensor:
    """Concatenate heads (B, H, T, D) to (B, T, H·D), or (N, H·D) if the tokens are packed."""
    if cpu.enabled(x.device):
        return scatter_heads(x, tokens)
    return tokens.pack(x.transpose(1, 2).flatten(2))


def repeat_heads(x: Tensor, heads: int) -> Tensor:
    """Repeat key or value heads (B, G, S, D) to (B, H, S, D): consecutive query heads share one of them."""
    return x if x.size(1) == heads else x.repeat_interleave(heads // x.size(1), dim=1)


def grouped_matmul(x: Tensor, y: Tensor) -> Tensor:
    """Multiply x (B, H, T, M) by y (B, G, M, N) to (B, H, T, N), as `x @ repeat_heads(y, H)` without the copy.

    >>> x, y = torch.randn(1, 4, 3, 2), torch.randn(1, 2, 2, 5)
    >>> torch.allclose(grouped_matmul(x, y), x @ repeat_heads(y, 4), atol=1e-6)
    True
    """
    heads, groups = x.size(1), y.size(1)
    if heads == groups:
        return x @ y
    rows = x.unflatten(1, (groups, -1)).flatten(2, 3)  # (B, G, H/G·T, M)
    return (rows @ y).unflatten(2, (heads // groups, -1)).flatten(1, 2)


def autocast(dtype: torch.dtype, device: torch.device) -> AbstractContextManager[object]:
    """Return a context in which matrix products are computed in `dtype` (Micikevicius et al. 2018).

    bfloat16 has the range of float32 with 8 bits of precision instead of 24: enough for the factors of a product, whose
    sums are still taken in float32, too few for weights and their updates. float32 also turns an outer autocast off.
    """
    if not torch.amp.is_autocast_available(device.type):  # such as the meta device
        return nullcontext()
    return torch.autocast(device.type, dtype, enabled=dtype != torch.float32)


def matmul_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype in which matrix products of x are computed, given the current autocast context."""
    kind = x.device.type
    if not torch.amp.is_autocast_available(kind):
        return x.dtype
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def at_least_float32(x: Tensor) -> Tensor:
    """Return x in float32, or float64 if it is: sums and logarithms need that precision.

    >>> at_least_float32(torch.ones(1, dtype=torch.bfloat16)).dtype
    torch.float32
    """
    return x.to(torch.promote_types(x.dtype, torch.float32))
