"""Attention under a sparse pattern: sliding windows and BigBird.

A pattern is about the tokens of a sequence, padding not counted. `pattern_mask` returns it as a mask, with which full
attention gives the same numbers: that is the reference, and what runs while a tap is open, when the position scheme
adds something to each pair, or for short sequences. Otherwise the tokens are cut into blocks, and only the pairs of
blocks in the pattern are computed: time and memory grow with the length, not with its square.

B batch · H heads · T queries · S keys · D width of a query or key · E width of a value · N blocks · K keys of a block
M blocks that a block attends to
"""

import random
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.errors import InputError
from regard.nn import cpu
from regard.nn.attention import FullAttention, Mix, scaled_dot_product_attention
from regard.nn.cpu.attention import BlockRows, HiddenKeys, blockwise_attention
from regard.nn.functional import repeat_heads
from regard.nn.layout import AttentionMask, Layout, Tokens

MIN_BLOCK = 32  # tokens in a block of window attention, at least: smaller matrix products are not worth it


@dataclass(frozen=True)
class ExplicitMask(AttentionMask):
    """A mask that is given by its pairs."""

    pairs: Tensor | None = None  # broadcastable to (B, H, T, S)

    @property
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
        seen = _on_device([[*row, *[0] * (widest - len(row))] for row in rows], q)  # (N, M)
        filler = _on_device([[n >= len(row) for n in range(widest)] for row in rows], q)
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
    """Return the number of tokens of each row (B,), on the CPU; None: there is no padding."""
    return None if layout.mask.padding is None else layout.mask.padding.host.sum(1)


def _on_device(values: object, x: Tensor) -> Tensor:
    """Return a small table of Python numbers as a tensor on the device of x, without waiting for that device."""
    return torch.tensor(values, device="cpu").to(x.device, non_blocking=True)


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
        within = place < mask.keys if lengths is None else place < lengths.to(device)[:, None, None]
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


@dataclass(frozen=True)
class BigBirdPattern:
    """The pattern of BigBird: numbers of window, global and random blocks, and the seed of the latter.

    A sequence of N blocks has a plan, which lists the blocks that each block attends to. Global blocks, from both ends
    of the sequence, attend to all and are attended by all; every other block attends to those around it and to a few
    random ones. The plan depends on the seed and N alone, so a model need only store the seed, and a sequence has the
    same plan in any batch.
    """

    window: int
    globals: int
    random: int
    seed: int

    def global_blocks(self, blocks: int) -> tuple[int, int]:
        """Return how many of `blocks` blocks are global at the beginning and at the end."""
        count = min(self.globals, blocks)
        return count - count // 2, count // 2


