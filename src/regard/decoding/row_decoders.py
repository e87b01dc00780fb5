"""Decoders for rows that join and leave at any token: what a running batch of texts needs of a network.

`CohortDecoder` is the reference, for every network on every device: rows of one prompt take their steps together, and
others on their own. `BatchedDecoder` takes one step for all rows, with the same numbers for each of them.

R rows · V vocabulary
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from regard.decoding.incremental import IncrementalDecoder, mean_logits
from regard.models.network import Network, NetworkRows


class RowDecoder(Protocol):
    """Decodes rows, each of which has a number."""

    @property
    def rows(self) -> Sequence[int]:
        """The numbers of the rows, in the order of the next step; it changes with every step."""
        ...

    def threads(self, rows: int) -> int:
        """Return how many threads should compute a step of this many rows."""
        ...

    def add(self, row: int, prompt: IncrementalDecoder) -> None:
        """Add a row that continues a prompt, which has been decoded alone; its decoder stays as it is."""
        ...

    def remove(self, rows: Iterable[int]) -> None:
        """Remove rows."""
        ...

    def step(self, tokens: Sequence[int]) -> Tensor:
        """Feed the next token of each row, in the order of `rows`, and return the logits (R, V) after it."""
        ...


def new_row_decoder(networks: Sequence[Network]) -> RowDecoder:
    """Return a decoder without rows for a network, or for an ensemble that shares a vocabulary."""
    batches = [batch for network in networks if (batch := network.new_row_batch()) is not None]
    return BatchedDecoder(batches) if len(batches) == len(networks) else CohortDecoder()


class BatchedDecoder:
    """Decodes all rows in one step of each network."""

    def __init__(self, batches: Sequence[NetworkRows]) -> None:
        self._batches = batches

    @property
    def rows(self) -> Sequence[int]:
        """The numbers of the rows, in the order of the next step."""
        return self._batches[0].rows  # all have the same: it depends on the lengths only

    def threads(self, rows: int) -> int:
        """Return the most that one of the networks should have."""
        return max(batch.threads(rows) for batch in self._batches)

    def add(self, row: int, prompt: IncrementalDecoder) -> None:
        """Add a row."""
        for batch, cache in zip(self._batches, prompt.caches, strict=True):
            batch.add(row, cache)

    def remove(self, rows: Iterable[int]) -> None:
        """Remove rows."""
        removed = list(rows)
        for batch in self._batches:
            batch.remove(removed)

    def step(self, tokens: Sequence[int]) -> Tensor:
        """Feed the next token of each row."""
        return mean_logits([batch.step(tokens).float() for batch in self._batches])


class CohortDecoder:
    """Decodes rows of the same prompt together if they joined one after the other, and all others on their own."""

    def __init__(self) -> None:
        self._cohorts: list[tuple[list[int], IncrementalDecoder]] = []
        self._joining: IncrementalDecoder | None = None  # the prompt of the last cohort, until it takes a step

    @property
    def rows(self) -> Sequence[int]:
        """The numbers of the rows, in the order of the next step."""
        return [row for rows, _ in self._cohorts for row in rows]

    def threads(self, rows: int) -> int:
        """Return those that PyTorch has."""
        return torch.get_num_threads()

    def add(self, row: int, prompt: IncrementalDecoder) -> None:
        """Add a row."""
        if self._joining is prompt:
            rows = [*self._cohorts.pop()[0], row]
        else:
            rows, self._joining = [row], prompt
        self._cohorts.append((rows, prompt.repeated(len(rows))))

    def remove(self, rows: Iterable[int]) -> None:
        """Remove rows."""
        removed, cohorts = set(rows), []
        for numbers, decoder in self._cohorts:
            kept = [place for place, row in enumerate(numbers) if row not in removed]
            if kept and len(kept) < len(numbers):
                places = torch.tensor(kept, device=decoder.device)
                decoder.select(places, places)
            if kept:
                cohorts.append(([numbers[place] for place in kept], decoder))
        self._cohorts, self._joining = cohorts, None

    def step(self, tokens: Sequence[int]) -> Tensor:
        """Feed the next token of each row."""
        self._joining = None
        logits, start = [], 0
        for rows, decoder in self._cohorts:
            ids = torch.tensor(tokens[start : start + len(rows)], device=decoder.device)
            logits.append(decoder.step(ids[:, None]))
            start += len(rows)
        return torch.cat(logits)
