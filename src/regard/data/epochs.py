"""Epochs of a corpus of any size: planned in shards, so that memory does not grow with it, and sampled by weights.

A corpus of up to `PLAN_EXAMPLES` examples is planned as a whole. A larger one is divided into plan shards, each with
every n-th example, which are planned one after the other in a random order. Every epoch follows from the lengths, the
seed and its number. So a position in the data is two numbers, and finding it needs the number of batches of the shards
before it, not their plans.

A corpus of weight w has each of its examples ⌊w⌋ times in an epoch, and once more with probability w − ⌊w⌋, by a hash
of seed, epoch and example.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from regard.data.batching import DATA_START, DataPosition, plan_batches
from regard.data.store import TokenColumn

PLAN_EXAMPLES = 2**20  # planned at once: 76 MB
Ids = NDArray[np.int64]


@dataclass(frozen=True)
class CorpusWeights:
    """Weights of corpora that follow each other in a store, and where each of them ends."""

    ends: Sequence[int]
    weights: Sequence[float]

    def copies(self, examples: Ids, seed: int, epoch: int) -> Ids:
        """Return how often each of these examples occurs in an epoch.

        >>> CorpusWeights([2, 4], [1.0, 2.0]).copies(np.arange(4), seed=0, epoch=0).tolist()
        [1, 1, 2, 2]
        """
        weights = np.asarray(self.weights)[np.searchsorted(self.ends, examples, side="right")]
        whole = np.floor(weights)
        (start,) = np.random.SeedSequence([seed, epoch, len(self.weights)]).generate_state(1, np.uint64)
        chance = (_mix(examples.astype(np.uint64) + start) >> np.uint64(11)) * 2.0**-53
        copies: Ids = (whole + (chance < weights - whole)).astype(np.int64)
        return copies


@dataclass(frozen=True)
class EpochSampler:
    """Batches of the examples of a store; see `BatchSampler` for how they are formed."""

    columns: Sequence[TokenColumn]  # whose lengths count
    max_tokens: int
    seed: int = 0
    extra_tokens: int = 0  # of each example in each column, besides those in the store
    weights: CorpusWeights | None = None
    plan_examples: int = PLAN_EXAMPLES
    _counts: dict[tuple[int, int], int] = field(default_factory=dict, compare=False, repr=False)

    @property
    def num_shards(self) -> int:
        """Number of plan shards."""
        return max(1, -(-len(self.columns[0].ends) // self.plan_examples))

    @property
    def batches_per_epoch(self) -> int:
        """Number of batches of the first epoch; with several plan shards estimated from the first of them."""
        batches = self._count(0, 0)
        if self.num_shards == 1:
            return batches
        total = len(self.columns[0].ends)
        return round(batches * total / len(range(0, total, self.num_shards)))

    def iterate(self, position: DataPosition = DATA_START) -> Iterator[tuple[DataPosition, Ids]]:
        """Yield batches from a position on, epoch after epoch without end, each with the position after it."""
        while True:
            before = 0  # batches of the shards of this epoch so far
            for shard in self._shard_order(position.epoch):
                known = self._known_count(position.epoch, shard)
                if known is not None and before + known <= position.batch:
                    before += known
                    continue
                batches = self._plan(position.epoch, shard)
                for examples in batches[position.batch - before :]:
                    position = replace(position, batch=position.batch + 1)
                    yield position, examples
                before += len(batches)
                del batches
            position = DataPosition(position.epoch + 1)

    def _shard_order(self, epoch: int) -> list[int]:
        if self.num_shards == 1:
            return [0]
        random = np.random.default_rng([self.seed, epoch, self.num_shards])
        return [int(shard) for shard in random.permutation(self.num_shards)]

    def _plan(self, epoch: int, shard: int) -> list[Ids]:
        """Return the examples of each batch of a plan shard."""
        shards = self.num_shards
        lengths = np.stack([_strided_lengths(column, shard, shards) for column in self.columns]) + self.extra_tokens
        random = np.random.default_rng([self.seed, epoch] if shards == 1 else [self.seed, epoch, shard])
        examples = None if shards == 1 else np.arange(shard, len(self.columns[0].ends), shards)
        if self.weights is not None:
            everything = np.arange(lengths.shape[1]) if examples is None else examples
            copies = self.weights.copies(everything, self.seed, epoch)
            examples, lengths = np.repeat(everything, copies), np.repeat(lengths, copies, axis=1)
        batches = plan_batches(lengths, self.max_tokens, random)
        self._counts[self._count_key(epoch, shard)] = len(batches)
        return batches if examples is None else [examples[batch] for batch in batches]

    def _count(self, epoch: int, shard: int) -> int:
        known = self._known_count(epoch, shard)
        return len(self._plan(epoch, shard)) if known is None else known

    def _known_count(self, epoch: int, shard: int) -> int | None:
        return self._counts.get(self._count_key(epoch, shard))

    def _count_key(self, epoch: int, shard: int) -> tuple[int, int]:
        """Without weights every epoch has the same lengths in the same order, and so equally many batches."""
        return (0 if self.weights is None else epoch, shard)


def corpus_weights(corpora: Sequence[int], weights: Sequence[float]) -> CorpusWeights | None:
    """Return the weights of corpora of these numbers of examples; None if all examples occur once.

    >>> corpus_weights([2, 3], [1.0, 1.0]) is None, corpus_weights([2, 3], [1.0, 0.5]).ends
    (True, [2, 5])
    """
    if all(weight == 1 for weight in weights):
        return None
    return CorpusWeights([int(end) for end in np.cumsum(corpora)], weights)


def _strided_lengths(column: TokenColumn, first: int, step: int) -> Ids:
    """Return the lengths of every `step`-th example from `first` on."""
    if step == 1:
        return column.lengths
    ends = column.ends[first::step]
    starts = column.ends[first - 1 :: step] if first else np.concatenate([[0], column.ends[step - 1 :: step]])
    lengths: Ids = ends - starts[: len(ends)]
    return lengths


def _mix(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return pseudo-random bits for each number (SplitMix64)."""
    with np.errstate(over="ignore"):
        bits = (bits + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return bits ^ (bits >> np.uint64(31))
