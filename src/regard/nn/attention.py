"""Scaled dot-product attention (§3.2.1): the reference formula, and the kernel that networks run.

B batch · H heads · G key and value heads · T queries · S keys · D width of a query or key · E width of a value
"""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.nn import cpu
from regard.nn.cpu.attention import matmul_attention, prefers_matmul
from regard.nn.functional import dropout as apply_dropout
from regard.nn.functional import grouped_matmul, repeat_heads
from regard.nn.layout import AttentionMask, Layout
from regard.nn.taps import ExposedModule, MatrixProduct, Point, Tap, rename_axes, tap_point

Mix = Callable[[Tensor], Tensor]


def attend(
    q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None = None, *, scale: float | None = None
) -> tuple[Tensor, Tensor]:
    """Compute softmax(q kᵀ / √D) v as the paper writes it; the reference for every kernel.

    q (B, H, T, D), k (B, G, S, D), v (B, G, S, E), allowed (…, T, S) bool: True where a query may attend; `scale`
    replaces 1/√D. With G < H, consecutive query heads share a key and value head. Returns the output (B, H, T, E) and
    the weights (B, H, T, S), whose rows sum to one. A query that may attend to no key gets zeros, not NaN.

    >>> import torch
    >>> from regard.nn.layout import causal_mask
    >>> x = torch.eye(2)[None, None]
    >>> out, weights = attend(x, x, x, causal_mask(2), scale=1.0)
    >>> weights[0, 0]
    tensor([[1.0000, 0.0000],
            [0.2689, 0.7311]])
    """
    k, v = repeat_heads(k, q.size(1)), repeat_heads(v, q.size(1))
    scale = 1 / math.sqrt(q.size(-1)) if scale is None else scale
    scores = q @ k.mT * scale  # (B, H, T, S)
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -math.inf)  # before softmax: a masked key has weight exactly 0
    weights = masked_softmax(scores, allowed)
    return weights @ v, weights


def masked_softmax(scores: Tensor, allowed: Tensor | None) -> Tensor:
    """Softmax along each row of masked scores; fully masked rows become zero.

    Such rows are replaced before softmax: replacing NaN after it would also hide the NaN of a diverged network.
    """
    if allowed is None:
        return scores.softmax(-1)
    fully_masked = ~allowed.any(-1, keepdim=True)
    return scores.masked_fill(fully_masked, 0.0).softmax(-1).masked_fill(fully_masked, 0.0)


def scaled_dot_product_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, bias: Tensor | None, *, scale: float, dropout: float
) -> Tensor:
    """Compute attention by PyTorch's fused kernel, which never stores the scores; `bias` is added to scaled scores.

    `is_causal` is used for square masks only: with fewer queries than keys it would align them at the first key.
    """
    if cpu.enabled(q.device) and prefers_matmul(q, k, dropout):
        return matmul_attention(q, k, v, mask, bias, scale=scale, dropout=dropout)
    grouped = q.size(1) != k.size(1)
    if mask.is_square_causal and bias is None:
        return F.scaled_dot_product_attention(
            q, k, v, dropout_p=dropout, is_causal=True, scale=scale, enable_gqa=grouped
        )
    attn_mask = mask.allowed
    if bias is not None:
        attn_mask = bias if mask.allowed is None else bias.masked_fill(~mask.allowed, -math.inf)
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=attn_mask, dropout_p=dropout, scale=scale, enable_gqa=grouped
    )


