"""Rotary positions (Su et al. 2021), and the scalings of their frequencies that let a network read longer texts.

A network has learned angles up to those at the end of its training texts. A scaling lowers the frequencies, so that a
longer text has the angles of a shorter one.

B batch · H heads · T tokens · D width of a query or key
"""

import math
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from regard.nn.layout import Layout, Tokens
from regard.nn.positions import Positions


@dataclass(frozen=True)
class FrequencyScaling:
    """Base of all scalings, and itself the scaling that changes nothing: θᵢ = base^(−2i/D)."""

    @property
    def magnitude(self) -> float:
        """What rotated queries and keys are multiplied by."""
        return 1.0

    def frequencies(self, key_width: int, base: float) -> Tensor:
        """Return the angles per position (D/2,), in double precision.

        >>> FrequencyScaling().frequencies(4, 10_000)
        tensor([1.0000, 0.0100], dtype=torch.float64)
        """
        even = torch.arange(0, key_width, 2, dtype=torch.float64, device="cpu")
        return base ** (-even / key_width)


@dataclass(frozen=True)
class LinearScaling(FrequencyScaling):
    """Position interpolation (Chen et al. 2023): θᵢ / factor."""

    factor: float

    def frequencies(self, key_width: int, base: float) -> Tensor:
        return super().frequencies(key_width, base) / self.factor


@dataclass(frozen=True)
class NtkScaling(FrequencyScaling):
    """The base is multiplied by factor^(D/(D−2)): the lowest frequency is divided by the factor, the highest kept."""

    factor: float

    def base(self, key_width: int, base: float) -> float:
        """Return the raised base."""
        return base * self.factor ** (key_width / (key_width - 2)) if key_width > 2 else base  # a single one is kept

    def frequencies(self, key_width: int, base: float) -> Tensor:
        return super().frequencies(key_width, self.base(key_width, base))


@dataclass(frozen=True)
class YarnScaling(FrequencyScaling):
    """YaRN (Peng et al. 2023): low frequencies are divided by the factor, high ones kept, those between interpolated.

    High and low are counted in turns over the original length: more than `fast_turns`, fewer than `slow_turns`. Queries
    and keys are multiplied by `attention_factor`, 0.1 · ln(factor) + 1 by default.
    """

    factor: float
    original_length: int
    fast_turns: float = 32.0
    slow_turns: float = 1.0
    attention_factor: float | None = None

    @property
    def magnitude(self) -> float:
        return 0.1 * math.log(self.factor) + 1.0 if self.attention_factor is None else self.attention_factor

    def frequencies(self, key_width: int, base: float) -> Tensor:
        kept = super().frequencies(key_width, base)

        def index(turns: float) -> float:
            """Return the i at which θᵢ makes this many turns, as a fraction."""
            return key_width * math.log(self.original_length / (turns * 2 * math.pi)) / (2 * math.log(base))

        low, high = max(math.floor(index(self.fast_turns)), 0), min(math.ceil(index(self.slow_turns)), key_width - 1)
        steps = torch.arange(len(kept), dtype=torch.float64, device="cpu") - low
        ramp = (steps / (high - low if high != low else 0.001)).clamp(0, 1)
        return torch.lerp(kept, kept / self.factor, ramp)


@dataclass(frozen=True)
class Llama3Scaling(FrequencyScaling):
    """Llama 3.1 (Grattafiori et al. 2024): as YaRN, but interpolated in the number of turns, and scores are unchanged.

    Frequencies with more than `high_turns` over the original length are kept, those with fewer than `low_turns` are
    divided by the factor.
    """

    factor: float
    original_length: int
    low_turns: float = 1.0
    high_turns: float = 4.0

    def frequencies(self, key_width: int, base: float) -> Tensor:
        kept = super().frequencies(key_width, base)
        turns = self.original_length * kept / (2 * math.pi)
        ramp = ((self.high_turns - turns) / (self.high_turns - self.low_turns)).clamp(0, 1)
        return torch.lerp(kept, kept / self.factor, ramp)