@lru_cache(maxsize=256)
def block_plan(pattern: BigBirdPattern, blocks: int) -> tuple[tuple[int, ...], ...]:
    """Return the blocks that each block attends to, in order.

    >>> block_plan(BigBirdPattern(window=1, globals=1, random=1, seed=0), 5)
    ((0, 1, 2, 3, 4), (0, 1, 3), (0, 2, 3), (0, 2, 3), (0, 1, 4))
    """
    first, last = pattern.global_blocks(blocks)
    everywhere = {*range(first), *range(blocks - last, blocks)}
    generator = random.Random(f"{pattern.seed} {blocks}")  # a string seeds it alike on every machine and version
    rows: list[tuple[int, ...]] = []
    for block in range(blocks):
        if block in everywhere:
            rows.append(tuple(range(blocks)))
            continue
        near = range(max(0, block - pattern.window // 2), min(blocks, block + pattern.window // 2 + 1))
        fixed = everywhere.union(near)
        rows.append(tuple(sorted(fixed.union(_random_blocks(generator, blocks, fixed, pattern.random)))))
    return tuple(rows)


def _random_blocks(generator: random.Random, blocks: int, fixed: set[int], count: int) -> set[int]:
    """Return `count` random blocks that are not fixed, or all of those."""
    if blocks - len(fixed) <= count:
        return set(range(blocks)) - fixed
    drawn: set[int] = set()
    while len(drawn) < count:
        drawn.add(generator.randrange(blocks))
        drawn -= fixed
    return drawn


class BigBirdAttention(SparseAttention):
    """BigBird (Zaheer et al. 2020): a query attends to the keys of the blocks in its block's row of the plan."""

    def __init__(self, scale: float, block: int, pattern: BigBirdPattern, dropout: float = 0.0) -> None:
        super().__init__(scale, dropout)
        self.block = block
        self.pattern = pattern

    def flops(self, keys: int, heads: int, kv_heads: int, key_width: int, value_width: int) -> int:
        blocks = -(-keys // self.block)
        first, last = self.pattern.global_blocks(blocks)
        ordinary = min(blocks, self.pattern.window + self.pattern.globals + self.pattern.random)
        mean_blocks = ((first + last) * blocks + (blocks - first - last) * ordinary) / blocks
        mean_keys = min(keys, round(mean_blocks * self.block))
        return super().flops(mean_keys, heads, kv_heads, key_width, value_width)

    def pattern_mask(self, layout: Layout) -> Tensor:
        _check(layout)
        position_ids, lengths = layout.keys.position_ids, row_lengths(layout)
        counts = [layout.mask.keys] * len(position_ids) if lengths is None else lengths.tolist()
        rows = []
        for positions, count in zip(position_ids, counts, strict=True):
            table = self._plan_mask(-(-max(count, 1) // self.block)).to(position_ids.device)
            block = (positions // self.block).clamp(max=len(table) - 1)
            rows.append(table[block[:, None], block])
        return torch.stack(rows)[:, None]

    @property
    def _pattern_key(self) -> str:
        return f"bigbird {self.block} {self.pattern}"

    def _plan_mask(self, blocks: int) -> Tensor:
        """Return the plan as a mask (N, N)."""
        table = torch.zeros(blocks, blocks, dtype=torch.bool)
        for block, seen in enumerate(block_plan(self.pattern, blocks)):
            table[block, list(seen)] = True
        return table

    def _worth_blocks(self, layout: Layout) -> bool:
        pattern = self.pattern
        return layout.mask.keys > self.block * (pattern.window + pattern.globals + pattern.random)

    def _in_blocks(self, q: Tensor, k: Tensor, v: Tensor, layout: Layout) -> Tensor:
        """Return the heads' outputs; rows with equally many blocks have the same plan and are computed together."""
        _check(layout)
        lengths = row_lengths(layout)
        if lengths is None:
            return self._same_plan(q, k, v, lengths=None)
        out = v.new_zeros(*q.shape[:3], v.size(3))
        counts = -(-lengths // self.block)
        for blocks in counts.unique().tolist():
            if not blocks:
                continue
            host_rows = (counts == blocks).nonzero().squeeze(1)
            rows, tokens = host_rows.to(q.device, non_blocking=True), min(blocks * self.block, q.size(2))
            parts = (x[rows, :, :tokens] for x in (q, k, v))
            out[rows, :, :tokens] = self._same_plan(*parts, lengths=lengths[host_rows])
        return out

    def _same_plan(self, q: Tensor, k: Tensor, v: Tensor, *, lengths: Tensor | None) -> Tensor:
        """Return the outputs of rows that have the same plan; `lengths` (B,), on the CPU, is None without padding."""
        tokens = q.size(2)
        host_lengths = torch.tensor([tokens], device="cpu") if lengths is None else lengths
        full = bool((host_lengths == -(-tokens // self.block) * self.block).all())
        lengths = None if full else host_lengths.to(q.device, non_blocking=True)
        q, k, v = (split_blocks(x, self.block) for x in (q, k, v))  # (B, H, N, size, D)
        blocks = q.size(2)
        first, last = self.pattern.global_blocks(blocks)
        if not first:
            return self._ordinary_blocks(q, k, v, lengths, 0).flatten(2, 3)[:, :, :tokens]
        out = self._global_blocks(torch.cat([q[:, :, :first], q[:, :, blocks - last :]], dim=2), k, v, lengths)
        if first + last < blocks:
            middle = self._ordinary_blocks(q[:, :, first : blocks - last], k, v, lengths, first)
            out = torch.cat([out[:, :, :first], middle, out[:, :, first:]], dim=2)
        return out.flatten(2, 3)[:, :, :tokens]

    def _global_blocks(self, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor | None) -> Tensor:
        """Attend from global blocks to all keys."""
        keys = torch.arange(k.size(2) * self.block, device=q.device)
        key_mask = None if lengths is None else keys < lengths[:, None]  # (1 or B, S)
        mask = AttentionMask(q.size(2) * self.block, len(keys), key_mask, device=q.device)
        dropout = self.dropout if self.training else 0.0
        q, k, v = (x.flatten(2, 3) for x in (q, k, v))
        out = scaled_dot_product_attention(q, k, v, mask, None, scale=self.scale, dropout=dropout)
        return out.unflatten(2, (-1, self.block))

    def _ordinary_blocks(self, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor | None, first: int) -> Tensor:
        """Attend from the blocks that begin at number `first` to the blocks in their rows of the plan."""
        rows = block_plan(self.pattern, k.size(2))[first : first + q.size(2)]
        within = torch.arange(self.block, device=q.device)

        def hidden(_: slice, seen: Tensor) -> Tensor | None:
            if lengths is None:
                return None
            place = (seen[..., None] * self.block + within).flatten(1)  # (c, K)
            return (place >= lengths[:, None, None])[:, None, :, None]  # (1 or B, 1, c, 1, K)

        return self._attend_blocks(q, k, v, rows, hidden)


def _check(layout: Layout) -> None:
    if layout.mask.causal or layout.mask.documents is not None:
        raise InputError(
            "BigBird attention works on whole rows: it needs one text per row and cannot be used in a decoder."
        )
