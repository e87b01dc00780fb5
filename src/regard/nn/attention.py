"""Scaled dot-product attention (§3.2.1): the reference, and the kernel that networks run.

B batch · H heads · T queries · S keys · D head width
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.nn.functional import dropout as drop
from regard.nn.layout import Layout, Mask
from regard.nn.taps import Tap

Mix = Callable[[Tensor], Tensor]

SHORT = 64  # keys up to which plain matrix products beat PyTorch's fused kernel on a CPU, forward and backward
LANES = 16  # floats in the widest vector register of a CPU: PyTorch's softmax takes shorter rows number by number


def attend(
    q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None = None, *, scale: float | None = None
) -> tuple[Tensor, Tensor]:
    """softmax(q kᵀ / √D) v, written as the paper writes it; the reference for every kernel.

    q (B, H, T, D), k and v (B, H, S, D), allowed (…, T, S) bool: True where a query may look; `scale` replaces 1/√D.
    Returns the output (B, H, T, D) and the weights (B, H, T, S), whose rows sum to one. A query that may look
    nowhere gets zeros, not NaN.

    >>> import torch
    >>> from regard.nn.layout import causal_mask
    >>> x = torch.eye(2)[None, None]
    >>> out, weights = attend(x, x, x, causal_mask(2), scale=1.0)
    >>> weights[0, 0]
    tensor([[1.0000, 0.0000],
            [0.2689, 0.7311]])
    """
    scale = 1 / math.sqrt(q.size(-1)) if scale is None else scale
    scores = q @ k.mT * scale  # (B, H, T, S)
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -math.inf)  # before softmax: a masked key weighs exactly 0
    weights = softmax(scores, allowed)
    return weights @ v, weights


def softmax(masked: Tensor, allowed: Tensor | None) -> Tensor:
    """Softmax along each row of masked scores; zeros in a row that may look nowhere, where there is nothing to share.

    Such a row is taken out before softmax rather than mended after it: mending NaN would also hide the NaN of a
    network that has diverged.
    """
    if allowed is None:
        return masked.softmax(-1)
    nowhere = ~allowed.any(-1, keepdim=True)
    return masked.masked_fill(nowhere, 0.0).softmax(-1).masked_fill(nowhere, 0.0)


class AttentionKernel(nn.Module):
    """What multi-head attention runs inside its heads: queries, keys and values in, the heads' outputs out.

    The layout says who may look where and where each token stands. `bias`, broadcastable to (B, H, T, S), is added to
    the scaled scores. `mix` turns the weights (B, H, T, S) into
    something to add to the output (B, H, T, E). Both come from the positions.
    """

    past: int | None = None  # how many tokens behind its queries a causal kernel may look at; None: all

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(
        self,
        q: Tensor,  # (B, H, T, D)
        k: Tensor,  # (B, H, S, D)
        v: Tensor,  # (B, H, S, E)
        layout: Layout,
        bias: Tensor | None = None,
        mix: Mix | None = None,
    ) -> Tensor:  # (B, H, T, E)
        raise NotImplementedError

    def flops(self, keys: int, key_width: int, value_width: int) -> int:
        """Floating-point operations per query, the widths being those of all heads together."""
        raise NotImplementedError


class FullAttention(AttentionKernel):
    """The kernel in which every query meets every key.

    While one of its taps is open, each step is computed by itself and passes its tap. Otherwise PyTorch's fused kernel
    does all of it at once; or, on a CPU, a few matrix products do, where they are faster: for sentences of ordinary
    length, and wherever weights are dropped, which the fused kernel for CPUs cannot do.
    """

    def __init__(self, scale: float, dropout: float = 0.0) -> None:
        super().__init__(scale)
        self.dropout = dropout
        self.scores = Tap()  # q kᵀ
        self.scaled = Tap()  # ÷ √d_k, and what the positions add
        self.masked = Tap()  # −∞ where a query may not look
        self.weights = Tap()  # softmax

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        layout: Layout,
        bias: Tensor | None = None,
        mix: Mix | None = None,
    ) -> Tensor:
        if mix is not None or self._watched():
            return self._step_by_step(q, k, v, layout, bias, mix)
        dropout = self.dropout if self.training else 0.0
        return quick(q, k, v, layout.mask, bias, scale=self.scale, dropout=dropout)

    def flops(self, keys: int, key_width: int, value_width: int) -> int:
        return 2 * keys * (key_width + value_width)

    def _watched(self) -> bool:
        return self.scores.is_open or self.scaled.is_open or self.masked.is_open or self.weights.is_open

    def _step_by_step(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        layout: Layout,
        bias: Tensor | None,
        mix: Mix | None,
    ) -> Tensor:
        allowed = layout.mask.allowed
        scores = self.scores(q @ k.mT)  # (B, H, T, S)
        scaled = self.scaled(scores * self.scale if bias is None else scores * self.scale + bias)
        masked = self.masked(scaled if allowed is None else scaled.masked_fill(~allowed, -math.inf))
        weights = self.weights(softmax(masked, allowed))
        weights = drop(weights, self.dropout, self.training)
        out = weights @ v  # (B, H, T, E)
        return out if mix is None else out + mix(weights)


def quick(q: Tensor, k: Tensor, v: Tensor, mask: Mask, bias: Tensor | None, *, scale: float, dropout: float) -> Tensor:
    """The faster of two ways to compute the same."""
    way = batched if k.device.type == "cpu" and (dropout or _few(q, k)) else fused
    return way(q, k, v, mask, bias, scale=scale, dropout=dropout)


def _few(q: Tensor, k: Tensor) -> bool:
    """Whether plain products are faster on a CPU: for few keys, unless a single query makes the calls what costs."""
    return k.size(2) <= SHORT and q.size(2) > 1


def batched(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, bias: Tensor | None, *, scale: float, dropout: float
) -> Tensor:
    """The formula as batched matrix products, with a mask made once for all layers."""
    added = mask.added
    if bias is not None:
        added = bias if added is None else bias + added
    scores = q @ k.mT  # (B, H, T, S)
    scores = scores * scale if added is None else torch.add(added.to(scores.dtype), scores, alpha=scale)
    weights = short_softmax(scores)
    if mask.nowhere is not None:
        weights = weights.masked_fill(mask.nowhere, 0.0)
    return drop(weights, dropout, training=True) @ v


def short_softmax(scores: Tensor) -> Tensor:
    """Softmax along each row, filled up to a whole vector register: for a few keys, up to ten times faster."""
    keys = scores.size(-1)
    if keys >= LANES:
        return scores.softmax(-1)
    return F.pad(scores, (0, LANES - keys), value=-math.inf).softmax(-1)[..., :keys]


def fused(q: Tensor, k: Tensor, v: Tensor, mask: Mask, bias: Tensor | None, *, scale: float, dropout: float) -> Tensor:
    """All steps in PyTorch's one kernel, which never writes the scores down.

    `is_causal` is used for square masks only: with fewer queries than keys it would align them at the first key.
    """
    if mask.only_causal and bias is None:
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True, scale=scale)
    allowed_or_added = mask.allowed
    if bias is not None:
        allowed_or_added = bias if mask.allowed is None else bias.masked_fill(~mask.allowed, -math.inf)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed_or_added, dropout_p=dropout, scale=scale)
