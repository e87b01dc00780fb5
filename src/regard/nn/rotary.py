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
        turn = halves if self.halves else neighbours
        return turn(x, self._turns(x, tokens)).to(x.dtype)

    def _turns(self, x: Tensor, tokens: Tokens) -> Tensor:
        """e^(imθ) for every angle (B, 1, T, D/2): the same in all heads, and made once for all layers."""
        key = f"rotary {self.base} {x.size(-1)} {x.dtype}"
        if key not in tokens.plans:
            even = torch.arange(0, x.size(-1), 2, dtype=torch.float64, device=x.device)
            angle = tokens.index[:, None, :, None] * self.base ** (-even / x.size(-1))
            kind = torch.complex128 if x.dtype == torch.float64 else torch.complex64  # 16 bits would be too few
            tokens.plans[key] = torch.polar(torch.ones_like(angle), angle).to(kind)
        return cast(Tensor, tokens.plans[key])


def neighbours(x: Tensor, turns: Tensor) -> Tensor:
    """Each (x₂ᵢ, x₂ᵢ₊₁) as a complex number, which on a CPU is several times faster than picking every other entry."""
    points = torch.view_as_complex(x.to(turns.real.dtype).unflatten(-1, (-1, 2)).contiguous())  # (B, H, T, D/2)
    return torch.view_as_real(points * turns).flatten(-2)


def halves(x: Tensor, turns: Tensor) -> Tensor:
    """Each (xᵢ, xᵢ₊D/₂), which lie too far apart for that."""
    (a, b), cosine, sine = x.chunk(2, dim=-1), turns.real, turns.imag  # (B, H, T, D/2)
    return torch.cat([a * cosine - b * sine, a * sine + b * cosine], dim=-1)