class RotaryPositions(Positions):
    """Rotary positions (Su et al. 2021): queries and keys are rotated by their position; values stay as they are.

    A query or key of width D is D/2 points of the plane. At position m point i is rotated by the angle m·θᵢ with
    θᵢ = base^(−2i/D). The dot product of points rotated by m and n is that of points rotated by 0 and n − m, so scores
    depend on distances.

    The pairs are adjacent, (x₀, x₁), (x₂, x₃), …, as in the paper and GPT-J (`rotate_every_two` in transformers). With
    `halves` they are (xᵢ, xᵢ₊D/₂), as in LLaMA (`rotate_half`). With `rotated`, only the first units of a head are
    rotated, with θᵢ as if there were no others (GPT-NeoX). Layers with sliding windows may have a base of their own.
    """

    def __init__(
        self,
        base: float = 10_000.0,
        halves: bool = False,
        key_width: int = 0,
        scaling: FrequencyScaling | None = None,
        *,
        rotated: int | None = None,
        window_base: float | None = None,
    ) -> None:
        super().__init__()
        self.rotated = rotated
        self.window_base = window_base
        self.base = base
        self.halves = halves
        self.key_width = key_width
        self.scaling = scaling or FrequencyScaling()
        self._name = f"rotary {base} {self.scaling}"  # made here: a compiled layer cannot print a number that differs

    def for_layer(self, heads: int, key_width: int, value_width: int, scale: float) -> Positions:
        return RotaryPositions(self.base, self.halves, key_width, self.scaling, rotated=self.rotated)

    def in_windows(self) -> Positions:
        if self.window_base is None:
            return self
        return RotaryPositions(self.window_base, self.halves, self.key_width, self.scaling, rotated=self.rotated)

    def prepare(self, x: Tensor, layout: Layout) -> None:
        self._rotations(x[..., : self.rotated or self.key_width], layout.queries)

    def rotate(self, x: Tensor, tokens: Tokens) -> Tensor:
        rotate = rotate_halves if self.halves else rotate_pairs
        if self.rotated is None or self.rotated == x.size(-1):
            return rotate(x, self._rotations(x, tokens)).to(x.dtype)
        x, kept = x[..., : self.rotated], x[..., self.rotated :]
        return torch.cat([rotate(x, self._rotations(x, tokens)).to(x.dtype), kept], dim=-1)

    def _rotations(self, x: Tensor, tokens: Tokens) -> Tensor:
        """Return e^(imθ) for every angle (B, 1, T, D/2): the same in all heads, and computed once for all layers."""
        key = f"{self._name} {x.size(-1)} {x.dtype == torch.float64}"
        if key not in tokens.memo:
            position_ids = tokens.position_ids
            if x.device.type == "mps":  # has no float64
                position_ids = position_ids.cpu()
            frequencies = self.scaling.frequencies(x.size(-1), self.base).to(position_ids.device)
            angle = position_ids[:, None, :, None] * frequencies
            dtype = torch.complex128 if x.dtype == torch.float64 else torch.complex64  # 16 bits would be too few
            tokens.memo[key] = torch.polar(torch.full_like(angle, self.scaling.magnitude), angle).to(x.device, dtype)
        return cast(Tensor, tokens.memo[key])


def rotate_pairs(x: Tensor, rotations: Tensor) -> Tensor:
    """Rotate each (x₂ᵢ, x₂ᵢ₊₁) as a complex number: on a CPU several times faster than strided indexing."""
    points = torch.view_as_complex(x.to(rotations.real.dtype).unflatten(-1, (-1, 2)).contiguous())  # (B, H, T, D/2)
    return torch.view_as_real(points * rotations).flatten(-2)


def rotate_halves(x: Tensor, rotations: Tensor) -> Tensor:
    """Rotate each (xᵢ, xᵢ₊D/₂)."""
    (a, b), cosine, sine = x.chunk(2, dim=-1), rotations.real, rotations.imag  # (B, H, T, D/2)
    return torch.cat([a * cosine - b * sine, a * sine + b * cosine], dim=-1)
