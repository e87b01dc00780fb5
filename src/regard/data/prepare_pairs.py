"""Preparation of sentence pairs: tokenizer and token stores for translation."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from regard.config import Config, CorpusConfig
from regard.data.batching import encode_parsed
from regard.data.corpus_scan import REPORT_INTERVAL, ReportProgress
from regard.data.lines import InvalidLines
from regard.data.preparation import (
    PreparedData,
    PreparedSplit,
    check_not_empty,
    is_held_out,
    load_or_build_stores,
    load_or_train_tokenizer,
    num_workers,
    store_metadata,
    texts_as_json,
    validation_fraction,
)
from regard.data.readers import read_pairs, read_parts
from regard.data.readers.base import Pair
from regard.data.shards import (
    SHARDS_FOLDER,
    Chunk,
    Encoded,
    EncodedRows,
    ShardedBuild,
    SplitTarget,
    encoded_rows,
)
from regard.data.store import chunked, write_store
from regard.data.syntax import SYNTAX_FEATURES
from regard.data.tokenizer import Tokenizer
from regard.data.word_tokens import Encode, fast_encoder
from regard.errors import DataError

Row = Sequence[Sequence[int]]  # the ids of an example in each column
CHUNK = 4096  # pairs that are tokenized at once
UNLIMITED = 2**31


@dataclass(frozen=True)
class LengthFilter:
    """Leaves out pairs that are too long, or whose sides differ too much in length."""

    max_length: int = 256  # tokens of either side
    max_ratio: float = 3.0  # of the longer side to the shorter
    lenient_length: int = 10  # tokens of the longer side up to which any ratio is accepted

    def reject_reason(self, source: Sequence[int], target: Sequence[int]) -> str | None:
        """Return why a pair is left out; None if it is kept.

        >>> LengthFilter(max_length=4).reject_reason([1, 2], [1, 2, 3, 4, 5])
        'too long'
        """
        short, long = sorted((len(source), len(target)))
        if short == 0:
            return "empty"
        if long > self.max_length:
            return "too long"
        return "unequal lengths" if long > self.lenient_length and long > self.max_ratio * short else None


@dataclass
class PairEncoder:
    """Tokenizes a shard of pairs, and separates the training pairs from those that are held out."""

    tokenizer: Tokenizer
    lengths: Mapping[str, LengthFilter]  # by split
    split: str  # of pairs that are not held out
    held_out: float = 0.0  # fraction of pairs that are validation data
    keep_texts: Collection[str] = ()  # splits whose texts are kept
    parsed: bool = False  # all pairs have parses
    corpora: int = 1

    def __call__(self, chunk: Chunk[Pair]) -> Encoded:
        """Return the rows of each split."""
        parts: dict[str, Chunk[Pair]] = {name: [] for name in self.lengths}
        for item in chunk:
            parts["valid" if is_held_out(item[1], self.held_out) else self.split].append(item)
        return {name: self._encode(name, part) for name, part in parts.items()}

    def _encode(self, name: str, part: Chunk[Pair]) -> EncodedRows:
        counts: Counter[str] = Counter(read=0)
        corpora = [0] * self.corpora
        rows: list[Row] = []
        encoded = encode_pairs((pair for _, pair in part), self._encoder, self.tokenizer, counts, self.parsed)
        for (corpus, _), row in zip(part, encoded, strict=True):
            reason = self.lengths[name].reject_reason(row[0], row[1])
            counts[reason or "kept"] += 1
            if reason is None:
                rows.append(row)
                corpora[corpus] += 1
        texts = b"".join(texts_as_json(pair) for _, pair in part) if name in self.keep_texts else b""
        return encoded_rows(rows, num_columns(self.parsed), len(self.tokenizer), counts, texts, corpora)

    @cached_property
    def _encoder(self) -> Encode:
        return fast_encoder(self.tokenizer)


def prepare_pairs(folder: Path, key: str, config: Config, report: ReportProgress) -> PreparedData:
    """Prepare the tokenizer and the token stores of a translation config."""
    data, held_out, parsed = config.data, validation_fraction(config), config.model.needs_parses

    def examples() -> Iterator[tuple[str, str]]:
        for number, pair in enumerate(read_pairs(data.train, InvalidLines(data.skip_invalid)), start=1):
            if number % REPORT_INTERVAL == 0:
                report("training the tokenizer", number)
            yield pair.source, pair.target

    def texts(pair: Sequence[str]) -> Sequence[str]:
        return () if is_held_out(Pair(*pair), held_out) else pair

    tokenizer = load_or_train_tokenizer(folder, key, config, examples, texts)
    max_length = (config.model.max_length or UNLIMITED) - 1  # the end token has a position too
    train_lengths = LengthFilter(max_length=min(data.max_length, max_length), max_ratio=data.max_length_ratio)
    any_lengths = LengthFilter(max_length=max_length, max_ratio=UNLIMITED)

    def prepare_splits(corpus: CorpusConfig, lengths: dict[str, LengthFilter], held_out: float) -> list[PreparedSplit]:
        split, *_ = lengths
        paths = {name: folder / f"{name}.jsonl" for name in lengths if name != "train"}

        def build() -> None:
            invalid = InvalidLines(data.skip_invalid)
            encoder = PairEncoder(tokenizer, lengths, split, held_out, list(paths), parsed, corpus.num_parts)
            targets = {
                name: SplitTarget(folder / name, num_columns(parsed), len(tokenizer), paths.get(name))
                for name in lengths
            }
            job = ShardedBuild(
                folder / SHARDS_FOLDER / split,
                key,
                encoder,
                targets,
                lambda pair: len(pair.source) + len(pair.target),
                num_workers(config),
                data.cluster,
            )
            uncounted = InvalidLines(data.skip_invalid)  # they are counted with the training data
            job.run(
                read_parts(corpus, lambda part: read_pairs(part, invalid)),
                lambda name: store_metadata(key, invalid if name == split else uncounted),
                lambda count: report(f"tokenizing {split}", count),
            )

        stores = load_or_build_stores([folder / name for name in lengths], key, build)
        return [
            PreparedSplit(store, paths.get(name), text_columns=2) for name, store in zip(lengths, stores, strict=True)
        ]

    if data.valid.has_files:
        (train,) = prepare_splits(data.train, {"train": train_lengths}, 0.0)
        check_not_empty(train.store, "train")
        (valid,) = prepare_splits(data.valid, {"valid": any_lengths}, 0.0)
    else:
        train, valid = prepare_splits(data.train, {"train": train_lengths, "valid": any_lengths}, held_out)
        check_not_empty(train.store, "train")
        if len(valid.store) == 0:
            raise DataError(
                "no pair was held out for validation, because there are too few different ones; "
                f"raise data.validation_fraction, which is {held_out:g}, or pass --valid."
            )
    check_not_empty(valid.store, "valid")
    test = None
    if data.test.has_files:
        (test,) = prepare_splits(data.test, {"test": any_lengths}, 0.0)
        check_not_empty(test.store, "test")
    return PreparedData(tokenizer, train, valid, test)


def num_columns(parsed: bool) -> int:
    """Return the number of columns of a store of pairs."""
    return 2 + len(SYNTAX_FEATURES) if parsed else 2


def encode_pairs(
    pairs: Iterable[Pair],
    encode: Encode,
    tokenizer: Tokenizer,
    counts: Counter[str],
    parsed: bool,
    progress: Callable[[int], None] | None = None,
) -> Iterator[Row]:
    """Yield the ids of each pair: source, target and, with parses, the features of the source; count pairs."""
    for chunk in chunked(pairs, CHUNK):
        if parsed:
            sources, features = encode_parsed(chunk, tokenizer)
        else:
            sources, features = encode([pair.source for pair in chunk]), [{}] * len(chunk)
        targets = encode([pair.target for pair in chunk])
        counts["read"] += len(chunk)
        if progress is not None:
            progress(counts["read"])
        for source, target, columns in zip(sources, targets, features, strict=True):
            yield source, target, *columns.values()


def store_pairs(
    folder: Path,
    pairs: Iterable[Pair],
    tokenizer: Tokenizer,
    lengths: LengthFilter,
    metadata: Mapping[str, Any],
    progress: Callable[[int], None] | None = None,
    *,
    parsed: bool = False,
) -> None:
    """Tokenize pairs and write those of suitable length to a token store, without shards and workers.

    Args:
        folder: the folder of the store.
        pairs: the pairs, which are read once.
        tokenizer: the tokenizer of both sides.
        lengths: which pairs are left out.
        metadata: what is saved with the store.
        progress: called with the number of pairs that have been read.
        parsed: all pairs have parses, whose features become further columns.
    """
    counts: Counter[str] = Counter(read=0)

    def rows() -> Iterator[Row]:
        for row in encode_pairs(pairs, fast_encoder(tokenizer), tokenizer, counts, parsed, progress):
            reason = lengths.reject_reason(row[0], row[1])
            counts[reason or "kept"] += 1
            if reason is None:
                yield row

    write_store(folder, rows(), num_columns(parsed), len(tokenizer), {"counts": counts, **metadata})
