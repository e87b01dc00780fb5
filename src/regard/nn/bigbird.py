"""BigBird (Zaheer et al. 2020): blocks of tokens attend to a window, to global blocks and to random blocks.

A sequence of N blocks has a plan, which lists the blocks that each block attends to. Global blocks, from both ends of
the sequence, attend to all and are attended by all; every other block attends to those around it and to a few random
ones. The plan depends on the seed and N alone, so a model need only store the seed, and a sequence has the same plan in
any batch.

B batch · H heads · T tokens · D head width · N blocks · M blocks that a block attends to · K keys
"""

import random
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from regard.errors import InputError
from regard.nn.attention import scaled_dot_product_attention
from regard.nn.layout import AttentionMask, Layout, none_if_full
from regard.nn.sparse import SparseAttention, row_lengths, split_blocks


@dataclass(frozen=True)
class BigBirdPattern:
    """Numbers of window, global and random blocks, and the seed of the latter."""

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
    """Each query attends to the keys of the blocks in its block's row of the plan."""

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
            rows = (counts == blocks).nonzero().squeeze(1)
            tokens = min(blocks * self.block, q.size(2))
            parts = (x[rows, :, :tokens] for x in (q, k, v))
            out[rows, :, :tokens] = self._same_plan(*parts, lengths=lengths[rows])
        return out

    def _same_plan(self, q: Tensor, k: Tensor, v: Tensor, *, lengths: Tensor | None) -> Tensor:
        """Return the outputs of rows that have the same plan; `lengths` (B,) is None if there is no padding."""
        tokens = q.size(2)
        lengths = torch.tensor([tokens], device=q.device) if lengths is None else lengths
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

    def _global_blocks(self, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor) -> Tensor:
        """Attend from global blocks to all keys."""
        keys = torch.arange(k.size(2) * self.block, device=q.device)
        key_mask = none_if_full(keys < lengths[:, None])  # (1 or B, S)
        mask = AttentionMask(q.size(2) * self.block, len(keys), key_mask, device=q.device)
        dropout = self.dropout if self.training else 0.0
        q, k, v = (x.flatten(2, 3) for x in (q, k, v))
        out = scaled_dot_product_attention(q, k, v, mask, None, scale=self.scale, dropout=dropout)
        return out.unflatten(2, (-1, self.block))

    def _ordinary_blocks(self, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, first: int) -> Tensor:
        """Attend from the blocks that begin at number `first` to the blocks in their rows of the plan."""
        rows = block_plan(self.pattern, k.size(2))[first : first + q.size(2)]
        within = torch.arange(self.block, device=q.device)
        full = bool((lengths == k.size(2) * self.block).all())

        def hidden(_: slice, seen: Tensor) -> Tensor | None:
            if full:
                return None
            place = (seen[..., None] * self.block + within).flatten(1)  # (c, K)
            return (place >= lengths[:, None, None])[:, None, :, None]  # (1 or B, 1, c, 1, K)

        return self._attend_blocks(q, k, v, rows, hidden)


def _check(layout: Layout) -> None:
    if layout.mask.causal or layout.mask.documents is not None:
        raise InputError(
            "BigBird attention works on whole rows: it needs one text per row and cannot be used in a decoder."
        )
