"""Batches of sentence pairs of similar length within a budget of tokens, in a different order each epoch; padding.

The batches of an epoch follow from the lengths, the seed and the number of the epoch. A position in the data is
therefore two numbers, and a resumed run sees the same batches as one that was not interrupted.

`EpochSampler` plans the epochs of a corpus of any size. A corpus of up to `PLAN_EXAMPLES` examples is planned as a
whole. A larger one is divided into plan shards, each with every n-th example, which are planned one after the other in
a random order, so that memory does not grow with it; finding a position needs the number of batches of the shards
before it, not their plans. A corpus of weight w has each of its examples ⌊w⌋ times in an epoch, and once more with
probability w − ⌊w⌋, by a hash of seed, epoch and example.

B examples · S source length · T target length
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from regard.config import SpecialTokensConfig
from regard.data.readers.base import Pair
from regard.data.store import TokenColumn, TokenStore
from regard.data.syntax import END_POSITION, PAD_FEATURE, SYNTAX_FEATURES, TokenFeatures, token_features
from regard.data.tokenizer import Tokenizer

Ids = NDArray[np.int64]
Mask = NDArray[np.bool_]  # True at tokens, False at padding
PLAN_EXAMPLES = 2**20  # planned at once: 76 MB
BATCH_OVERHEAD = 0.2  # cost of a batch apart from its tokens, as a fraction of a full batch


@dataclass(frozen=True)
class DataPosition:
    """Position of training in the data: the next batch of an epoch."""

    epoch: int = 0
    batch: int = 0


DATA_START = DataPosition()


@dataclass(frozen=True)
class BatchSampler:
    """Batches of examples, given their lengths of shape (columns, examples).

    A batch has at most `max_tokens` in its longest column, padding included; an example that is longer makes a batch of
    its own. With several processes, each takes its own part of the batches, and all have equally many.
    """

    lengths: NDArray[np.int64]
    max_tokens: int
    seed: int = 0
    rank: int = 0
    world_size: int = 1

    def epoch(self, number: int) -> list[NDArray[np.int64]]:
        """Return the examples of each batch of an epoch, for this process."""
        shuffled = plan_batches(self.lengths, self.max_tokens, np.random.default_rng([self.seed, number]))
        even = len(shuffled) // self.world_size * self.world_size or len(shuffled)
        return shuffled[:even][self.rank :: self.world_size]

    def iterate(self, position: DataPosition = DATA_START) -> Iterator[tuple[DataPosition, NDArray[np.int64]]]:
        """Yield batches from a position on, epoch after epoch without end, each with the position after it."""
        while True:
            batches = self.epoch(position.epoch)
            for examples in batches[position.batch :]:
                position = replace(position, batch=position.batch + 1)
                yield position, examples
            position = DataPosition(position.epoch + 1)


def plan_batches(lengths: NDArray[np.int64], max_tokens: int, random: np.random.Generator) -> list[NDArray[np.int64]]:
    """Return batches of examples of similar lengths (columns, examples), in random order."""
    order = _sort_by_length(lengths, random)
    batches = [order[start:end] for start, end in split_by_budget(lengths[:, order], max_tokens)]
    return [batches[n] for n in random.permutation(len(batches))]


def _sort_by_length(lengths: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
    """Return all examples, the shortest first; those of equal lengths in random order.

    Among examples with the same longest column, those with a longer source come last, and with the next longest column
    first: a batch that crosses from one group to the next then needs little padding.
    """
    shuffled = random.permutation(lengths.shape[1])
    columns = lengths[:, shuffled]
    longest = columns.max(0)
    direction = np.where(longest % 2, 1, -1)
    inner = np.argsort(_as_int16(direction * (columns[0] - columns[-1])), kind="stable")
    return shuffled[inner[np.argsort(_as_int16(longest)[inner], kind="stable")]]


def _as_int16(keys: NDArray[np.int64]) -> NDArray[np.integer]:
    """Return the keys in 16 bits if they fit: these are sorted several times faster."""
    return keys.astype(np.int16) if np.abs(keys).max(initial=0) < 2**15 else keys


def split_by_budget(lengths: NDArray[np.int64], max_tokens: int) -> Iterator[tuple[int, int]]:
    """Split examples (columns, examples), sorted by their longest column, into runs of at most `max_tokens`.

    Of all ends that fit, a run takes the one with the most real tokens per cost: a shorter run than possible is better
    if it saves enough padding.

    >>> list(split_by_budget(np.array([[1, 1, 2, 3, 9]]), max_tokens=6))
    [(0, 2), (2, 4), (4, 5)]
    """
    start, overhead = 0, BATCH_OVERHEAD * max_tokens * len(lengths)
    while start < lengths.shape[1]:
        most = max(1, max_tokens // max(1, int(lengths[:, start].max())))  # lengths only grow, so no more can fit
        window = lengths[:, start : start + most]
        size = _best_size(window, max_tokens, overhead) if (window != window[:, :1]).any() else window.shape[1]
        yield start, start + size
        start += size


def _best_size(window: NDArray[np.int64], max_tokens: int, overhead: float) -> int:
    """Return how many of these examples to take, if each run costs `overhead` apart from its tokens."""
    count = np.arange(1, window.shape[1] + 1)
    widest = np.maximum.accumulate(window, axis=1)  # of each column, up to each possible end
    fitting = max(1, int(np.searchsorted(count * widest.max(0), max_tokens, side="right")))
    efficiency = window.sum(0).cumsum() / (count * widest.sum(0) + overhead)
    return fitting - int(efficiency[:fitting][::-1].argmax())  # of equally good ends, the last


@dataclass(frozen=True)
class PairBatch:
    """A batch for teacher forcing: the decoder reads `[SOS] …` and predicts `… [EOS]`."""

    source: Ids  # (B, S), ending in [EOS]
    source_mask: Mask
    target: Ids  # (B, T), beginning with [SOS]: the target shifted right
    target_mask: Mask
    labels: Ids  # (B, T), ending in [EOS]
    source_features: dict[str, Ids] = field(default_factory=dict)  # (B, S) by name, if there are parses


def make_pair_batch(
    store: TokenStore, examples: Ids, tokens: SpecialTokensConfig, rank: int = 0, world_size: int = 1
) -> PairBatch:
    """Return the batch of these examples of a store, or the rows of it that one of several processes takes.

    Only these rows are read; they are padded as in the whole batch.
    """
    widths = [int(column.lengths_of(examples).max()) for column in store.columns] if world_size > 1 else [None, None]
    (sources, source_lengths), (targets, target_lengths), *columns = (
        column.gather(examples[rank::world_size]) for column in store.columns
    )
    pad, (source_width, target_width) = tokens.pad, widths[:2]
    source, source_mask = _pad_flat(sources, source_lengths, after=[tokens.end], pad_id=pad, longest=source_width)
    target, target_mask = _pad_flat(targets, target_lengths, before=[tokens.start], pad_id=pad, longest=target_width)
    labels, _ = _pad_flat(targets, target_lengths, after=[tokens.end], pad_id=pad, longest=target_width)
    features = {
        name: _pad_flat(flat, lengths, after=[end], pad_id=PAD_FEATURE, longest=source_width)[0]
        for name, end, (flat, lengths) in zip(SYNTAX_FEATURES, END_POSITION, columns, strict=False)  # none, or all
    }
    return PairBatch(source, source_mask, target, target_mask, labels, features)


def gather_padded(
    column: TokenColumn, examples: Ids, pad_id: int, rank: int = 0, world_size: int = 1
) -> tuple[Ids, Mask]:
    """Return the padded ids (B, T) and mask of examples, or the rows of one of several processes, as in `PairBatch`."""
    longest = int(column.lengths_of(examples).max()) if world_size > 1 else None
    return _pad_flat(*column.gather(examples[rank::world_size]), pad_id=pad_id, longest=longest)


def pair_batch_from_ids(
    sources: Sequence[Ids], targets: Sequence[Ids], tokens: SpecialTokensConfig, features: Sequence[TokenFeatures] = ()
) -> PairBatch:
    """Return the batch of sentences, given as rows of ids, with the features of the sources if there are any."""
    source, source_mask = pad_sequences(sources, after=[tokens.end], pad_id=tokens.pad)
    target, target_mask = pad_sequences(targets, before=[tokens.start], pad_id=tokens.pad)
    labels, _ = pad_sequences(targets, after=[tokens.end], pad_id=tokens.pad)
    return PairBatch(source, source_mask, target, target_mask, labels, pad_features(features))


def encode_parsed(pairs: Sequence[Pair], tokenizer: Tokenizer) -> tuple[list[list[int]], list[TokenFeatures]]:
    """Return the ids of sources that have parses, and the features of each token."""
    encoded = tokenizer.encode_with_offsets([pair.source for pair in pairs])
    features = [token_features(pair.parse or (), offsets) for pair, (_, offsets) in zip(pairs, encoded, strict=True)]
    return [ids for ids, _ in encoded], features


def pad_features(rows: Sequence[TokenFeatures]) -> dict[str, Ids]:
    """Return the features of sentences as padded arrays, with those of the end tokens; empty if there are none.

    >>> pad_features([{"depth": [0], "preorder": [0], "last_descendant": [1]}])["depth"].tolist()
    [[0, 1]]
    """
    if not rows:
        return {}
    return {
        name: pad_sequences([np.asarray(row[name], np.int64) for row in rows], after=[end], pad_id=PAD_FEATURE)[0]
        for name, end in zip(SYNTAX_FEATURES, END_POSITION, strict=True)
    }


def pad_sequences(
    rows: Sequence[NDArray[np.integer]],
    *,
    before: Sequence[int] = (),
    after: Sequence[int] = (),
    pad_id: int,
    longest: int | None = None,
) -> tuple[Ids, Mask]:
    """Pad rows of ids to equal length, each with the ids `before` and `after` around it; return ids and mask.

    `longest` is the length of the longest row of the whole batch, if these are only some of its rows.

    >>> ids, mask = pad_sequences([np.array([7, 8]), np.array([9])], after=[3], pad_id=0)
    >>> ids.tolist(), mask.sum(1).tolist()
    ([[7, 8, 3], [9, 3, 0]], [3, 2])
    """
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    flat = np.concatenate([*rows, np.empty(0, np.int64)])
    return _pad_flat(flat, lengths, before=before, after=after, pad_id=pad_id, longest=longest)


def _pad_flat(
    flat: NDArray[np.integer],
    lengths: Ids,
    *,
    before: Sequence[int] = (),
    after: Sequence[int] = (),
    pad_id: int,
    longest: int | None = None,
) -> tuple[Ids, Mask]:
    """Pad concatenated rows without a loop over rows: a batch must cost far less than a training step."""
    first, last = len(before), len(before) + lengths  # where the ids of each row begin and end
    width = (int(lengths.max(initial=0)) if longest is None else longest) + first + len(after)
    positions = np.arange(width)
    ids = np.full((len(lengths), width), pad_id, dtype=np.int64)
    ids[:, :first] = before
    ids[(positions >= first) & (positions < last[:, None])] = flat  # in row-major order, as they are concatenated
    for n, token in enumerate(after):
        ids[np.arange(len(lengths)), last + n] = token
    return ids, positions < (last + len(after))[:, None]


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

    def of_parts(self, parts: Ids) -> "CorpusWeights":
        """Return the same weights for the parts of examples, given how many parts each example has.

        >>> list(CorpusWeights([2, 4], [1.0, 2.0]).of_parts(np.array([1, 3, 1, 2])).ends)
        [4, 7]
        """
        before = np.concatenate([[0], parts.cumsum()])
        return CorpusWeights(before[np.minimum(self.ends, len(parts))].tolist(), self.weights)


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
