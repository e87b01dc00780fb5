"""Sliding-window attention: a query attends to keys at most `window` tokens away, in a decoder only to those before.

In blocks of at least `window` tokens, all keys of a block are in itself and in the adjacent blocks. Deeper layers have
a larger receptive field: L layers reach L · `window` tokens.

B batch · H heads · T queries · S keys · D head width · N blocks
"""

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.nn.attention import Mix
from regard.nn.layout import Layout, Tokens
from regard.nn.sparse import SparseAttention, padding_last_order, row_lengths, split_blocks

MIN_BLOCK = 32  # tokens in a block, at least: smaller matrix products are not worth it


class WindowAttention(SparseAttention):
    """Each query attends to the keys near it. A KV cache keeps only the last `window` tokens."""

    def __init__(self, scale: float, window: int, dropout: float = 0.0) -> None:
        super().__init__(scale, dropout)
        self.max_past = self.window = window
        self.block = max(window, MIN_BLOCK)

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, layout: Layout, bias: Tensor | None = None, mix: Mix | None = None
    ) -> Tensor:
        """Compute attention; k and v may be only the last of the layout's keys, if the others are out of the window."""
        mask = layout.mask
        keys = k.size(2) if mask.key_mask is not None else min(k.size(2), mask.queries + self.window)
        dropped = mask.keys - keys
        if not dropped:
            return super().forward(q, k, v, layout, bias, mix)
        bias = bias if bias is None or bias.size(-1) == 1 else bias[..., dropped:]
        near = None if mix is None else lambda weights: mix(F.pad(weights, (dropped, 0)))
        return super().forward(q, k[:, :, -keys:], v[:, :, -keys:], _last_keys(layout, keys), bias, near)

    def flops(self, keys: int, heads: int, kv_heads: int, key_width: int, value_width: int) -> int:
        """Return the floating-point operations per query; keys after the query are counted, as in full attention."""
        return super().flops(min(keys, 2 * self.window + 1), heads, kv_heads, key_width, value_width)

    def pattern_mask(self, layout: Layout) -> Tensor:
        return layout.distance.abs() <= self.window

    @property
    def _pattern_key(self) -> str:
        return f"window {self.window}"

    def _worth_blocks(self, layout: Layout) -> bool:
        return layout.mask.queries == layout.mask.keys > 2 * self.block

    def _in_blocks(self, q: Tensor, k: Tensor, v: Tensor, layout: Layout) -> Tensor:
        tokens, after = q.size(2), 0 if layout.mask.causal else 1
        q, k, v = (split_blocks(x, self.block) for x in (q, k, v))
        last = q.size(2) - 1
        key = f"blocks of {self._pattern_key}"
        if key not in layout.keys.memo:
            layout.keys.memo[key] = ~self._allowed(layout, last + 1, after)[:, None]  # (1 or B, 1, N, size, K)
        hidden: Tensor = layout.keys.memo[key]
        # the first and last block have only one adjacent block: any other block fills its place and is hidden
        rows = [[min(max(0, block + offset), last) for offset in range(-1, after + 1)] for block in range(last + 1)]
        out = self._attend_blocks(q, k, v, rows, lambda blocks, _: hidden[:, :, blocks])
        return out.flatten(2, 3)[:, :, :tokens]

    def _allowed(self, layout: Layout, blocks: int, after: int) -> Tensor:
        """Return where queries may attend, block by block: (1 or B, N, size, (2 or 3) · size)."""
        size, device, mask = self.block, layout.keys.position_ids.device, layout.mask
        query = torch.arange(size, device=device)
        key = torch.arange((2 + after) * size, device=device)
        distance = key - size - query[:, None]
        near = (distance >= -self.window) & (distance <= after * self.window)
        place = (torch.arange(blocks, device=device)[:, None] - 1) * size + key  # (N, K)
        lengths = row_lengths(layout)
        limit = torch.tensor([mask.keys], device=device) if lengths is None else lengths
        allowed = near & ((place >= 0) & (place < limit[:, None, None]))[:, :, None]
        if mask.documents is None:
            return allowed
        order = padding_last_order(layout)
        documents = mask.documents if order is None else mask.documents.gather(1, order)
        documents = F.pad(documents, (0, blocks * size - mask.keys), value=-1)
        of_keys = documents[:, place.clamp(0, blocks * size - 1)]  # (B, N, K)
        return allowed & (documents.unflatten(1, (blocks, size))[..., None] == of_keys[:, :, None])


def _last_keys(layout: Layout, keys: int) -> Layout:
    """Return the layout with only its last keys; computed once for all layers."""
    name, memo, mask = f"last {keys}", layout.keys.memo, layout.mask
    if name not in memo:
        key_mask = None if mask.key_mask is None else mask.key_mask[:, -keys:]
        tokens = Tokens(layout.keys.position_ids[:, -keys:], layout.keys.features)
        memo[name] = Layout(layout.queries, tokens, replace(mask, keys=keys, key_mask=key_mask))
    last: Layout = memo[name]
    return last
