"""BigBird (Zaheer et al. 2020): blocks of tokens look at a window, at global blocks and at random ones.

A text of N blocks has a plan: which blocks each block sees. Global blocks, from both ends of the text, see all and are
seen by all; every other block sees those around it and a few drawn at random. The plan follows from the seed and N
alone, so that the seed in the settings is all that a model must keep of it, and a text has the same plan in any batch.

B batch · H heads · T tokens · D head width · N blocks · M blocks that a block sees · K keys
"""

import random
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from regard.errors import InputError
from regard.nn.attention import quick
from regard.nn.layout import Layout, Mask, none_if_full
from regard.nn.sparse import SparseAttention, row_lengths, split_blocks


@dataclass(frozen=True)
class BigBirdPattern:
    """What a plan follows from, besides the number of blocks."""

    window: int
    globals: int
    random: int
    seed: int

    def ends(self, blocks: int) -> tuple[int, int]:
        """How many blocks are global at the beginning and at the end of a text of so many."""
        count = min(self.globals, blocks)
        return count - count // 2, count // 2


@lru_cache(maxsize=256)
def block_plan(pattern: BigBirdPattern, blocks: int) -> tuple[tuple[int, ...], ...]:
    """The blocks that each block of a text sees, in order.

    >>> block_plan(BigBirdPattern(window=1, globals=1, random=1, seed=0), 5)
    ((0, 1, 2, 3, 4), (0, 1, 3), (0, 2, 3), (0, 2, 3), (0, 1, 4))
    """
    first, last = pattern.ends(blocks)
    everywhere = {*range(first), *range(blocks - last, blocks)}
    draw = random.Random(f"{pattern.seed} {blocks}")  # a string seeds it alike on every machine and version
    rows: list[tuple[int, ...]] = []
    for block in range(blocks):
        if block in everywhere:
            rows.append(tuple(range(blocks)))
            continue
        near = range(max(0, block - pattern.window // 2), min(blocks, block + pattern.window // 2 + 1))
        known = everywhere.union(near)
        rows.append(tuple(sorted(known.union(_others(draw, blocks, known, pattern.random)))))
    return tuple(rows)


def _others(draw: random.Random, blocks: int, known: set[int], count: int) -> set[int]:
    """So many blocks that are not known yet, or all of those."""
    if blocks - len(known) <= count:
        return set(range(blocks)) - known
    found: set[int] = set()
    while len(found) < count:
        found.add(draw.randrange(blocks))
        found -= known
    return found


class BigBirdAttention(SparseAttention):
    """Each query meets the keys of the blocks that its block sees."""

    def __init__(self, scale: float, block: int, pattern: BigBirdPattern, dropout: float = 0.0) -> None:
        super().__init__(scale, dropout)
        self.block = block
        self.pattern = pattern

    def flops(self, keys: int, key_width: int, value_width: int) -> int:
        blocks = -(-keys // self.block)
        first, last = self.pattern.ends(blocks)
        ordinary = min(blocks, self.pattern.window + self.pattern.globals + self.pattern.random)
        met = ((first + last) * blocks + (blocks - first - last) * ordinary) / blocks  # blocks, on average
        return super().flops(min(keys, round(met * self.block)), key_width, value_width)

    def seen(self, layout: Layout) -> Tensor:
        _check(layout)
        index, ends = layout.keys.index, row_lengths(layout)
        counts = [layout.mask.keys] * len(index) if ends is None else ends.tolist()
        rows = []
        for places, count in zip(index, counts, strict=True):
            seen = self._table(-(-max(count, 1) // self.block)).to(index.device)
            block = (places // self.block).clamp(max=len(seen) - 1)
            rows.append(seen[block[:, None], block])
        return torch.stack(rows)[:, None]

    @property
    def _pattern(self) -> str:
        return f"bigbird {self.block} {self.pattern}"

    def _table(self, blocks: int) -> Tensor:
        """The plan as a mask (N, N)."""
        table = torch.zeros(blocks, blocks, dtype=torch.bool)
        for block, seen in enumerate(block_plan(self.pattern, blocks)):
            table[block, list(seen)] = True
        return table

    def _worth_blocks(self, layout: Layout) -> bool:
        pattern = self.pattern
        return layout.mask.keys > self.block * (pattern.window + pattern.globals + pattern.random)

    def _in_blocks(self, q: Tensor, k: Tensor, v: Tensor, layout: Layout) -> Tensor:
        """Rows of equally many blocks go together, since they have the same plan."""
        _check(layout)
        ends = row_lengths(layout)
        if ends is None:
            return self._alike(q, k, v, ends=None)
        out = v.new_zeros(*q.shape[:3], v.size(3))
        counts = -(-ends // self.block)
        for blocks in counts.unique().tolist():
            if not blocks:
                continue
            rows = (counts == blocks).nonzero().squeeze(1)
            tokens = min(blocks * self.block, q.size(2))
            some = (x[rows, :, :tokens] for x in (q, k, v))
            out[rows, :, :tokens] = self._alike(*some, ends=ends[rows])
        return out

    def _alike(self, q: Tensor, k: Tensor, v: Tensor, *, ends: Tensor | None) -> Tensor:
        """Rows that have the same plan; `ends` (B,) are their lengths, None where they are full."""
        tokens = q.size(2)
        ends = torch.tensor([tokens], device=q.device) if ends is None else ends
        q, k, v = (split_blocks(x, self.block) for x in (q, k, v))  # (B, H, N, size, D)
        blocks = q.size(2)
        first, last = self.pattern.ends(blocks)
        if not first:
            return self._see_some(q, k, v, ends, 0).flatten(2, 3)[:, :, :tokens]
        out = self._see_all(torch.cat([q[:, :, :first], q[:, :, blocks - last :]], dim=2), k, v, ends)
        if first + last < blocks:
            middle = self._see_some(q[:, :, first : blocks - last], k, v, ends, first)
            out = torch.cat([out[:, :, :first], middle, out[:, :, first:]], dim=2)
        return out.flatten(2, 3)[:, :, :tokens]

    def _see_all(self, q: Tensor, k: Tensor, v: Tensor, ends: Tensor) -> Tensor:
        keys = torch.arange(k.size(2) * self.block, device=q.device)
        key_mask = none_if_full(keys < ends[:, None])  # (1 or B, S)
        mask = Mask(q.size(2) * self.block, len(keys), key_mask, device=q.device)
        dropout = self.dropout if self.training else 0.0
        q, k, v = (x.flatten(2, 3) for x in (q, k, v))
        return quick(q, k, v, mask, None, scale=self.scale, dropout=dropout).unflatten(2, (-1, self.block))

    def _see_some(self, q: Tensor, k: Tensor, v: Tensor, ends: Tensor, first: int) -> Tensor:
        """Blocks from `first` on, each with the keys and values of the blocks that it sees."""
        rows = block_plan(self.pattern, k.size(2))[first : first + q.size(2)]
        within = torch.arange(self.block, device=q.device)
        full = bool((ends == k.size(2) * self.block).all())

        def hidden(_: slice, seen: Tensor) -> Tensor | None:
            if full:
                return None
            place = (seen[..., None] * self.block + within).flatten(1)  # (c, K)
            return (place >= ends[:, None, None])[:, None, :, None]  # (1 or B, 1, c, 1, K)

        return self._meet(q, k, v, rows, hidden)


def _check(layout: Layout) -> None:
    if layout.mask.causal or layout.mask.documents is not None:
        raise InputError(
            "BigBird lays its blocks over whole rows: it reads one text in a row, and no decoder can use it."
        )
