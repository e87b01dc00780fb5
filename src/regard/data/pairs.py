"""Sentence pairs on their way from a corpus into a token store, and from the store into a batch.

B examples · S source length · T target length
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.config import SpecialTokensConfig
from regard.data.corpus import Pair
from regard.data.fast_encoder import fast_encoder
from regard.data.parses import END_POSITION, PAD_FEATURE, SYNTAX_FEATURES, TokenFeatures, token_features
from regard.data.store import TokenStore, chunked, write_store
from regard.data.tokenizer import Tokenizer

Ids = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class LengthFilter:
    """Which pairs are fit for training; the others are counted by reason."""

    max_length: int = 256  # tokens on either side
    max_ratio: float = 3.0  # of the longer side to the shorter; pairs of few tokens may differ by more
    lenient_length: int = 10  # tokens up to which the ratio does not count

    def reject_reason(self, source: Sequence[int], target: Sequence[int]) -> str | None:
        """Why a pair is left out; None if it is not.

        >>> LengthFilter(max_length=4).reject_reason([1, 2], [1, 2, 3, 4, 5])
        'too long'
        """
        short, long = sorted((len(source), len(target)))
        if short == 0:
            return "empty"
        if long > self.max_length:
            return "too long"
        return "unequal lengths" if long > self.lenient_length and long > self.max_ratio * short else None


def store_pairs(
    folder: Path,
    pairs: Iterable[Pair],
    tokenizer: Tokenizer,
    fit: LengthFilter,
    about: Mapping[str, Any],
    progress: Callable[[int], None] | None = None,
    *,
    parsed: bool = False,
) -> None:
    """Tokenise pairs as they come, and write those that are fit for training.

    With `parsed`, all of them have parses, and what these tell about the source's tokens becomes further columns.
    `progress` is told every so often how many pairs have been read.
    """
    counts: Counter[str] = Counter(read=0)
    encode = fast_encoder(tokenizer)

    def examples() -> Iterator[tuple[list[int], ...]]:
        for chunk in chunked(pairs, 4096):
            if parsed:
                sources, facts = encode_parsed(chunk, tokenizer)
            else:
                sources, facts = encode([pair.source for pair in chunk]), [{}] * len(chunk)
            targets = encode([pair.target for pair in chunk])
            counts["read"] += len(chunk)
            if progress is not None:
                progress(counts["read"])
            for source, target, known in zip(sources, targets, facts, strict=True):
                fault = fit.reject_reason(source, target)
                counts[fault or "kept"] += 1
                if fault is None:
                    yield source, target, *known.values()

    columns = 2 + len(SYNTAX_FEATURES) if parsed else 2
    write_store(folder, examples(), columns, len(tokenizer), {"counts": counts, **about})


def encode_parsed(pairs: Sequence[Pair], tokenizer: Tokenizer) -> tuple[list[list[int]], list[TokenFeatures]]:
    """The ids of sources that have parses, and the facts about each token."""
    encoded = tokenizer.encode_with_offsets([pair.source for pair in pairs])
    facts = [token_features(pair.parse or (), offsets) for pair, (_, offsets) in zip(pairs, encoded, strict=True)]
    return [ids for ids, _ in encoded], facts


@dataclass(frozen=True)
class PairBatch:
    """A batch for teacher forcing: the decoder reads `[SOS] …` and is to predict `… [EOS]`."""

    source: Ids  # (B, S), ending in [EOS]
    source_mask: Mask
    target: Ids  # (B, T), beginning with [SOS]: the target shifted right
    target_mask: Mask
    labels: Ids  # (B, T), ending in [EOS]
    source_features: dict[str, Ids] = field(default_factory=dict)  # (B, S) by name, where there are parses


def make_pair_batch(store: TokenStore, examples: Ids, tokens: SpecialTokensConfig) -> PairBatch:
    """The batch of these examples of a store."""
    (sources, source_lengths), (targets, target_lengths), *known = (column.gather(examples) for column in store.columns)
    source, source_real = _rectangle(sources, source_lengths, after=[tokens.end], pad_id=tokens.pad)
    target, target_real = _rectangle(targets, target_lengths, before=[tokens.start], pad_id=tokens.pad)
    predicted, _ = _rectangle(targets, target_lengths, after=[tokens.end], pad_id=tokens.pad)
    facts = {
        name: _rectangle(flat, lengths, after=[end], pad_id=PAD_FEATURE)[0]
        for name, end, (flat, lengths) in zip(SYNTAX_FEATURES, END_POSITION, known, strict=False)  # none, or all
    }
    return PairBatch(source, source_real, target, target_real, predicted, facts)


def pair_batch_from_ids(
    sources: Sequence[Ids], targets: Sequence[Ids], tokens: SpecialTokensConfig, facts: Sequence[TokenFeatures] = ()
) -> PairBatch:
    """The batch of sentences that are given as ids."""
    source, source_real = pad_sequences(sources, after=[tokens.end], pad_id=tokens.pad)
    target, target_real = pad_sequences(targets, before=[tokens.start], pad_id=tokens.pad)
    predicted, _ = pad_sequences(targets, after=[tokens.end], pad_id=tokens.pad)
    return PairBatch(source, source_real, target, target_real, predicted, pad_features(facts))


def pad_features(rows: Sequence[TokenFeatures]) -> dict[str, Ids]:
    """The facts about sentences' tokens as rectangles, those of their ends included; nothing where there are none.

    >>> pad_features([{"depth": [0], "preorder": [0], "last_descendant": [1]}])["depth"].tolist()
    [[0, 1]]
    """
    if not rows:
        return {}
    return {
        name: pad_sequences([np.asarray(facts[name], np.int64) for facts in rows], after=[end], pad_id=PAD_FEATURE)[0]
        for name, end in zip(SYNTAX_FEATURES, END_POSITION, strict=True)
    }


def pad_sequences(
    rows: Sequence[NDArray[np.integer]], *, before: Sequence[int] = (), after: Sequence[int] = (), pad_id: int
) -> tuple[Ids, Mask]:
    """Rows of ids as a rectangle, each with `before` and `after` around it, and where it is not padding.

    >>> ids, real = pad_sequences([np.array([7, 8]), np.array([9])], after=[3], pad_id=0)
    >>> ids.tolist(), real.sum(1).tolist()
    ([[7, 8, 3], [9, 3, 0]], [3, 2])
    """
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    return _rectangle(np.concatenate(rows), lengths, before=before, after=after, pad_id=pad_id)


def _rectangle(
    flat: NDArray[np.integer], lengths: Ids, *, before: Sequence[int] = (), after: Sequence[int] = (), pad_id: int
) -> tuple[Ids, Mask]:
    """The same for rows that lie one after the other, all at once: a batch must cost far less than a training step."""
    first, last = len(before), len(before) + lengths  # where each row's own ids begin, and what follows them
    width = int(lengths.max()) + first + len(after)
    place = np.arange(width)
    ids = np.full((len(lengths), width), pad_id, dtype=np.int64)
    ids[:, :first] = before
    ids[(place >= first) & (place < last[:, None])] = flat  # row by row, as they lie
    for n, token in enumerate(after):
        ids[np.arange(len(lengths)), last + n] = token
    return ids, place < (last + len(after))[:, None]
