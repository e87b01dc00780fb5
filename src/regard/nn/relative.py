"""Relative positions (Shaw et al. 2018): a learned vector for each distance, added to keys and to values.

    e_ij = q_i · (k_j + a^K_ij) · scale,    z_i = Σ_j w_ij (v_j + a^V_ij),    a_ij = table[clip(j − i, −c, c)]

There are only R = 2c + 1 different vectors. So each query is multiplied by each of them once, and each key takes the
product of its distance; the weights of all keys at one distance are summed before they are multiplied by its vector.
Nothing of size T·S·D is ever stored.

B batch · H heads · T queries · S keys · D width of a query or key · E width of a value · R distances
"""

from typing import cast

import torch
from torch import Tensor, nn

from regard.nn.layout import Layout
from regard.nn.positions import Positions


class RelativePositions(Positions):
    """Relative positions with distances clipped to ±`max_distance`; `per_head`: each head has its own vectors."""

    def __init__(self, max_distance: int, per_head: bool = False) -> None:
        super().__init__()
        self.max_distance = max_distance
        self.per_head = per_head

    def for_layer(self, heads: int, key_width: int, value_width: int, scale: float) -> Positions:
        return RelativeVectors(self.max_distance, self.per_head, heads, key_width, value_width, scale)


class RelativeVectors(Positions):
    """The vectors of one layer, for keys (R, D) or (H, R, D) and for values (R, E) or (H, R, E)."""

    biases = mixes = True

    def __init__(
        self, max_distance: int, per_head: bool, heads: int, key_width: int, value_width: int, scale: float
    ) -> None:
        super().__init__()
        self.max_distance = max_distance
        self.heads = heads
        self.scale = scale
        shape = (heads, 2 * max_distance + 1) if per_head else (2 * max_distance + 1,)
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
        return 2 * self.heads * (2 * self.max_distance + 1) * (self.keys.size(-1) + self.values.size(-1))

    def _rows(self, layout: Layout) -> Tensor:
        """Return the row of the tables for each pair of tokens (B, 1, T, S); computed once for all layers."""
        key = f"relative {self.max_distance}"
        if key not in layout.memo:
            layout.memo[key] = layout.distance.clamp(-self.max_distance, self.max_distance) + self.max_distance
        return cast(Tensor, layout.memo[key])
