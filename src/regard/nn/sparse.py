"""Attention under a sparse pattern: what sliding windows and BigBird share.

A pattern is about the tokens of a sequence, padding not counted. `pattern_mask` returns it as a mask, with which full
attention gives the same numbers: that is the reference, and what runs while a tap is open, when the position scheme
adds something to each pair, or for short sequences. Otherwise the tokens are cut into blocks, and only the pairs of
blocks in the pattern are computed: time and memory grow with the length, not with its square.

B batch · H heads · T queries · S keys · D width of a query or key · E width of a value · N blocks · K keys of a block
"""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.nn import cpu
from regard.nn.attention import FullAttention, Mix, scaled_dot_product_attention
from regard.nn.cpu.blockwise import BlockRows, HiddenKeys, blockwise_attention
from regard.nn.functional import repeat_heads
from regard.nn.layout import AttentionMask, Layout


@dataclass(frozen=True)
class ExplicitMask(AttentionMask):
    """A mask that is given by its pairs."""

    pairs: Tensor | None = None  # broadcastable to (B, H, T, S)

    @cached_property
    def allowed(self) -> Tensor | None:
        return self.pairs


class SparseAttention(FullAttention):
    """The kernel in which a query attends to the keys of a pattern.

    Keys and values of grouped heads are repeated before they are cut into blocks.
    """

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, layout: Layout, bias: Tensor | None = None, mix: Mix | None = None
    ) -> Tensor:
        if bias is not None or mix is not None or self._watched() or not self._worth_blocks(layout):
            return super().forward(q, k, v, replace(layout, mask=self._combined_mask(layout)), bias, mix)
        q, k, v = move_padding_last(layout, q, repeat_heads(k, q.size(1)), repeat_heads(v, q.size(1)))
        out = self._in_blocks(q, k, v, layout)
        order = padding_last_order(layout)
        return out if order is None else _take(out, order.argsort(1))

    def pattern_mask(self, layout: Layout) -> Tensor:
        """Return the pattern alone: True where a query may attend, broadcastable to (B, H, T, S)."""
        raise NotImplementedError

    def _worth_blocks(self, layout: Layout) -> bool:
        """Return whether the pattern can be computed in blocks, and faster so."""
        raise NotImplementedError

    def _in_blocks(self, q: Tensor, k: Tensor, v: Tensor, layout: Layout) -> Tensor:
        """Return the heads' outputs (B, H, T, E); in each row, padding comes last."""
        raise NotImplementedError

    @property
    def _pattern_key(self) -> str:
        """The name under which layers with the same pattern share its mask."""
        raise NotImplementedError

    def _combined_mask(self, layout: Layout) -> AttentionMask:
        memo, mask = layout.keys.memo, layout.mask
        if self._pattern_key not in memo:
            pairs = self.pattern_mask(layout)
            pairs = pairs if mask.allowed is None else pairs & mask.allowed
            memo[self._pattern_key] = ExplicitMask(mask.queries, mask.keys, device=mask.device, pairs=pairs)
        masked: AttentionMask = memo[self._pattern_key]
        return masked

    def _attend_blocks(self, q: Tensor, k: Tensor, v: Tensor, rows: BlockRows, hidden: HiddenKeys) -> Tensor:
        """Attend from blocks q (B, H, N, T, D) to the blocks of k and v (B, H, L, T, …) that `rows` lists for each.

        Returns (B, H, N, T, E).
        """
        dropout = self.dropout if self.training else 0.0
        if cpu.enabled(q.device) and not dropout:
            return blockwise_attention(q, k, v, rows, hidden, self.scale)
        count, widest = len(rows), max(map(len, rows))
        seen = torch.tensor([[*row, *[0] * (widest - len(row))] for row in rows], device=q.device)  # (N, M)
        filler = torch.tensor([[n >= len(row) for n in range(widest)] for row in rows], device=q.device)
        unseen = filler.repeat_interleave(k.size(3), 1)[:, None]  # (N, 1, K)
        masked = hidden(slice(0, count), seen)  # (…, N, 1 or T, K)
        unseen = unseen if masked is None else masked | unseen
        pairs = ~unseen.expand(*q.shape[:3], *unseen.shape[-2:]).flatten(0, 2)[:, None]  # (B·H·N, 1, 1 or T, K)
        k, v = (x.index_select(2, seen.flatten()).unflatten(2, (count, widest)).flatten(3, 4) for x in (k, v))
        mask = ExplicitMask(q.size(3), k.size(3), device=q.device, pairs=pairs)
        shape = q.shape
        q, k, v = (x.flatten(0, 2)[:, None] for x in (q, k, v))
        out = scaled_dot_product_attention(q, k, v, mask, None, scale=self.scale, dropout=dropout)
        return out.view(*shape[:4], -1)


def row_lengths(layout: Layout) -> Tensor | None:
    """Return the number of tokens of each row (B,); None: there is no padding."""
    return None if layout.mask.key_mask is None else layout.mask.key_mask.sum(1)


def split_blocks(x: Tensor, size: int) -> Tensor:
    """Split x (B, H, T, D) into blocks (B, H, N, size, D), the last one padded with zeros."""
    return F.pad(x, (0, 0, 0, -x.size(2) % size)).unflatten(2, (-1, size))


def move_padding_last(layout: Layout, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Return tensors (B, H, S, D) with the padding of each row after its tokens."""
    order = padding_last_order(layout)
    return tensors if order is None else tuple(_take(x, order) for x in tensors)


def padding_last_order(layout: Layout) -> Tensor | None:
    """Return the order (B, S) that puts padding after the tokens; None if it is there already."""
    memo, mask = layout.keys.memo, layout.mask.key_mask
    if "padding last" not in memo:
        in_order = mask is None or not bool((mask[:, 1:] & ~mask[:, :-1]).any())
        memo["padding last"] = None if mask is None or in_order else (~mask).long().argsort(dim=1, stable=True)
    order: Tensor | None = memo["padding last"]
    return order


def _take(x: Tensor, order: Tensor) -> Tensor:
    """Return the tokens of x (B, H, T, D) in each row's own order (B, T)."""
    return x.gather(2, order[:, None, :, None].expand_as(x))
