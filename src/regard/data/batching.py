"""Batches of sentence pairs of similar length within a budget of tokens, in a different order each epoch; padding.

The batches of an epoch follow from the lengths, the seed and the number of the epoch. A position in the data is
therefore two numbers, and a resumed run sees the same batches as one that was not interrupted.

B examples · S source length · T target length
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from regard.config import SpecialTokensConfig
from regard.data.readers.base import Pair
from regard.data.store import TokenStore
from regard.data.syntax import END_POSITION, PAD_FEATURE, SYNTAX_FEATURES, TokenFeatures, token_features
from regard.data.tokenizer import Tokenizer

Ids = NDArray[np.int64]
Mask = NDArray[np.bool_]  # True at tokens, False at padding
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
    rows: Sequence[NDArray[np.integer]], *, before: Sequence[int] = (), after: Sequence[int] = (), pad_id: int
) -> tuple[Ids, Mask]:
    """Pad rows of ids to equal length, each with the ids `before` and `after` around it; return ids and mask.

    >>> ids, mask = pad_sequences([np.array([7, 8]), np.array([9])], after=[3], pad_id=0)
    >>> ids.tolist(), mask.sum(1).tolist()
    ([[7, 8, 3], [9, 3, 0]], [3, 2])
    """
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    return _pad_flat(np.concatenate(rows), lengths, before=before, after=after, pad_id=pad_id)


def _pad_flat(
    flat: NDArray[np.integer],
    lengths: Ids,
    *,
    before: Sequence[int] = (),
    after: Sequence[int] = (),
    pad_id: int,
    longest: int | None = None,
) -> tuple[Ids, Mask]:
    """Pad concatenated rows without a loop over rows: a batch must cost far less than a training step.

    `longest` is the length of the longest row of the whole batch, if these are only some of its rows.
    """
    first, last = len(before), len(before) + lengths  # where the ids of each row begin and end
    width = (int(lengths.max()) if longest is None else longest) + first + len(after)
    positions = np.arange(width)
    ids = np.full((len(lengths), width), pad_id, dtype=np.int64)
    ids[:, :first] = before
    ids[(positions >= first) & (positions < last[:, None])] = flat  # in row-major order, as they are concatenated
    for n, token in enumerate(after):
        ids[np.arange(len(lengths)), last + n] = token
    return ids, positions < (last + len(after))[:, None]
