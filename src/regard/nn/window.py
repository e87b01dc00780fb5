"""Sliding-window attention: a query meets the keys at most `reach` tokens away, in a decoder only those behind it.

In blocks of at least `reach` tokens, all that a block may see is in itself and in the blocks beside it. Deeper layers
see further, because what they look at has looked around: L layers reach L · `reach` tokens.

B batch · H heads · T queries · S keys · D head width · N blocks
"""

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.nn.attention import Mix
from regard.nn.layout import Layout, Tokens
from regard.nn.sparse import SparseAttention, pads_last_order, row_lengths, split_blocks

SHORTEST = 32  # tokens in a block, at least: smaller products do not pay


class WindowAttention(SparseAttention):
    """Each query meets the keys near it. A cache need only keep `reach` tokens: those before are never seen again."""

    def __init__(self, scale: float, reach: int, dropout: float = 0.0) -> None:
        super().__init__(scale, dropout)
        self.past = self.reach = reach
        self.block = max(reach, SHORTEST)

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, layout: Layout, bias: Tensor | None = None, mix: Mix | None = None
    ) -> Tensor:
        """The keys may be only the last of those in the layout, if the others are out of reach."""
        mask = layout.mask
        keys = k.size(2) if mask.key_mask is not None else min(k.size(2), mask.queries + self.reach)
        gone = mask.keys - keys
        if not gone:
            return super().forward(q, k, v, layout, bias, mix)
        bias = bias if bias is None or bias.size(-1) == 1 else bias[..., gone:]
        near = None if mix is None else lambda weights: mix(F.pad(weights, (gone, 0)))
        return super().forward(q, k[:, :, -keys:], v[:, :, -keys:], _last(layout, keys), bias, near)

    def flops(self, keys: int, key_width: int, value_width: int) -> int:
        """Those ahead of a query are counted, as full attention's are."""
        return super().flops(min(keys, 2 * self.reach + 1), key_width, value_width)

    def seen(self, layout: Layout) -> Tensor:
        return layout.distance.abs() <= self.reach

    @property
    def _pattern(self) -> str:
        return f"window {self.reach}"

    def _worth_blocks(self, layout: Layout) -> bool:
        return layout.mask.queries == layout.mask.keys > 2 * self.block

    def _in_blocks(self, q: Tensor, k: Tensor, v: Tensor, layout: Layout) -> Tensor:
        tokens, after = q.size(2), 0 if layout.mask.causal else 1
        q, k, v = (split_blocks(x, self.block) for x in (q, k, v))
        last = q.size(2) - 1
        key = f"blocks of {self._pattern}"
        if key not in layout.keys.plans:
            layout.keys.plans[key] = ~self._allowed(layout, last + 1, after)[:, None]  # (1 or B, 1, N, size, K)
        hidden: Tensor = layout.keys.plans[key]
        # past the ends of the text there is nothing to see: some block stands there, and is hidden
        rows = [[min(max(0, block + beside), last) for beside in range(-1, after + 1)] for block in range(last + 1)]
        out = self._meet(q, k, v, rows, lambda some, _: hidden[:, :, some])
        return out.flatten(2, 3)[:, :, :tokens]

    def _allowed(self, layout: Layout, blocks: int, after: int) -> Tensor:
        """Who may look where, block by block: (1 or B, N, size, (2 or 3) · size)."""
        size, device, mask = self.block, layout.keys.index.device, layout.mask
        within = torch.arange(size, device=device)
        beside = torch.arange((2 + after) * size, device=device)
        distance = beside - size - within[:, None]
        near = (distance >= -self.reach) & (distance <= after * self.reach)
        place = (torch.arange(blocks, device=device)[:, None] - 1) * size + beside  # (N, K)
        ends = row_lengths(layout)
        limit = torch.tensor([mask.keys], device=device) if ends is None else ends
        allowed = near & ((place >= 0) & (place < limit[:, None, None]))[:, :, None]
        if mask.documents is None:
            return allowed
        order = pads_last_order(layout)
        documents = mask.documents if order is None else mask.documents.gather(1, order)
        documents = F.pad(documents, (0, blocks * size - mask.keys), value=-1)
        of_keys = documents[:, place.clamp(0, blocks * size - 1)]  # (B, N, K)
        return allowed & (documents.unflatten(1, (blocks, size))[..., None] == of_keys[:, :, None])


def _last(layout: Layout, keys: int) -> Layout:
    """The layout with only its last keys; the same for all layers."""
    name, plans, mask = f"last {keys}", layout.keys.plans, layout.mask
    if name not in plans:
        key_mask = None if mask.key_mask is None else mask.key_mask[:, -keys:]
        tokens = Tokens(layout.keys.index[:, -keys:], layout.keys.features)
        plans[name] = Layout(layout.queries, tokens, replace(mask, keys=keys, key_mask=key_mask))
    found: Layout = plans[name]
    return found
