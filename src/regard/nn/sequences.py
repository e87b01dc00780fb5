"""The sequences of a batch that recurrent layers run along: one per row, or one for each document of a row.

Places and lengths are computed on the CPU, from the batch's copy of its mask, and copied to the device of the network.
PyTorch's `pack_padded_sequence` would wait for a GPU there.

B batch · T tokens · R sequences · L length of the longest sequence · N tokens without padding
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from regard.nn.layout import PaddingMask, copied_to, host_feature


@dataclass(frozen=True)
class Lengths:
    """The lengths of sequences (R, L), and the order of their steps in a `PackedSequence`.

    A packed sequence has the first steps of all sequences, then the second steps, and so on, each time from the longest
    sequence to the shortest. A sequence of length 0 is packed with one step, whose result is not used.
    """

    host: Tensor  # (R,) on the CPU
    longest: int  # L
    device: torch.device

    @cached_property
    def values(self) -> Tensor:
        """(R,) on the device of the network."""
        return copied_to(self.device, self.host)

    @cached_property
    def _order(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(N,) places of the packed steps among the R·L, (L,) how many sequences have each step, on the CPU, and (R,)
        the sequences from longest to shortest, and the rank of each among them.
        """
        lengths, order = self.host.clamp(min=1).sort(descending=True, stable=True)
        within = torch.arange(int(lengths[0]), device="cpu")[:, None] < lengths  # (L, R)
        step, rank = within.nonzero(as_tuple=True)
        places = order[rank] * self.longest + step
        return (
            copied_to(self.device, places),
            within.sum(1),
            copied_to(self.device, order),
            copied_to(self.device, order.argsort()),
        )

    def pack(self, x: Tensor) -> PackedSequence:
        """(R, L, …) -> the packed steps (N, …)"""
        places, sizes, order, ranks = self._order
        return PackedSequence(x.flatten(0, 1).index_select(0, places), sizes, order, ranks)

    def pad(self, packed: PackedSequence) -> Tensor:
        """Packed steps (N, …) -> (R, L, …), zero past the end of a sequence"""
        data = packed.data
        padded = data.new_zeros(len(self.host) * self.longest, *data.shape[1:])
        return padded.index_copy(0, self._order[0], data).unflatten(0, (-1, self.longest))

    def choose(self, moved: Tensor, kept: Tensor) -> Tensor:
        """Return the rows (R, …) of sequences that have any step from one tensor, and the others from another."""
        return moved.where((self.values > 0)[:, None], kept)


@dataclass(frozen=True)
class Sequences:
    """The sequences of a batch, each in a row of its own without gaps.

    In a batch padding may be anywhere, and documents may share a row. A recurrent state must skip the former and must
    not pass between the latter; both are handled here, so that layers see plain sequences.
    """

    host_slots: Tensor  # (R, L) places of the tokens among the B·T, on the CPU; arbitrary past the end of a sequence
    lengths: Lengths
    host_rows: Tensor  # (R,) the row of the batch that each sequence is in, on the CPU
    host_filled: Tensor  # (N,) places of the tokens among the R·L, on the CPU
    shape: torch.Size  # (B, T)

    @classmethod
    def of(cls, padding: PaddingMask, documents: Tensor | None = None) -> "Sequences":
        """Return the sequences of a mask (B, T): one per row, or one for each run of equal numbers in `documents`.

        The documents (B, T) are on the CPU.

        >>> sequences = Sequences.of(PaddingMask.of(torch.tensor([[False, True, True], [True, False, False]])))
        >>> sequences.lengths.host.tolist()
        [2, 1]
        >>> sequences.gather(torch.tensor([[[0], [5], [6]], [[7], [0], [0]]])).squeeze(-1).tolist()
        [[5, 6], [7, 0]]
        """
        host, device = padding.host, padding.tokens.device
        batch, length = host.shape
        row, column = host.nonzero(as_tuple=True)  # of every token, row by row
        number, rows = row, torch.arange(batch, device="cpu")
        if documents is not None:
            starts = torch.ones_like(row, dtype=torch.bool)
            document = documents[row, column]
            starts[1:] = (row[1:] != row[:-1]) | (document[1:] != document[:-1])
            number, rows = starts.cumsum(0) - 1, row[starts]
        lengths = torch.bincount(number, minlength=len(rows))
        place = torch.arange(len(number), device="cpu") - (lengths.cumsum(0) - lengths)[number]
        slots = torch.zeros(len(rows), max(1, int(lengths.max())), dtype=torch.long, device="cpu")
        slots[number, place] = row * length + column
        filled = number * slots.size(1) + place
        return cls(slots, Lengths(lengths, slots.size(1), device), rows, filled, host.shape)

    def reversed(self) -> "Sequences":
        """Return the same sequences, each from its end to its beginning.

        >>> mask = PaddingMask.of(torch.tensor([[True, True, True], [True, True, False]]))
        >>> Sequences.of(mask).reversed().slots[:, :2].tolist()
        [[2, 1], [4, 3]]
        """
        place = self.lengths.host[:, None] - 1 - torch.arange(self.lengths.longest, device="cpu")
        slots = self.host_slots.gather(1, place.clamp(min=0))
        return Sequences(slots, self.lengths, self.host_rows, self.host_filled, self.shape)

    @cached_property
    def slots(self) -> Tensor:
        """(R, L) places of the tokens among the B·T, on the device of the network."""
        return copied_to(self.lengths.device, self.host_slots)

    @cached_property
    def rows(self) -> Tensor:
        """(R,) the row of the batch that each sequence is in, on the device of the network."""
        return copied_to(self.lengths.device, self.host_rows)

    @cached_property
    def _token_places(self) -> tuple[Tensor, Tensor]:
        """Of every token (N,), its place among the R·L and its place among the B·T."""
        slots = self.host_slots.flatten()[self.host_filled]
        return copied_to(self.lengths.device, self.host_filled), copied_to(self.lengths.device, slots)

    def gather(self, x: Tensor) -> Tensor:
        """(B, T, …) -> (R, L, …); values past the end of a sequence are arbitrary."""
        return x.flatten(0, 1)[self.slots]

    def scatter(self, x: Tensor) -> Tensor:
        """(R, L, …) -> (B, T, …), zero at padding."""
        (batch, length), (filled, slots) = self.shape, self._token_places
        spread = x.new_zeros(batch * length, *x.shape[2:])
        return spread.index_copy(0, slots, x.flatten(0, 1).index_select(0, filled)).unflatten(0, (batch, length))


def find_sequences(padding: PaddingMask | None, features: Mapping[str, Tensor], x: Tensor) -> Sequences | None:
    """Return the sequences of tokens x (B, T, …); None if every row is one, without padding.

    The feature `document_ids` (B, T), if there is one, numbers the documents that share a row.
    """
    if "document_ids" not in features:
        return None if padding is None else Sequences.of(padding)
    if padding is None:
        ones = torch.ones(x.shape[:2], dtype=torch.bool, device="cpu")
        padding = PaddingMask(ones.to(x.device), ones)
    return Sequences.of(padding, host_feature(features, "document_ids"))