class AttentionKernel(ExposedModule):
    """What multi-head attention computes inside its heads, from queries, keys and values to the heads' outputs.

    The layout has the mask and the positions of the tokens. `bias`, broadcastable to (B, H, T, S), is added to the
    scaled scores, and `mix` maps the weights (B, H, T, S) to something that is added to the output (B, H, T, E); both
    come from the position scheme.
    """

    max_past: int | None = None  # how many tokens before its queries a causal kernel attends to; None: all
    output_product: MatrixProduct | None = None  # the factors of the heads' outputs, if they are one matrix product

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(
        self,
        q: Tensor,  # (B, H, T, D)
        k: Tensor,  # (B, G, S, D)
        v: Tensor,  # (B, G, S, E)
        layout: Layout,
        bias: Tensor | None = None,
        mix: Mix | None = None,
    ) -> Tensor:  # (B, H, T, E)
        raise NotImplementedError

    def prepare(self, layout: Layout, *, in_pairs: bool) -> None:
        """Compute what layers with this kernel share and keep it in the layout, ahead of compiled blocks.

        `in_pairs`: whether the position scheme adds something to each pair of tokens.
        """

    def flops(self, keys: int, heads: int, kv_heads: int, key_width: int, value_width: int) -> int:
        """Return the floating-point operations per query; the widths are those of one head."""
        raise NotImplementedError


class FullAttention(AttentionKernel):
    """The kernel in which every query attends to every key that the mask allows.

    While one of its taps is open, or the position scheme needs the weights, each step is computed on its own, and so
    are scores x with a soft cap c, which become c · tanh(x / c) (Gemma Team 2024).
    """

    key_axis = "key"  # what the columns of scores and weights are
    output_product: MatrixProduct | None = MatrixProduct("weights", "v")

    def __init__(self, scale: float, dropout: float = 0.0, soft_cap: float | None = None) -> None:
        super().__init__(scale)
        self.dropout = dropout
        self.soft_cap = soft_cap
        axes = ("head", "token", "key")
        self.scores = Tap(*axes, description="q · kᵀ: how well each query matches each key")
        self.scaled = Tap(*axes, description=f"scores × {scale:.4g}")
        self.capped: Tap | None = None
        if soft_cap is not None:
            self.capped = Tap(*axes, description=f"{soft_cap:g} · tanh(scaled / {soft_cap:g})")
        self.masked = Tap(*axes, description="−∞ where a query may not attend")
        self.weights = Tap(*axes, description="softmax along each row: attention weights")

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        layout: Layout,
        bias: Tensor | None = None,
        mix: Mix | None = None,
    ) -> Tensor:
        if mix is not None or self.is_stepwise:
            return self._step_by_step(q, k, v, layout, bias, mix)
        dropout = self.dropout if self.training else 0.0
        return scaled_dot_product_attention(q, k, v, layout.mask, bias, scale=self.scale, dropout=dropout)

    def flops(self, keys: int, heads: int, kv_heads: int, key_width: int, value_width: int) -> int:
        return 2 * keys * heads * (key_width + value_width)

    def points(self) -> Iterator[Point]:
        product = MatrixProduct("q", "k", transposed=True) if self.output_product is not None else None
        points = [tap_point("scores", self.scores, product)]
        taps = {"scaled": self.scaled, "capped": self.capped, "masked": self.masked, "weights": self.weights}
        points += [tap_point(name, tap) for name, tap in taps.items() if tap is not None]
        return rename_axes(points, {"key": self.key_axis})

    @property
    def is_stepwise(self) -> bool:
        """Whether each step is computed on its own: a tap is open, or the scores have a cap."""
        if self.soft_cap is not None:
            return True
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
        scores = self.scores(grouped_matmul(q, k.mT))  # (B, H, T, S)
        scaled = self.scaled(scores * self.scale if bias is None else scores * self.scale + bias)
        if self.soft_cap is not None and self.capped is not None:
            scaled = self.capped(self.soft_cap * torch.tanh(scaled / self.soft_cap))
        masked = self.masked(scaled if allowed is None else scaled.masked_fill(~allowed, -math.inf))
        weights = self.weights(masked_softmax(masked, allowed))
        weights = apply_dropout(weights, self.dropout, self.training)
        out = grouped_matmul(weights, v)  # (B, H, T, E)
        return out if mix is None else out + mix(weights)
