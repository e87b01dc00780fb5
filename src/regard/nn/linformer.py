"""Linformer (Wang et al. 2020): keys and values are mixed along the length into k of each before queries meet them.

    softmax(q (E k)ᵀ / √D) (F v),   E, F (k × n) learned

It is attention to k mixtures of tokens, whatever their number, so it costs the length times k. A mixture has tokens of
the whole sentence in it, which is why a decoder cannot use it. For the same reason it has no distance from a query, and
schemes that add something to each pair of tokens (ALiBi, relative) have nothing to add it to. Rotary positions do reach
it: keys turn before they are mixed, and a query's score with a mixture is the mixture of its scores with the tokens.

B batch · H heads · T queries · S keys · D head width · K mixtures (the paper's k) · n the longest sentence
"""

from dataclasses import replace

import torch
from torch import Tensor, nn

from regard.errors import InputError
from regard.nn.attention import FullAttention, Mix
from regard.nn.layout import Layout, Mask
from regard.nn.sparse import pads_last


class LengthProjection(nn.Module):
    """A learned projection along the length: (K, n), or (H, K, n) for heads of their own.

    Its entries are N(0, 1/K) at first, as in the paper's theorem.
    """

    def __init__(self, mixtures: int, length: int, heads: int | None = None) -> None:
        super().__init__()
        shape = (mixtures, length) if heads is None else (heads, mixtures, length)
        self.weight = nn.Parameter(torch.empty(shape).normal_(std=mixtures**-0.5))

    def forward(self, x: Tensor) -> Tensor:
        """x (B, H, S, D) -> (B, H, K, D)"""
        return self.weight[..., : x.size(2)] @ x


class LinformerAttention(FullAttention):
    """Its taps show how queries weigh the mixtures: scores and weights are (B, H, T, K).

    `keys` and `values` may be one and the same, and the same as in other layers.
    """

    def __init__(self, scale: float, keys: LengthProjection, values: LengthProjection, dropout: float = 0.0) -> None:
        super().__init__(scale, dropout)
        self.keys = keys
        self.values = values

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, layout: Layout, bias: Tensor | None = None, mix: Mix | None = None
    ) -> Tensor:
        if bias is not None or mix is not None:
            raise InputError(
                "Linformer looks at mixtures of tokens, which have no distance: set model.positions to sinusoidal, "
                "learned, rotary or none, or model.attention to another."
            )
        if layout.mask.causal or layout.mask.documents is not None:
            raise InputError("Linformer mixes whole rows: it reads one text in a row, and no decoder can use it.")
        k, v = pads_last(layout, k, v)
        key_mask = layout.mask.key_mask
        longest, length = k.size(2), self.keys.weight.size(-1)
        if key_mask is not None:
            ends = key_mask.sum(1)
            longest = int(ends.max())
            pad = (torch.arange(longest, device=k.device) >= ends[:, None])[:, None, :, None]
            k, v = (x[:, :, :longest].masked_fill(pad, 0.0) for x in (k, v))  # a pad adds nothing to a mixture
        if longest > length:
            raise InputError(
                f"The input is {longest} tokens long, but this network's attention learned to mix {length}: "
                f"shorten the input, or train with model.attention.max_length = {longest}."
            )
        mixed = replace(layout, mask=Mask(layout.mask.queries, self.mixtures, device=k.device))
        return super().forward(q, self.keys(k), self.values(v), mixed)

    def flops(self, keys: int, key_width: int, value_width: int) -> int:
        """Each token is mixed in once as a key and a value, and once meets the mixtures as a query."""
        return 2 * super().flops(self.mixtures, key_width, value_width)

    @property
    def mixtures(self) -> int:
        """How many there are."""
        return self.keys.weight.size(-2)
