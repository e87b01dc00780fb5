"""Attention under a sparse pattern: what patterns share, and sliding windows (BigBird is in `bigbird.py`).

A pattern is about the tokens of a sequence, padding not counted. `pattern_mask` returns it as a mask, with which full
attention gives the same numbers: that is the reference, and what runs while a tap is open, when the position scheme
adds something to each pair, or for short sequences. Otherwise the tokens are cut into blocks, and only the pairs of
blocks in the pattern are computed: time and memory grow with the length, not with its square.

Which blocks a block attends to is computed from facts on the CPU, once for all layers with the pattern, and kept in the
layout (`BlockTable`). Compiled blocks cannot do that themselves, so `prepare` does it ahead of them.

B batch · H heads · T queries · S keys · D width of a query or key · E width of a value · N blocks · K keys of a block
M blocks that a block attends to
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.nn import cpu
from regard.nn.attention import FullAttention, Mix, scaled_dot_product_attention
from regard.nn.cpu.attention import blockwise_attention
from regard.nn.functional import repeat_heads
from regard.nn.layout import AttentionMask, Layout, Tokens, copied_to

MIN_BLOCK = 32  # tokens in a block of window attention, at least: smaller matrix products are not worth it


@dataclass(frozen=True)
class ExplicitMask(AttentionMask):
    """A mask that is given by its pairs."""

    pairs: Tensor | None = None  # broadcastable to (B, H, T, S)

    @property
    def allowed(self) -> Tensor | None:
        return self.pairs


@dataclass(frozen=True)
class BlockTable:
    """The blocks of keys that each block of queries attends to, as tensors on the device of the network."""

    seen: Tensor  # (B or 1, N, M); arbitrary where all keys of the block are masked
    allowed: Tensor  # (B or 1, N, 1 or T, M·T) True where a query may attend


class SparseAttention(FullAttention):
    """The kernel in which a query attends to the keys of a pattern.

    Keys and values of grouped heads are repeated before they are cut into blocks.
    """

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, layout: Layout, bias: Tensor | None = None, mix: Mix | None = None
    ) -> Tensor:
        if bias is not None or mix is not None or self.is_stepwise or not self._worth_blocks(layout):
            return super().forward(q, k, v, replace(layout, mask=self._combined_mask(layout)), bias, mix)
        q, k, v = move_padding_last(layout, q, repeat_heads(k, q.size(1)), repeat_heads(v, q.size(1)))
        out = self._in_blocks(q, k, v, layout)
        order = padding_last_order(layout)
        return out if order is None else _take(out, order.argsort(1))

    def prepare(self, layout: Layout, *, in_pairs: bool) -> None:
        if in_pairs or not self._worth_blocks(layout):
            self._combined_mask(layout)
        else:
            padding_last_order(layout)
            self._prepare_blocks(layout)

    def pattern_mask(self, layout: Layout) -> Tensor:
        """Return the pattern alone: True where a query may attend, broadcastable to (B, H, T, S)."""
        raise NotImplementedError

    def _prepare_blocks(self, layout: Layout) -> None:
        """Compute what `_in_blocks` needs besides queries, keys and values, and keep it in the layout."""
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

    def _attend_blocks(self, q: Tensor, k: Tensor, v: Tensor, table: BlockTable) -> Tensor:
        """Attend from blocks q (B, H, N, T, D) to the blocks of k and v (B, H, L, T, …) in a table: (B, H, N, T, E)."""
        rows, heads, count, size, _ = q.shape
        seen = table.seen.flatten(1)[:, None, :, None, None]  # (B or 1, 1, N·M, 1, 1)
        k, v = (x.gather(2, seen.expand(rows, heads, -1, *x.shape[3:])).unflatten(2, (count, -1)) for x in (k, v))
        pairs = table.allowed[:, None].expand(rows, heads, -1, -1, -1).flatten(0, 2)[:, None]  # (B·H·N, 1, 1 or T, K)
        q, k, v = (x.flatten(0, 2)[:, None] for x in (q, k.flatten(3, 4), v.flatten(3, 4)))
        mask = ExplicitMask(size, k.size(2), device=q.device, pairs=pairs)
        out = scaled_dot_product_attention(q, k, v, mask, None, scale=self.scale, dropout=self._dropout)
        return out.view(rows, heads, count, size, -1)

    def _blockwise(self, q: Tensor) -> bool:
        """Return whether the kernel for CPUs computes blocks, which has no dropout."""
        return cpu.enabled(q.device) and not self._dropout

    @property
    def _dropout(self) -> float:
        return self.dropout if self.training else 0.0


def row_lengths(layout: Layout) -> Tensor | None:
    """Return the number of tokens of each row (B,), on the CPU; None: there is no padding."""
    return None if layout.mask.padding is None else layout.mask.padding.host.sum(1)


def split_blocks(x: Tensor, size: int) -> Tensor:
    """Split x (B, H, T, D) into blocks (B, H, N, size, D), the last one padded with zeros."""
    return F.pad(x, (0, 0, 0, -x.size(2) % size)).unflatten(2, (-1, size))


def move_padding_last(layout: Layout, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Return tensors (B, H, S, D) with the padding of each row after its tokens."""
    order = padding_last_order(layout)
    return tensors if order is None else tuple(_take(x, order) for x in tensors)


