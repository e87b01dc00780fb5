"""Positions (§3.5): how the order of tokens reaches a network whose attention is independent of order.

A position scheme has four hooks, each of which does nothing unless the scheme overrides it:

    embed    adds to the embeddings             sinusoidal, learned, syntax
    rotate   rotates queries and keys           rotary
    bias     adds to the scaled scores          relative, ALiBi, syntax
    mix      adds to the outputs of the heads   relative, syntax

`embed` is called once per stack; the others are called in each self-attention layer, on the object that `for_layer`
returned for it, which may have parameters of its own. `Tokens` has the position of each token and any features that the
network was given; a `Layout` has queries, keys and the distances between them.

B batch · H heads · T queries · S keys · D head width · C model width
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from regard.errors import InputError
from regard.nn.exposed import ExposedModule, Matrix, Point, tap_point
from regard.nn.layout import Layout, Tokens
from regard.nn.taps import Tap


class Positions(ExposedModule):
    """Base of all schemes, and itself the scheme "none": every hook does nothing."""

    biases = False  # whether `bias` adds to the scaled scores
    mixes = False  # whether `mix` is called; it needs the attention weights, which fused kernels do not store

    def embed(self, x: Tensor, tokens: Tokens) -> Tensor:
        """Return embeddings (B, T, C) with positions added."""
        return x

    def for_layer(self, heads: int, key_width: int, value_width: int, scale: float) -> "Positions":
        """Return the object for the other hooks in one self-attention layer, whose scores are multiplied by `scale`."""
        return Positions()

    def rotate(self, x: Tensor, tokens: Tokens) -> Tensor:
        """Return queries or keys (B, H, T, D), rotated by their positions."""
        return x

    def bias(self, q: Tensor, layout: Layout) -> Tensor | None:
        """Return what to add to the scaled scores (B, H, T, S)."""
        return None

    def mix(self, weights: Tensor, layout: Layout) -> Tensor:
        """Return what to add to the heads' outputs (B, H, T, D), given the weights (B, H, T, S); called if `mixes`."""
        raise NotImplementedError

    def flops(self) -> int:
        """Return the floating-point operations per query in matrix products of one layer's hooks."""
        return 0


class SinusoidalPositions(Positions):
    """PE(pos, 2i) = sin(pos / 10000^(2i/C)), PE(pos, 2i+1) = cos(pos / 10000^(2i/C)), for any length.

    With `halves` all sines come first, then all cosines, as in Marian.
    """

    def __init__(self, width: int, halves: bool = False) -> None:
        super().__init__()
        self.width = width
        self.halves = halves
        self.vectors = Tap("token", "unit", description="vector of each position")
        self._table = torch.empty(0, width)  # grows with the longest input; not saved

    def embed(self, x: Tensor, tokens: Tokens) -> Tensor:
        longest = int(tokens.position_ids.max()) + 1
        if len(self._table) < longest or self._table.device != x.device or self._table.dtype != x.dtype:
            with torch.inference_mode(False):  # a table made during inference must serve training too
                length = len(self._table) if longest <= len(self._table) else max(64, 2 * longest)
                self._table = sinusoidal_table(length, self.width, self.halves).to(x)
        return x + self.vectors(self._table[tokens.position_ids])

    def points(self) -> Iterator[Point]:
        yield tap_point("positions", self.vectors)


def sinusoidal_table(length: int, width: int, halves: bool = False) -> Tensor:
    """Return the table of sinusoidal positions (length, width), in double precision.

    >>> sinusoidal_table(2, 4).float()
    tensor([[0.0000, 1.0000, 0.0000, 1.0000],
            [0.8415, 0.5403, 0.0100, 0.9999]])
    """
    position = torch.arange(length, dtype=torch.float64, device="cpu")[:, None]
    frequency = torch.exp(-math.log(10_000) * torch.arange(0, width, 2, dtype=torch.float64, device="cpu") / width)
    angle = position * frequency  # (length, ⌈width / 2⌉)
    sines, cosines = angle.sin(), angle.cos()
    if halves:
        return torch.cat([sines, cosines], dim=1)[:, :width]
    return torch.stack([sines, cosines], dim=2).flatten(1)[:, :width]


class LearnedPositions(Positions):
    """One learned vector per position; longer inputs are an error."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.vectors = Tap("token", "unit", description="vector of each position")
        self.weight = nn.Parameter(torch.empty(length, width).normal_(std=width**-0.5))

    def embed(self, x: Tensor, tokens: Tokens) -> Tensor:
        longest, length = int(tokens.position_ids.max()) + 1, len(self.weight)
        if longest > length:
            raise InputError(
                f"The input is {longest} tokens long, but this network learned {length} positions: "
                f"shorten the input, or train with model.positions.max_length = {longest}."
            )
        return x + self.vectors(self.weight[tokens.position_ids])

    def points(self) -> Iterator[Point]:
        yield tap_point("positions", self.vectors)

    def matrices(self) -> Iterator[Matrix]:
        yield Matrix("positions_weight", ("position", "unit"), lambda: self.weight, role="embedding")
