"""Attention that leaves pairs out by a pattern: what sliding windows and BigBird share.

A pattern speaks of the real tokens of a sentence, counted from its first: pads change nothing. `seen` spells it out as
a mask, with which full attention gives the same numbers: that is the reference, and what runs while a tap is open, when
the positions have something to say about each pair, or when the sentence is short. Otherwise the tokens are cut into
blocks, and only the pairs of blocks that the pattern has are ever computed: time and memory grow with the length, not
with its square.

B batch · H heads · T queries · S keys · D width of a query or key · E of a value · N blocks · K keys of a block
"""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.nn.attention import FullAttention, Mix, quick
from regard.nn.cpu.blockwise import Hidden, Rows, meet_in_blocks
from regard.nn.layout import Layout, Mask


@dataclass(frozen=True)
class ExplicitMask(Mask):
    """A mask given as what it allows."""

    pairs: Tensor | None = None  # broadcastable to (B, H, T, S)

    @cached_property
    def allowed(self) -> Tensor | None:
        return self.pairs


class SparseAttention(FullAttention):
    """The kernel in which a query meets the keys that a pattern shows it."""

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, layout: Layout, bias: Tensor | None = None, mix: Mix | None = None
    ) -> Tensor:
        if bias is not None or mix is not None or self._watched() or not self._worth_blocks(layout):
            return super().forward(q, k, v, replace(layout, mask=self._under_pattern(layout)), bias, mix)
        q, k, v = pads_last(layout, q, k, v)
        out = self._in_blocks(q, k, v, layout)
        order = pads_last_order(layout)
        return out if order is None else _take(out, order.argsort(1))

    def seen(self, layout: Layout) -> Tensor:
        """The pattern alone: True where a query may look, broadcastable to (B, H, T, S)."""
        raise NotImplementedError

    def _worth_blocks(self, layout: Layout) -> bool:
        """Whether blocks are possible, and save anything."""
        raise NotImplementedError

    def _in_blocks(self, q: Tensor, k: Tensor, v: Tensor, layout: Layout) -> Tensor:
        """The heads' outputs (B, H, T, E); in each row, the real tokens come first."""
        raise NotImplementedError

    @property
    def _pattern(self) -> str:
        """A name by which all layers with the same pattern find the mask that one of them has made."""
        raise NotImplementedError

    def _under_pattern(self, layout: Layout) -> Mask:
        plans, mask = layout.keys.plans, layout.mask
        if self._pattern not in plans:
            pairs = self.seen(layout)
            pairs = pairs if mask.allowed is None else pairs & mask.allowed
            plans[self._pattern] = ExplicitMask(mask.queries, mask.keys, device=mask.device, pairs=pairs)
        found: Mask = plans[self._pattern]
        return found

    def _meet(self, q: Tensor, k: Tensor, v: Tensor, rows: Rows, hidden: Hidden) -> Tensor:
        """Blocks of queries q (B, H, N, T, D) meet those of k and v (B, H, L, T, …) that `rows` have for each of them.

        Returns (B, H, N, T, E). Dropped weights are left to `quick`, and so is every processor but the first.
        """
        dropout = self.dropout if self.training else 0.0
        if q.device.type == "cpu" and not dropout:
            return meet_in_blocks(q, k, v, rows, hidden, self.scale)
        count, widest = len(rows), max(map(len, rows))
        seen = torch.tensor([[*row, *[0] * (widest - len(row))] for row in rows], device=q.device)  # (N, M)
        beyond = torch.tensor([[n >= len(row) for n in range(widest)] for row in rows], device=q.device)  # filled up
        unseen = beyond.repeat_interleave(k.size(3), 1)[:, None]  # (N, 1, K)
        told = hidden(slice(0, count), seen)  # (…, N, 1 or T, K)
        unseen = unseen if told is None else told | unseen
        pairs = ~unseen.expand(*q.shape[:3], *unseen.shape[-2:]).flatten(0, 2)[:, None]  # (B·H·N, 1, 1 or T, K)
        k, v = (x.index_select(2, seen.flatten()).unflatten(2, (count, widest)).flatten(3, 4) for x in (k, v))
        mask = ExplicitMask(q.size(3), k.size(3), device=q.device, pairs=pairs)
        shape = q.shape
        q, k, v = (x.flatten(0, 2)[:, None] for x in (q, k, v))
        return quick(q, k, v, mask, None, scale=self.scale, dropout=dropout).view(*shape[:4], -1)


def row_lengths(layout: Layout) -> Tensor | None:
    """How many real tokens each row has (B,); None: all of them."""
    return None if layout.mask.key_mask is None else layout.mask.key_mask.sum(1)


def split_blocks(x: Tensor, size: int) -> Tensor:
    """x (B, H, T, D) -> (B, H, N, size, D), filled up with zeros."""
    return F.pad(x, (0, 0, 0, -x.size(2) % size)).unflatten(2, (-1, size))


def pads_last(layout: Layout, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Tensors (B, H, S, D) with the pads of each row after its real tokens."""
    order = pads_last_order(layout)
    return tensors if order is None else tuple(_take(x, order) for x in tensors)


def pads_last_order(layout: Layout) -> Tensor | None:
    """The order (B, S) that puts pads after the real tokens; None where they are there already."""
    plans, key_mask = layout.keys.plans, layout.mask.key_mask
    if "real first" not in plans:
        in_order = key_mask is None or not bool((key_mask[:, 1:] & ~key_mask[:, :-1]).any())
        plans["real first"] = None if key_mask is None or in_order else (~key_mask).long().argsort(dim=1, stable=True)
    order: Tensor | None = plans["real first"]
    return order


def _take(x: Tensor, order: Tensor) -> Tensor:
    """The tokens of x (B, H, T, D) in each row's own order (B, T)."""
    return x.gather(2, order[:, None, :, None].expand_as(x))