def padding_last_order(layout: Layout) -> Tensor | None:
    """Return the order (B, S) that puts padding after the tokens; None if it is there already."""
    memo, padding = layout.keys.memo, layout.mask.padding
    if "padding last" not in memo:
        order = None
        if padding is not None and bool((padding.host[:, 1:] & ~padding.host[:, :-1]).any()):
            order = (~padding.tokens).long().argsort(dim=1, stable=True)
        memo["padding last"] = order
    last: Tensor | None = memo["padding last"]
    return last


def _take(x: Tensor, order: Tensor) -> Tensor:
    """Return the tokens of x (B, H, T, D) in each row's own order (B, T)."""
    return x.gather(2, order[:, None, :, None].expand_as(x))


class WindowAttention(SparseAttention):
    """Sliding window: a query attends to keys at most `window` tokens away, in a decoder only to those before.

    In blocks of at least `window` tokens, all keys of a block are in itself and in the adjacent blocks. Deeper layers
    have a larger receptive field: L layers reach L · `window` tokens. A KV cache keeps only the last `window` tokens.
    """

    def __init__(self, scale: float, window: int, dropout: float = 0.0, soft_cap: float | None = None) -> None:
        super().__init__(scale, dropout, soft_cap)
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

    def _prepare_blocks(self, layout: Layout) -> None:
        self._table(layout)

    def _in_blocks(self, q: Tensor, k: Tensor, v: Tensor, layout: Layout) -> Tensor:
        tokens, table = q.size(2), self._table(layout)
        q, k, v = (split_blocks(x, self.block) for x in (q, k, v))
        if self._blockwise(q):
            hidden, rows = ~table.allowed[:, None], table.seen[0].tolist()
            out = blockwise_attention(q, k, v, rows, lambda blocks, _: hidden[:, :, blocks], self.scale)
        else:
            out = self._attend_blocks(q, k, v, table)
        return out.flatten(2, 3)[:, :, :tokens]

    def _table(self, layout: Layout) -> BlockTable:
        memo, key = layout.keys.memo, f"blocks of {self._pattern_key}"
        if key not in memo:
            device, after = layout.keys.position_ids.device, 0 if layout.mask.causal else 1
            blocks = -(-layout.mask.keys // self.block)
            offsets = torch.arange(-1, after + 1, device=device)
            # the first and last block have only one adjacent block: any other block fills its place and is masked
            seen = (torch.arange(blocks, device=device)[:, None] + offsets).clamp(0, blocks - 1)
            memo[key] = BlockTable(seen[None], self._allowed(layout, blocks, after))
        table: BlockTable = memo[key]
        return table

    def _allowed(self, layout: Layout, blocks: int, after: int) -> Tensor:
        """Return where queries may attend, block by block: (1 or B, N, size, (2 or 3) · size)."""
        size, device, mask = self.block, layout.keys.position_ids.device, layout.mask
        query = torch.arange(size, device=device)
        key = torch.arange((2 + after) * size, device=device)
        distance = key - size - query[:, None]
        near = (distance >= -self.window) & (distance <= after * self.window)
        place = (torch.arange(blocks, device=device)[:, None] - 1) * size + key  # (N, K)
        lengths = row_lengths(layout)
        within = place < mask.keys if lengths is None else place < copied_to(device, lengths)[:, None, None]
        allowed = near & ((place >= 0) & within).view(-1, *place.shape)[:, :, None]
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
        key_mask, host_mask = (None if part is None else part[:, -keys:] for part in (mask.key_mask, mask.host_mask))
        tokens = Tokens(layout.keys.position_ids[:, -keys:], layout.keys.features, limit=layout.keys.limit)
        memo[name] = Layout(layout.queries, tokens, replace(mask, keys=keys, key_mask=key_mask, host_mask=host_mask))
    last: Layout = memo[name]
    return last
