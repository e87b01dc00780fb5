"""What a decoder has already computed, kept so that each new token costs one step.

Rows of a target may be more than the sentences they translate: with beams, K rows that stand together share one
sentence's memory, and what was computed of it is kept once.

R rows · B sentences · H heads · S tokens so far · D head width
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.nn.layout import none_if_full

ROOM = 16  # tokens by which a cache grows at least, so that it is not copied at each of them


class KeyValueCache:
    """The keys and values that one attention has seen so far, with room for some more."""

    def __init__(self, keys: Tensor | None = None, values: Tensor | None = None) -> None:
        self._keys, self._values = keys, values  # (R, H, S + room, D)
        self.length = 0 if keys is None else keys.size(2)

    @property
    def keys(self) -> Tensor | None:
        """(R, H, S, D)"""
        return None if self._keys is None else self._keys[:, :, : self.length]

    @property
    def values(self) -> Tensor | None:
        """(R, H, S, D)"""
        return None if self._values is None else self._values[:, :, : self.length]

    def append(self, keys: Tensor, values: Tensor, keep: int | None = None) -> tuple[Tensor, Tensor]:
        """Add those of new tokens; returns all so far, or at least the last `keep` of the old and all the new."""
        if self._keys is None or self._values is None:
            self._keys, self._values, self.length = keys, values, keys.size(2)
            return keys, values
        start, self.length = self.length, self.length + keys.size(2)
        if self.length > self._keys.size(2):
            kept = start if keep is None else min(start, keep)
            room = max(ROOM, keys.size(2), (kept + keys.size(2)) // 2)
            old = self._keys[:, :, start - kept : start], self._values[:, :, start - kept : start]
            self._keys, self._values = (_roomier(part, room) for part in old)
            start, self.length = kept, kept + keys.size(2)
        self._keys[:, :, start : self.length] = keys
        self._values[:, :, start : self.length] = values
        return self._keys[:, :, : self.length], self._values[:, :, : self.length]

    def select(self, rows: Tensor) -> "KeyValueCache":
        """Those of these rows, in this order."""
        if self._keys is None or self._values is None:
            return KeyValueCache()
        chosen = KeyValueCache(self._keys.index_select(0, rows), self._values.index_select(0, rows))
        chosen.length = self.length
        return chosen


def _roomier(old: Tensor, room: int) -> Tensor:
    rows, heads, length, width = old.shape
    new = old.new_empty(rows, heads, length + room, width)
    new[:, :, :length] = old
    return new


class LayerCache:
    """One layer's: of its self-attention, which grows, and of its cross-attention, which is computed once."""

    def __init__(self, own: KeyValueCache | None = None, cross: KeyValueCache | None = None) -> None:
        self.own = own or KeyValueCache()
        self.cross = cross or KeyValueCache()

    def select(self, rows: Tensor, sentences: Tensor | None) -> "LayerCache":
        """Its self-attention's rows, and its cross-attention's sentences; None: all, as they are."""
        return LayerCache(self.own.select(rows), self.cross if sentences is None else self.cross.select(sentences))


class DecoderCache:
    """A whole decoder's. Decoding adds to it in place; `select` and `reorder` give a new one."""

    def __init__(self, layers: int | Sequence[LayerCache]) -> None:
        self.layers = [LayerCache() for _ in range(layers)] if isinstance(layers, int) else list(layers)
        self.length = 0
        self.mask: Tensor | None = None  # (R, length) True at tokens that are not pads; None: all of them

    def advance(self, ids: Tensor, mask: Tensor | None) -> None:
        """Note that the tokens `ids` (R, T) have been read."""
        mask = none_if_full(mask)
        if mask is not None or self.mask is not None:
            ones = torch.ones_like(ids, dtype=torch.bool)
            then = self.mask if self.mask is not None else ones.new_ones(len(ids), self.length)
            self.mask = torch.cat([then, ones if mask is None else mask], dim=1)
        self.length += ids.size(1)

    def select(self, rows: Tensor, sentences: Tensor | None = None) -> "DecoderCache":
        """The cache of these rows, in this order; a row may come several times, as beams do, or not at all.

        `sentences` are the rows of the memory that they belong to, where these are not the same.
        """
        return self._chosen(rows, rows if sentences is None else sentences)

    def reorder(self, rows: Tensor) -> "DecoderCache":
        """The cache of these rows, each of which stays with the sentence it has."""
        return self._chosen(rows, None)

    def _chosen(self, rows: Tensor, sentences: Tensor | None) -> "DecoderCache":
        chosen = DecoderCache([layer.select(rows, sentences) for layer in self.layers])
        chosen.length = self.length
        chosen.mask = None if self.mask is None else self.mask.index_select(0, rows)
        return chosen
