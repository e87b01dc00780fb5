"""Relative positions (Shaw et al. 2018): a learned vector for each distance, met by queries and added to values.

    e_ij = q_i · (k_j + a^K_ij) · scale,    z_i = Σ_j w_ij (v_j + a^V_ij),    a_ij = table[clip(j − i, −c, c)]

There are only R = 2c + 1 different vectors. So a query meets each of them once, and each key picks the product of its
distance; and the weights of all keys at one distance are summed before its vector is added. Nothing of size T·S·D is
ever written down.

B batch · H heads · T queries · S keys · D width of a query or key · E width of a value · R distances
"""

from typing import cast

import torch
from torch import Tensor, nn

from regard.nn.layout import Layout
from regard.nn.positions import Positions


class RelativePositions(Positions):
    """What each layer gets: how far distances are told apart, and whether heads have vectors of their own."""

    def __init__(self, clip: int, per_head: bool = False) -> None:
        super().__init__()
        self.clip = clip
        self.per_head = per_head

    def for_layer(self, heads: int, key_width: int, value_width: int, scale: float) -> Positions:
        return RelativeVectors(self.clip, self.per_head, heads, key_width, value_width, scale)


class RelativeVectors(Positions):
    """The vectors of one layer, for keys (R, D) or (H, R, D) and for values (R, E) or (H, R, E)."""

    biases = mixes = True

    def __init__(self, clip: int, per_head: bool, heads: int, key_width: int, value_width: int, scale: float) -> None:
        super().__init__()
        self.clip = clip
        self.heads = heads
        self.scale = scale
        shape = (heads, 2 * clip + 1) if per_head else (2 * clip + 1,)
        self.keys = nn.Parameter(torch.empty(*shape, key_width).normal_(std=key_width**-0.5))
        self.values = nn.Parameter(torch.empty(*shape, value_width).normal_(std=value_width**-0.5))

    def bias(self, q: Tensor, layout: Layout) -> Tensor:
        products = q @ self.keys.mT * self.scale  # (B, H, T, R)
        rows = self._rows(layout)
        return products.gather(-1, rows.expand(*products.shape[:-1], rows.size(-1)))  # (B, H, T, S)

    def mix(self, weights: Tensor, layout: Layout) -> Tensor:
        sums = weights.new_zeros(*weights.shape[:-1], self.values.size(-2))  # (B, H, T, R)
        sums = sums.scatter_add(-1, self._rows(layout).expand_as(weights), weights)
        return sums @ self.values  # (B, H, T, E)

    def flops(self) -> int:
        return 2 * self.heads * (2 * self.clip + 1) * (self.keys.size(-1) + self.values.size(-1))

    def _rows(self, layout: Layout) -> Tensor:
        """Which row of the tables each pair of tokens asks for (B, 1, T, S); made once for all layers."""
        key = f"relative {self.clip}"
        if key not in layout.plans:
            layout.plans[key] = layout.distance.clamp(-self.clip, self.clip) + self.clip
        return cast(Tensor, layout.plans[key])
