"""Rotary positions (Su et al. 2021): queries and keys are rotated by their position, so scores depend on distances.

A query or key of width D is D/2 points of the plane. At position m point i is rotated by the angle m·θᵢ with
θᵢ = base^(−2i/D). The dot product of points rotated by m and n is that of points rotated by 0 and n − m.

B batch · H heads · T tokens · D width of a query or key
"""

from typing import cast

import torch
from torch import Tensor

from regard.nn.layout import Tokens
from regard.nn.positions import Positions


class RotaryPositions(Positions):
    """Rotates each pair of entries of queries and keys; values stay as they are.

    The pairs are adjacent, (x₀, x₁), (x₂, x₃), …, as in the paper and GPT-J (`rotate_every_two` in transformers). With
    `halves` they are (xᵢ, xᵢ₊D/₂), as in LLaMA (`rotate_half`).
    """

    def __init__(self, base: float = 10_000.0, halves: bool = False) -> None:
        super().__init__()
        self.base = base
        self.halves = halves

    def for_layer(self, heads: int, key_width: int, value_width: int, scale: float) -> Positions:
        return RotaryPositions(self.base, self.halves)

    def rotate(self, x: Tensor, tokens: Tokens) -> Tensor:
        rotate = rotate_halves if self.halves else rotate_pairs
        return rotate(x, self._rotations(x, tokens)).to(x.dtype)

    def _rotations(self, x: Tensor, tokens: Tokens) -> Tensor:
        """Return e^(imθ) for every angle (B, 1, T, D/2): the same in all heads, and computed once for all layers."""
        key = f"rotary {self.base} {x.size(-1)} {x.dtype}"
        if key not in tokens.memo:
            even = torch.arange(0, x.size(-1), 2, dtype=torch.float64, device=x.device)
            angle = tokens.position_ids[:, None, :, None] * self.base ** (-even / x.size(-1))
            dtype = torch.complex128 if x.dtype == torch.float64 else torch.complex64  # 16 bits would be too few
            tokens.memo[key] = torch.polar(torch.ones_like(angle), angle).to(dtype)
        return cast(Tensor, tokens.memo[key])


def rotate_pairs(x: Tensor, rotations: Tensor) -> Tensor:
    """Rotate each (x₂ᵢ, x₂ᵢ₊₁) as a complex number: on a CPU several times faster than strided indexing."""
    points = torch.view_as_complex(x.to(rotations.real.dtype).unflatten(-1, (-1, 2)).contiguous())  # (B, H, T, D/2)
    return torch.view_as_real(points * rotations).flatten(-2)


def rotate_halves(x: Tensor, rotations: Tensor) -> Tensor:
    """Rotate each (xᵢ, xᵢ₊D/₂)."""
    (a, b), cosine, sine = x.chunk(2, dim=-1), rotations.real, rotations.imag  # (B, H, T, D/2)
    return torch.cat([a * cosine - b * sine, a * sine + b * cosine], dim=-1)
