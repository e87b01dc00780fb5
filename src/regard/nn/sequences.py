"""Sequences taken out of a batch, each to a row of its own without gaps: what a recurrent layer can walk along.

In a batch pads may stand anywhere, and documents may share a row. A recurrent state must pass over the former and must
not pass between the latter, so that both are settled before the first step, and the layers know neither.

B batch · T tokens · R sequences · L the longest of them
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Sequences:
    """Where the tokens of each sequence stand in the batch."""

    slots: Tensor  # (R, L) among the B·T; anywhere past a sequence's end
    lengths: Tensor  # (R,)
    rows: Tensor  # (R,) which row of the batch each is of
    shape: torch.Size  # (B, T)

    @classmethod
    def of(cls, mask: Tensor, documents: Tensor | None = None) -> "Sequences":
        """Those of a batch with real tokens (B, T): one a row, or one for each run of equal numbers in `documents`.

        >>> found = Sequences.of(torch.tensor([[False, True, True], [True, False, False]]))
        >>> found.lengths.tolist(), found.gather(torch.tensor([[[0], [5], [6]], [[7], [0], [0]]])).squeeze(-1).tolist()
        ([2, 1], [[5, 6], [7, 0]])
        """
        batch, length = mask.shape
        row, column = mask.nonzero(as_tuple=True)  # of every real token, in reading order
        number, rows = row, torch.arange(batch, device=mask.device)
        if documents is not None:
            begins = torch.ones_like(row, dtype=torch.bool)
            told = documents[row, column]
            begins[1:] = (row[1:] != row[:-1]) | (told[1:] != told[:-1])
            number, rows = begins.cumsum(0) - 1, row[begins]
        lengths = torch.bincount(number, minlength=len(rows))
        place = torch.arange(len(number), device=mask.device) - (lengths.cumsum(0) - lengths)[number]
        slots = torch.zeros(len(rows), max(1, int(lengths.max())), dtype=torch.long, device=mask.device)
        slots[number, place] = row * length + column
        return cls(slots, lengths, rows, mask.shape)

    def reversed(self) -> "Sequences":
        """The same sequences, each read from its end to its beginning.

        >>> Sequences.of(torch.tensor([[True, True, True], [True, True, False]])).reversed().slots[:, :2].tolist()
        [[2, 1], [4, 3]]
        """
        place = torch.arange(self.slots.size(1), device=self.slots.device)
        return replace(self, slots=self.slots.gather(1, (self.lengths[:, None] - 1 - place).clamp(min=0)))

    def gather(self, x: Tensor) -> Tensor:
        """(B, T, …) -> (R, L, …); what stands past a sequence's end means nothing."""
        return x.flatten(0, 1)[self.slots]

    def scatter(self, x: Tensor) -> Tensor:
        """(R, L, …) -> (B, T, …), zero at pads."""
        within = torch.arange(self.slots.size(1), device=x.device) < self.lengths[:, None]
        batch, length = self.shape
        spread = x.new_zeros(batch * length, *x.shape[2:])
        return spread.index_copy(0, self.slots[within], x[within]).unflatten(0, (batch, length))
