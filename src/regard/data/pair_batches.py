"""Batches of sentence pairs, and padding.

B examples · S source length · T target length
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from regard.config import SpecialTokensConfig
from regard.data.batching import Ids, Mask
from regard.data.examples import Pair
from regard.data.store import TokenStore
from regard.data.syntax import END_POSITION, PAD_FEATURE, SYNTAX_FEATURES, TokenFeatures, token_features
from regard.data.tokenizer import Tokenizer


@dataclass(frozen=True)
class PairBatch:
    """A batch for teacher forcing: the decoder reads `[SOS] …` and predicts `… [EOS]`."""

    source: Ids  # (B, S), ending in [EOS]
    source_mask: Mask
    target: Ids  # (B, T), beginning with [SOS]: the target shifted right
    target_mask: Mask
    labels: Ids  # (B, T), ending in [EOS]
    source_features: dict[str, Ids] = field(default_factory=dict)  # (B, S) by name, if there are parses


def make_pair_batch(store: TokenStore, examples: Ids, tokens: SpecialTokensConfig) -> PairBatch:
    """Return the batch of these examples of a store."""
    (sources, source_lengths), (targets, target_lengths), *columns = (
        column.gather(examples) for column in store.columns
    )
    source, source_mask = _pad_flat(sources, source_lengths, after=[tokens.end], pad_id=tokens.pad)
    target, target_mask = _pad_flat(targets, target_lengths, before=[tokens.start], pad_id=tokens.pad)
    labels, _ = _pad_flat(targets, target_lengths, after=[tokens.end], pad_id=tokens.pad)
    features = {
        name: _pad_flat(flat, lengths, after=[end], pad_id=PAD_FEATURE)[0]
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
    flat: NDArray[np.integer], lengths: Ids, *, before: Sequence[int] = (), after: Sequence[int] = (), pad_id: int
) -> tuple[Ids, Mask]:
    """Pad concatenated rows without a loop over rows: a batch must cost far less than a training step."""
    first, last = len(before), len(before) + lengths  # where the ids of each row begin and end
    width = int(lengths.max()) + first + len(after)
    positions = np.arange(width)
    ids = np.full((len(lengths), width), pad_id, dtype=np.int64)
    ids[:, :first] = before
    ids[(positions >= first) & (positions < last[:, None])] = flat  # in row-major order, as they are concatenated
    for n, token in enumerate(after):
        ids[np.arange(len(lengths)), last + n] = token
    return ids, positions < (last + len(after))[:, None]
