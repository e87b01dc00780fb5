"""KV cache: keys and values that a decoder has already computed, so that each new token costs one step.

There may be more target rows than source sentences: with beams, K consecutive rows share the memory of one sentence,
whose keys and values are kept once. With grouped-query attention only the G key and value heads are kept.

R target rows · B sentences · G key and value heads · S tokens so far · D head width
"""

from collections.abc import Sequence

import torch
from torch import Tensor

MIN_GROWTH = 16  # tokens by which a cache grows at least, so that it is not copied at every step
MAX_DROPPED = 16  # tokens that can be dropped at once


class KeyValueCache:
    """Keys and values of one attention layer, with spare capacity."""

    def __init__(self, keys: Tensor | None = None, values: Tensor | None = None, length: int = 0) -> None:
        self._keys, self._values = keys, values  # (R, G, S + spare, D)
        self.length = length

    @property
    def keys(self) -> Tensor | None:
        """(R, G, S, D)"""
        return None if self._keys is None else self._keys[:, :, : self.length]

    @property
    def values(self) -> Tensor | None:
        """(R, G, S, D)"""
        return None if self._values is None else self._values[:, :, : self.length]

    def append(self, keys: Tensor, values: Tensor, max_past: int | None = None) -> tuple[Tensor, Tensor]:
        """Add new tokens and return all tokens so far; with `max_past`, older tokens than that may be dropped."""
        if self._keys is None or self._values is None:
            self._keys, self._values, self.length = keys, values, keys.size(2)
            return keys, values
        start, self.length = self.length, self.length + keys.size(2)
        if self.length > self._keys.size(2):
            kept = start if max_past is None else min(start, max_past + MAX_DROPPED)
            spare = max(MIN_GROWTH, keys.size(2), (kept + keys.size(2)) // 2)
            old = self._keys[:, :, start - kept : start], self._values[:, :, start - kept : start]
            self._keys, self._values = (_with_spare(part, spare) for part in old)
            start, self.length = kept, kept + keys.size(2)
        self._keys[:, :, start : self.length] = keys
        self._values[:, :, start : self.length] = values
        return self._keys[:, :, : self.length], self._values[:, :, : self.length]

    def drop_last(self, count: int) -> None:
        """Forget the last tokens."""
        self.length -= count

    def select(self, rows: Tensor) -> "KeyValueCache":
        """Return the cache of these rows, in this order."""
        if self._keys is None or self._values is None:
            return KeyValueCache()
        return KeyValueCache(self._keys.index_select(0, rows), self._values.index_select(0, rows), self.length)


def _with_spare(old: Tensor, spare: int) -> Tensor:
    rows, heads, length, width = old.shape
    new = old.new_empty(rows, heads, length + spare, width)
    new[:, :, :length] = old
    return new


class LayerCache:
    """Cache of one decoder layer: `own` (self-attention) grows, `cross` (cross-attention) is computed once."""

    def __init__(self, own: KeyValueCache | None = None, cross: KeyValueCache | None = None) -> None:
        self.own = own or KeyValueCache()
        self.cross = cross or KeyValueCache()

    def select(self, rows: Tensor, sentences: Tensor | None) -> "LayerCache":
        """Return the rows of self-attention and the sentences of cross-attention; None: all sentences."""
        return LayerCache(self.own.select(rows), self.cross if sentences is None else self.cross.select(sentences))


class DecoderCache:
    """Cache of a whole decoder. Decoding adds to it in place; `select` and `reorder` return a new one."""

    def __init__(self, layers: int | Sequence[LayerCache]) -> None:
        self.layers = [LayerCache() for _ in range(layers)] if isinstance(layers, int) else list(layers)
        self.length = 0
        self.mask: Tensor | None = None  # (R, length) True at tokens, False at padding; None: no padding

    def advance(self, ids: Tensor, mask: Tensor | None) -> None:
        """Count the tokens `ids` (R, T), whose keys and values the layers have added; `mask` None: no padding."""
        if mask is not None or self.mask is not None:
            ones = torch.ones_like(ids, dtype=torch.bool)
            past = self.mask if self.mask is not None else ones.new_ones(len(ids), self.length)
            self.mask = torch.cat([past, ones if mask is None else mask], dim=1)
        self.length += ids.size(1)

    def drop_last(self, count: int) -> None:
        """Forget the last tokens, at most `MAX_DROPPED`, such as rejected drafts."""
        for layer in self.layers:
            layer.own.drop_last(count)
        self.length -= count
        if self.mask is not None:
            self.mask = self.mask[:, : self.length]

    def last_tokens(self, count: int) -> list[tuple[Tensor, Tensor]]:
        """Return a copy of the keys and values of the last tokens, by layer."""
        parts = []
        for layer in self.layers:
            keys, values = layer.own.keys, layer.own.values
            assert keys is not None  # the last tokens have been processed
            assert values is not None
            parts.append((keys[:, :, -count:].clone(), values[:, :, -count:].clone()))
        return parts

    def restore(self, blocks: Sequence[Sequence[tuple[Tensor, Tensor]]]) -> None:
        """Begin with tokens without padding whose keys and values `last_tokens` returned, in blocks."""
        for number, layer in enumerate(self.layers):
            keys, values = (torch.cat([block[number][part] for block in blocks], dim=2) for part in (0, 1))
            self.length = keys.size(2)
            layer.own = KeyValueCache(keys, values, self.length)

    def select(self, rows: Tensor, sentences: Tensor | None = None) -> "DecoderCache":
        """Return the cache of these rows, in this order; rows may repeat, as for beams.

        `sentences` are the corresponding rows of the memory, if they differ.
        """
        return self._select(rows, rows if sentences is None else sentences)

    def reorder(self, rows: Tensor) -> "DecoderCache":
        """Return the cache of these rows, each of which keeps its sentence of the memory."""
        return self._select(rows, None)

    def _select(self, rows: Tensor, sentences: Tensor | None) -> "DecoderCache":
        selected = DecoderCache([layer.select(rows, sentences) for layer in self.layers])
        selected.length = self.length
        selected.mask = None if self.mask is None else self.mask.index_select(0, rows)
        return selected
