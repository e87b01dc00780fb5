"""Batches for training: as many examples as fit a budget of tokens, of about equal length, in an order of their own
each epoch.

The plan of an epoch follows from the lengths, the seed and the epoch's number alone, so that a place in the data is
two numbers, and a run that resumes sees exactly what it would have seen.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class DataPosition:
    """Where training stands in the data: the next batch of an epoch."""

    epoch: int = 0
    batch: int = 0


DATA_START = DataPosition()
BATCH_OVERHEAD = 0.2  # what a batch costs besides its tokens, as a share of a full one


@dataclass(frozen=True)
class BatchSampler:
    """Batches of examples whose lengths are known, one row per column: (columns, examples).

    A batch holds at most `tokens` in its longest column, pads included; an example that is longer by itself makes a
    batch of its own. With `world` processes, each takes its own share, and all have equally many.
    """

    lengths: NDArray[np.int64]
    max_tokens: int
    seed: int = 0
    rank: int = 0
    world_size: int = 1

    def epoch(self, number: int) -> list[NDArray[np.int64]]:
        """The examples of each batch, in order, for one process."""
        random = np.random.default_rng([self.seed, number])
        order = self._by_length(random)
        batches = [order[start:end] for start, end in split_by_budget(self.lengths[:, order], self.max_tokens)]
        shuffled = [batches[n] for n in random.permutation(len(batches))]
        even = len(shuffled) // self.world_size * self.world_size or len(shuffled)
        return shuffled[:even][self.rank :: self.world_size]

    def iterate(self, place: DataPosition = DATA_START) -> Iterator[tuple[DataPosition, NDArray[np.int64]]]:
        """Batches from a place on, epoch after epoch without end, each with the place that follows it."""
        while True:
            batches = self.epoch(place.epoch)
            for examples in batches[place.batch :]:
                place = replace(place, batch=place.batch + 1)
                yield place, examples
            place = DataPosition(place.epoch + 1)

    def _by_length(self, random: np.random.Generator) -> NDArray[np.int64]:
        """All examples, short ones first; those of equal lengths in random order.

        Among examples of one longest length, those with a longer source come last, and among those of the next length
        first: a batch that holds the end of one group and the beginning of the next has no gap to pad.
        """
        shuffled = random.permutation(self.lengths.shape[1])
        columns = self.lengths[:, shuffled]
        longest = columns.max(0)
        turn = np.where(longest % 2, 1, -1)
        inner = np.argsort(_short(turn * (columns[0] - columns[-1])), kind="stable")
        return shuffled[inner[np.argsort(_short(longest)[inner], kind="stable")]]


def _short(keys: NDArray[np.int64]) -> NDArray[np.integer]:
    """The same numbers, in 16 bits where they fit: those are sorted several times faster."""
    return keys.astype(np.int16) if np.abs(keys).max(initial=0) < 2**15 else keys


def split_by_budget(lengths: NDArray[np.int64], tokens: int) -> Iterator[tuple[int, int]]:
    """Cut examples (columns, examples), whose longest column rises, into runs that hold at most `tokens` in it.

    A run is as long as may be, unless a shorter one has so many fewer pads that it is worth a batch more: of all its
    possible ends, it takes the one with the largest share of real tokens among all that it costs.

    >>> list(split_by_budget(np.array([[1, 1, 2, 3, 9]]), tokens=6))
    [(0, 2), (2, 4), (4, 5)]
    """
    start, overhead = 0, BATCH_OVERHEAD * tokens * len(lengths)
    while start < lengths.shape[1]:
        most = max(1, tokens // max(1, int(lengths[:, start].max())))  # the longest only rises: it can hold no more
        window = lengths[:, start : start + most]
        end = start + (_best_end(window, tokens, overhead) if (window != window[:, :1]).any() else window.shape[1])
        yield start, end
        start = end


def _best_end(window: NDArray[np.int64], tokens: int, overhead: float) -> int:
    """How many of some examples to take for a run, if each run costs `overhead` besides its tokens."""
    count = np.arange(1, window.shape[1] + 1)
    widest = np.maximum.accumulate(window, axis=1)  # of each column, up to each possible end
    fitting = max(1, int(np.searchsorted(count * widest.max(0), tokens, side="right")))
    share = window.sum(0).cumsum() / (count * widest.sum(0) + overhead)
    return fitting - int(share[:fitting][::-1].argmax())  # of equally good ends, the last
