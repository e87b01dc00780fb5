"""BigBird (Zaheer et al. 2020): attention to global, adjacent and random blocks.

On CPUs the rows of a batch that have equally many blocks are computed together. Otherwise each row has its plan in
tensors of one shape, so that the computation is the same for all batches and `torch.compile` makes one graph of it.

B batch · H heads · T queries · S keys · D width of a query or key · E width of a value · N blocks · K keys of a block
M blocks that a block attends to · G global blocks
"""

import random
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.errors import InputError
from regard.nn.attention import scaled_dot_product_attention
from regard.nn.cpu.attention import blockwise_attention
from regard.nn.layout import AttentionMask, Layout, copied_to
from regard.nn.sparse import BlockTable, ExplicitMask, SparseAttention, row_lengths, split_blocks


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


@lru_cache(maxsize=256)
def _plan_tensors(pattern: BigBirdPattern, blocks: int, padded: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the plan of `blocks` blocks, of `padded` with padding, on the CPU.

    The blocks that each block attends to (padded, M), where those are none but fillers (padded, M), and the numbers of
    the global blocks (G,), which are `padded` where there are fewer. Global blocks and padding have rows of fillers.
    """
    width = pattern.window + pattern.globals + pattern.random
    first, last = pattern.global_blocks(blocks)
    seen = torch.zeros(padded, width, dtype=torch.long, device="cpu")
    filler = torch.ones(padded, width, dtype=torch.bool, device="cpu")
    for block, row in enumerate(block_plan(pattern, blocks)):
        if first <= block < blocks - last:
            seen[block, : len(row)] = torch.tensor(row, device="cpu")
            filler[block, : len(row)] = False
    numbers = [*range(first), *range(blocks - last, blocks)]
    numbers += [padded] * (pattern.globals - len(numbers))
    return seen, filler, torch.tensor(numbers, dtype=torch.long, device="cpu")


@dataclass(frozen=True)
class _Plans:
    """The plans of all rows of a batch, as tensors; one row stands for all if there is no padding."""

    ordinary: BlockTable  # of all blocks but the global ones, whose rows are arbitrary
    numbers: Tensor  # (B or 1, G) the global blocks; N where there are fewer
    key_mask: Tensor  # (B or 1, 1, 1, N·T) True at the keys that global blocks attend to


class BigBirdAttention(SparseAttention):
    """BigBird (Zaheer et al. 2020): a query attends to the keys of the blocks in its block's row of the plan."""

    def __init__(self, scale: float, block: int, pattern: BigBirdPattern, dropout: float = 0.0) -> None:
        super().__init__(scale, dropout)
        self.block = block
        self.pattern = pattern
        self._name = f"bigbird {block} {pattern}"  # here, because compiled code cannot print a dataclass

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
        return self._name

    def _plan_mask(self, blocks: int) -> Tensor:
        """Return the plan as a mask (N, N)."""
        table = torch.zeros(blocks, blocks, dtype=torch.bool)
        for block, seen in enumerate(block_plan(self.pattern, blocks)):
            table[block, list(seen)] = True
        return table

    def _worth_blocks(self, layout: Layout) -> bool:
        pattern = self.pattern
        return layout.mask.keys > self.block * (pattern.window + pattern.globals + pattern.random)

    def _prepare_blocks(self, layout: Layout) -> None:
        self._plans(layout)

    def _in_blocks(self, q: Tensor, k: Tensor, v: Tensor, layout: Layout) -> Tensor:
        _check(layout)
        if self._blockwise(q):
            return self._rows_by_plan(q, k, v, row_lengths(layout))
        tokens, plans = q.size(2), self._plans(layout)
        q, k, v = (split_blocks(x, self.block) for x in (q, k, v))  # (B, H, N, size, D)
        out = self._attend_blocks(q, k, v, plans.ordinary)
        if self.pattern.globals:
            rows, heads, count, size, _ = q.shape
            numbers = plans.numbers[:, None, :, None, None].expand(rows, heads, -1, size, -1)  # (B, H, G, size, 1)
            own = q.gather(2, numbers.clamp(max=count - 1).expand(-1, -1, -1, -1, q.size(-1))).flatten(2, 3)
            mask = ExplicitMask(own.size(2), count * size, device=q.device, pairs=plans.key_mask)
            k, v = k.flatten(2, 3), v.flatten(2, 3)
            whole = scaled_dot_product_attention(own, k, v, mask, None, scale=self.scale, dropout=self._dropout)
            whole = whole.unflatten(2, (-1, size)).to(out.dtype)
            out = F.pad(out, (0, 0, 0, 0, 0, 1)).scatter(2, numbers.expand_as(whole), whole)[:, :, :count]
        return out.flatten(2, 3)[:, :, :tokens]

    def _plans(self, layout: Layout) -> _Plans:
        """Return the plans of all rows; computed on the CPU, once for all layers."""
        memo, key = layout.keys.memo, f"blocks of {self._pattern_key}"
        if key not in memo:
            _check(layout)
            device, size, tokens = layout.keys.position_ids.device, self.block, layout.mask.keys
            lengths, padded = row_lengths(layout), -(-tokens // size)
            lengths = torch.tensor([tokens], device="cpu") if lengths is None else lengths
            plans = [_plan_tensors(self.pattern, -(-length // size), padded) for length in lengths.tolist()]
            seen, filler, numbers = (torch.stack(parts) for parts in zip(*plans, strict=True))  # (B or 1, …)
            within = torch.arange(size, device="cpu")
            place = (seen[..., None] * size + within).flatten(2)  # (B or 1, N, K)
            allowed = (place < lengths[:, None, None]) & ~filler.repeat_interleave(size, 2)
            allowed |= ~allowed.any(-1, keepdim=True)  # where nothing is attended to, nothing is used
            key_mask = torch.arange(padded * size, device="cpu") < lengths.clamp(min=1)[:, None]
            tensors = (copied_to(device, x) for x in (seen, allowed[:, :, None], numbers, key_mask[:, None, None]))
            on_device, pairs, global_blocks, keys = tensors
            memo[key] = _Plans(BlockTable(on_device, pairs), global_blocks, keys)
        kept: _Plans = memo[key]
        return kept

    def _rows_by_plan(self, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor | None) -> Tensor:
        """Return the heads' outputs on a CPU: rows with equally many blocks have the same plan."""
        if lengths is None:
            return self._same_plan(q, k, v, lengths=None)
        out = v.new_zeros(*q.shape[:3], v.size(3))
        counts = -(-lengths // self.block)
        for blocks in counts.unique().tolist():
            if not blocks:
                continue
            rows, tokens = (counts == blocks).nonzero().squeeze(1), min(blocks * self.block, q.size(2))
            parts = (x[rows, :, :tokens] for x in (q, k, v))
            out[rows, :, :tokens] = self._same_plan(*parts, lengths=lengths[rows])
        return out

    def _same_plan(self, q: Tensor, k: Tensor, v: Tensor, *, lengths: Tensor | None) -> Tensor:
        """Return the outputs of rows that have the same plan; `lengths` (B,) is None without padding."""
        tokens = q.size(2)
        lengths = torch.tensor([tokens]) if lengths is None else lengths
        if bool((lengths == -(-tokens // self.block) * self.block).all()):
            lengths = None
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
        q, k, v = (x.flatten(2, 3) for x in (q, k, v))
        out = scaled_dot_product_attention(q, k, v, mask, None, scale=self.scale, dropout=0.0)
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

        return blockwise_attention(q, k, v, rows, hidden, self.scale)


def _check(layout: Layout) -> None:
    if layout.mask.causal or layout.mask.documents is not None:
        raise InputError(
            "BigBird attention works on whole rows: it needs one text per row and cannot be used in a decoder."
        )
