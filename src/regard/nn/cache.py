"""What a decoder has already computed, kept so that each new token costs one step.

B batch · H heads · S tokens so far · D head width
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.nn.layout import unless_all


class KeyValues:
    """The keys and values that one attention has seen so far."""

    def __init__(self, keys: Tensor | None = None, values: Tensor | None = None) -> None:
        self.keys = keys  # (B, H, S, D)
        self.values = values

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add those of new tokens; returns all so far."""
        if self.keys is not None and self.values is not None:
            keys, values = torch.cat([self.keys, keys], dim=2), torch.cat([self.values, values], dim=2)
        self.keys, self.values = keys, values
        return keys, values

    def select(self, rows: Tensor) -> "KeyValues":
        if self.keys is None or self.values is None:
            return KeyValues()
        return KeyValues(self.keys.index_select(0, rows), self.values.index_select(0, rows))


class LayerCache:
    """One layer's: of its self-attention, which grows, and of its cross-attention, which is computed once."""

    def __init__(self, own: KeyValues | None = None, cross: KeyValues | None = None) -> None:
        self.own = own or KeyValues()
        self.cross = cross or KeyValues()

    def select(self, rows: Tensor) -> "LayerCache":
        return LayerCache(self.own.select(rows), self.cross.select(rows))


class DecoderCache:
    """A whole decoder's. Decoding adds to it in place; `select` gives a new one."""

    def __init__(self, layers: int | Sequence[LayerCache]) -> None:
        self.layers = [LayerCache() for _ in range(layers)] if isinstance(layers, int) else list(layers)
        self.length = 0
        self.real: Tensor | None = None  # (B, length) True at tokens that are not pads; None: all of them

    def advance(self, ids: Tensor, real: Tensor | None) -> None:
        """Note that the tokens `ids` (B, T) have been read."""
        real = unless_all(real)
        if real is not None or self.real is not None:
            ones = torch.ones_like(ids, dtype=torch.bool)
            then = self.real if self.real is not None else ones.new_ones(len(ids), self.length)
            self.real = torch.cat([then, ones if real is None else real], dim=1)
        self.length += ids.size(1)

    def select(self, rows: Tensor) -> "DecoderCache":
        """The cache of these rows, in this order; a row may come several times, as beams do, or not at all."""
        chosen = DecoderCache([layer.select(rows) for layer in self.layers])
        chosen.length = self.length
        chosen.real = None if self.real is None else self.real.index_select(0, rows)
        return chosen
