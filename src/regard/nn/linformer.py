"""Linformer (Wang et al. 2020): keys and values are projected along the length to k of each.

    softmax(q (E k)ᵀ / √D) (F v),   E, F (k × n) learned

This is attention to k mixtures of tokens, so it costs the length times k. A mixture has tokens of the whole sequence in
it, so a decoder cannot use it. For the same reason it has no distance from a query, and schemes that add something to
each pair of tokens (ALiBi, relative) do not apply. Rotary positions do: keys are rotated before they are mixed, and the
score of a query with a mixture is the mixture of its scores with the tokens.

B batch · H heads · G key and value heads · T queries · S keys · D head width · K mixtures (the paper's k)
n maximum length
"""

from dataclasses import replace

import torch
from torch import Tensor, nn

from regard.errors import InputError
from regard.nn.attention import FullAttention, Mix
from regard.nn.functional import random_normal
from regard.nn.layout import Layout
from regard.nn.sparse import ExplicitMask, move_padding_last, padding_last_order, row_lengths


class LengthProjection(nn.Module):
    """A learned projection along the length: (K, n), or (G, K, n) with one for each key and value head.

    Entries are initialized to N(0, 1/K), as in the paper's theorem.
    """

    def __init__(self, mixtures: int, length: int, heads: int | None = None) -> None:
        super().__init__()
        shape = (mixtures, length) if heads is None else (heads, mixtures, length)
        self.weight = nn.Parameter(random_normal(*shape, std=mixtures**-0.5))

    def forward(self, x: Tensor) -> Tensor:
        """x (B, G, S, D) -> (B, G, K, D)"""
        return self.weight[..., : x.size(2)] @ x


class LinformerAttention(FullAttention):
    """Queries attend to mixtures of keys and values; scores and weights are (B, H, T, K).

    `keys` and `values` may be the same projection, and shared with other layers.
    """

    key_axis = "mixture"
    output_product = None

    def __init__(self, scale: float, keys: LengthProjection, values: LengthProjection, dropout: float = 0.0) -> None:
        super().__init__(scale, dropout)
        self.keys = keys
        self.values = values

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, layout: Layout, bias: Tensor | None = None, mix: Mix | None = None
    ) -> Tensor:
        if bias is not None or mix is not None:
            raise InputError(
                "Linformer attends to mixtures of tokens, which have no distance: set model.positions to sinusoidal, "
                "learned, rotary or none, or model.attention to another kind."
            )
        if layout.mask.causal or layout.mask.documents is not None:
            raise InputError(
                "Linformer attention mixes whole rows: it needs one text per row and cannot be used in a decoder."
            )
        k, v = move_padding_last(layout, k, v)
        padding, length = layout.mask.padding, self.keys.weight.size(-1)
        if k.size(2) > length and (longest := longest_row(layout)) > length:
            raise InputError(
                f"The input is {longest} tokens long, but this network's Linformer attention has a limit of {length}: "
                f"shorten the input, or train with model.attention.max_length = {longest}."
            )
        k, v = k[:, :, :length], v[:, :, :length]
        if padding is not None:
            beyond = torch.arange(k.size(2), device=k.device) >= padding.tokens.sum(1)[:, None]
            k, v = (x.masked_fill(beyond[:, None, :, None], 0.0) for x in (k, v))  # padding adds nothing to a mixture
        mixed = replace(layout, mask=ExplicitMask(layout.mask.queries, self.mixtures, device=k.device))
        return super().forward(q, self.keys(k), self.values(v), mixed)

    def prepare(self, layout: Layout, *, in_pairs: bool) -> None:
        padding_last_order(layout)
        longest_row(layout)

    def flops(self, keys: int, heads: int, kv_heads: int, key_width: int, value_width: int) -> int:
        """Return the floating-point operations per token: it is mixed in as key and value, and attends as query."""
        mixing = 2 * self.mixtures * kv_heads * (key_width + value_width)
        return mixing + super().flops(self.mixtures, heads, kv_heads, key_width, value_width)

    @property
    def mixtures(self) -> int:
        """Number of mixtures."""
        return self.keys.weight.size(-2)


def longest_row(layout: Layout) -> int:
    """Return the number of tokens of the longest row; computed on the CPU, once for all layers."""
    memo = layout.keys.memo
    if "longest row" not in memo:
        lengths = row_lengths(layout)
        memo["longest row"] = layout.mask.keys if lengths is None else int(lengths.max())
    longest: int = memo["longest row"]
    return longest
