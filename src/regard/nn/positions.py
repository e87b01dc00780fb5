"""Positions: how order reaches a network whose attention sees a set (§3.5).

A scheme can act in four ways, each a hook that does nothing unless the scheme overrides it:

    embed    adds to the embeddings             sinusoidal, learned, syntax
    rotate   turns queries and keys             rotary
    bias     adds to the scaled scores          relative keys, ALiBi, syntax
    mix      adds to the outputs of the heads   relative values, syntax

The first acts once, at the bottom of a stack; the others act in each self-attention, on the object that `for_layer`
gives it, which may hold parameters of its own. Blocks call the hooks and know no scheme by name. `Tokens` say where
each token stands in its sentence, and whatever facts the network was given about it; a `Layout` has the tokens of both
sides and the distances between them.

B batch · H heads · T queries · S keys · D head width · C model width
"""

import math

import torch
from torch import Tensor, nn

from regard.errors import InputError
from regard.nn.layout import Layout, Tokens
from regard.nn.taps import Tap


class Positions(nn.Module):
    """Every hook does nothing: this is also the scheme "none"."""

    biases = False  # whether `bias` adds something to the scaled scores
    mixes = False  # whether `mix` needs the weights, which the fused kernel never writes down

    def embed(self, x: Tensor, tokens: Tokens) -> Tensor:
        """Embeddings (B, T, C) with order added."""
        return x

    def for_layer(self, heads: int, key_width: int, value_width: int, scale: float) -> "Positions":
        """The object whose remaining hooks one self-attention calls; `scale` is what its scores are multiplied by."""
        return Positions()

    def rotate(self, x: Tensor, tokens: Tokens) -> Tensor:
        """Queries or keys (B, H, T, D), turned by their position."""
        return x

    def bias(self, q: Tensor, layout: Layout) -> Tensor | None:
        """What to add to the scaled scores (B, H, T, S)."""
        return None

    def flops(self) -> int:
        """Floating-point operations per query, in matrix products of the hooks for one layer."""
        return 0

    def mix(self, weights: Tensor, layout: Layout) -> Tensor:
        """What to add to the heads' outputs (B, H, T, D), given the weights (B, H, T, S); called if `mixes`."""
        raise NotImplementedError


class SinusoidalPositions(Positions):
    """PE(pos, 2i) = sin(pos / 10000^(2i/C)), PE(pos, 2i+1) = cos(pos / 10000^(2i/C)), for any length.

    With `halves` all sines come first, then all cosines, as some trained models have it.
    """

    def __init__(self, width: int, halves: bool = False) -> None:
        super().__init__()
        self.width = width
        self.halves = halves
        self.vectors = Tap()
        self._table = torch.empty(0, width)  # grows with the longest input; holds nothing that must be saved

    def embed(self, x: Tensor, tokens: Tokens) -> Tensor:
        longest = int(tokens.index.max()) + 1
        if len(self._table) < longest or self._table.device != x.device or self._table.dtype != x.dtype:
            with torch.inference_mode(False):  # a table made while decoding must serve training too
                length = len(self._table) if longest <= len(self._table) else max(64, 2 * longest)
                self._table = sinusoidal_table(length, self.width, self.halves).to(x)
        return x + self.vectors(self._table[tokens.index])


def sinusoidal_table(length: int, width: int, halves: bool = False) -> Tensor:
    """The table of sinusoidal positions (length, width), in double precision.

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
    """One learned vector per position. There is none past the last, and the error says so."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.vectors = Tap()
        self.weight = nn.Parameter(torch.empty(length, width).normal_(std=width**-0.5))

    def embed(self, x: Tensor, tokens: Tokens) -> Tensor:
        longest, length = int(tokens.index.max()) + 1, len(self.weight)
        if longest > length:
            raise InputError(
                f"The input is {longest} tokens long, but this network learned {length} positions: "
                f"shorten the input, or train with model.positions.max_length = {longest}."
            )
        return x + self.vectors(self.weight[tokens.index])
