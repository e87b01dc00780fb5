"""Rotary positions (Su et al. 2021): queries and keys turn with their position, so that products know distances.

A query or key of width D is D/2 points of the plane. At position m the i-th turns by the angle m·θᵢ, θᵢ = base^(−2i/D).
Two points turned by m and n have the product that they have when turned by 0 and n − m.

B batch · H heads · T tokens · D width of a query or key
"""

from typing import cast

import torch
from torch import Tensor

from regard.nn.layout import Tokens
from regard.nn.positions import Positions


class RotaryPositions(Positions):
    """Turns each pair of entries of queries and keys; the values stay as they are.

    The pairs are neighbours, (x₀, x₁), (x₂, x₃), …, as the paper has it and GPT-J (`rotate_every_two` in transformers).
    With `halves` they are (xᵢ, xᵢ₊D/₂), as in LLaMA (`rotate_half`).
    """

    def __init__(self, base: float = 10_000.0, halves: bool = False) -> None:
        super().__init__()
        self.base = base
        self.halves = halves

    def for_layer(self, heads: int, key_width: int, value_width: int, scale: float) -> Positions:
        return RotaryPositions(self.base, self.halves)

    def rotate(self, x: Tensor, tokens: Tokens) -> Tensor:
        cosine, sine = self._turns(x, tokens)
        a, b = x.chunk(2, dim=-1) if self.halves else (x[..., 0::2], x[..., 1::2])  # (B, H, T, D/2)
        turned = a * cosine - b * sine, a * sine + b * cosine
        return torch.cat(turned, dim=-1) if self.halves else torch.stack(turned, dim=-1).flatten(-2)

    def _turns(self, x: Tensor, tokens: Tokens) -> tuple[Tensor, Tensor]:
        """Cosine and sine of every angle, each (B, 1, T, D/2): the same in all heads, and made once for all layers."""
        key = f"rotary {self.base} {x.size(-1)} {x.dtype}"
        if key not in tokens.plans:
            even = torch.arange(0, x.size(-1), 2, dtype=torch.float64, device=x.device)
            frequency = self.base ** (-even / x.size(-1))
            angle = tokens.index[:, None, :, None] * frequency
            tokens.plans[key] = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        return cast(tuple[Tensor, Tensor], tokens.plans[key])
