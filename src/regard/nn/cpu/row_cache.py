"""Keys and values of rows of different lengths: rows of similar length share tensors, padded to one of few capacities.

R rows · G key and value heads · D key width · E value width · S capacity
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.nn.layout import AttentionMask

MIN_CAPACITY = 64  # tokens


def capacity_for(length: int) -> int:
    """Return the smallest capacity for this many tokens: 64, 96, 128, 192, 256, 384, … (if MIN_CAPACITY is 64).

    >>> [capacity_for(length) for length in (1, 64, 65, 96, 97, 200, 513)]
    [64, 64, 96, 96, 128, 256, 768]
    """
    capacity = MIN_CAPACITY
    while capacity < length:
        if capacity * 3 // 2 >= length:
            return capacity * 3 // 2
        capacity *= 2
    return capacity


@dataclass(frozen=True)
class RowsMask(AttentionMask):
    """The tokens of rows with padding at the end, as a mask and as numbers, which change in place."""

    numbers: Tensor | None = None

    @property
    def additive(self) -> Tensor | None:
        """0 at tokens, −∞ at padding (R, 1, 1, S)."""
        return self.numbers

    @property
    def fully_masked(self) -> None:
        """None: every row has a token."""


class CapacityGroup:
    """Keys and values of rows with the same capacity, in its first slots."""

    def __init__(self, capacity: int, shapes: Sequence[tuple[int, int]], heads: int, dtype: torch.dtype) -> None:
        self.capacity = capacity
        self.rows: list[int] = []
        """The row in each slot."""
        self.lengths: list[int] = []
        self._heads = heads
        self.keys = [torch.empty(0, heads, capacity, width, dtype=dtype) for width, _ in shapes]
        self.values = [torch.empty(0, heads, capacity, width, dtype=dtype) for _, width in shapes]
        self._tokens = torch.empty(0, capacity, dtype=torch.bool)
        self._numbers = torch.empty(0, capacity, dtype=dtype)
        self._next_token = torch.empty(0, dtype=torch.long)  # where the next token of each slot goes, in the mask
        self._next_head = torch.empty(0, heads, dtype=torch.long)  # the same in keys and values
        self.mask = RowsMask(1, capacity)
        self.key_positions = torch.arange(capacity)[None]

    def add(self, row: int, length: int, keys: Sequence[Tensor], values: Sequence[Tensor]) -> None:
        """Add a row with the keys and values (G, length, D) of each layer."""
        slot = len(self.rows)
        if slot == len(self._tokens):
            self._grow(max(1, 2 * slot))
        self.rows.append(row)
        self.lengths.append(length)
        for own, new in zip([*self.keys, *self.values], [*keys, *values], strict=True):
            own[slot, :, :length] = new
        self._fill(slot)

    def remove(self, row: int) -> None:
        """Remove a row; the last one takes its slot."""
        slot, last = self.rows.index(row), len(self.rows) - 1
        if slot != last:
            self.rows[slot], self.lengths[slot] = self.rows[last], self.lengths[last]
            for own in (*self.keys, *self.values):
                own[slot, :, : self.lengths[slot]] = own[last, :, : self.lengths[slot]]
            self._fill(slot)
        del self.rows[last], self.lengths[last]

    def take(self, row: int) -> tuple[list[Tensor], list[Tensor]]:
        """Return views of the keys and values of a row, (G, length, D) in each layer."""
        slot = self.rows.index(row)
        keys, values = ([own[slot, :, : self.lengths[slot]] for own in both] for both in (self.keys, self.values))
        return keys, values

    @property
    def size(self) -> int:
        """Tokens for which there is memory."""
        return len(self._tokens) * self.capacity

    def arrange(self) -> None:
        """Prepare the mask after rows have joined or left."""
        count = len(self.rows)
        numbers = self._numbers[:count, None, None]
        self.mask = RowsMask(1, self.capacity, self._tokens[:count], causal=True, numbers=numbers)

    def next_token(self) -> None:
        """Show the next token of every row in the mask."""
        places = self._next_token[: len(self.rows)]
        self._tokens.view(-1).index_fill_(0, places, True)
        self._numbers.view(-1).index_fill_(0, places, 0.0)

    def write(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write the next keys and values (R, G, 1, D) of a layer, and return all of them (R, G, S, D)."""
        count = len(self.rows)
        places = self._next_head[:count].view(-1)
        for own, new in ((self.keys[layer], keys), (self.values[layer], values)):
            width = own.size(3)
            own.view(-1, width).index_copy_(0, places, new.reshape(-1, width))
        return self.keys[layer][:count], self.values[layer][:count]

    def advance(self) -> None:
        """Count the token that has been written."""
        self._next_token[: len(self.rows)] += 1
        self._next_head[: len(self.rows)] += 1
        self.lengths = [length + 1 for length in self.lengths]

    def _fill(self, slot: int) -> None:
        length = self.lengths[slot]
        self._tokens[slot] = False
        self._tokens[slot, :length] = True
        self._numbers[slot] = -torch.inf
        self._numbers[slot, :length] = 0.0
        self._next_token[slot] = slot * self.capacity + length
        self._next_head[slot] = (torch.arange(self._heads) + slot * self._heads) * self.capacity + length

    def _grow(self, slots: int) -> None:
        self.keys, self.values = ([_grown(own, slots) for own in both] for both in (self.keys, self.values))
        self._tokens, self._numbers = _grown(self._tokens, slots), _grown(self._numbers, slots)
        self._next_token, self._next_head = _grown(self._next_token, slots), _grown(self._next_head, slots)


def _grown(old: Tensor, size: int) -> Tensor:
    new = old.new_empty(size, *old.shape[1:])
    new[: len(old)] = old
    new[len(old) :] = 0  # padding has weight 0, but 0 · NaN is NaN
    return new
