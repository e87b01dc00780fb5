"""Preparation of sentence pairs: tokenizer and token stores for translation."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.config import Config
from regard.data.batching import encode_parsed
from regard.data.lines import InvalidLines
from regard.data.preparation import (
    REPORT_INTERVAL,
    PreparedData,
    PreparedSplit,
    ReportProgress,
    check_not_empty,
    is_held_out,
    load_or_build_store,
    load_or_train_tokenizer,
    save_texts,
    store_metadata,
    validation_fraction,
)
from regard.data.readers import read_pairs
from regard.data.readers.base import Pair
from regard.data.store import chunked, write_store
from regard.data.syntax import SYNTAX_FEATURES
from regard.data.tokenizer import Tokenizer
from regard.data.word_tokens import fast_encoder
from regard.errors import DataError

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


def prepare_pairs(folder: Path, key: str, config: Config, report: ReportProgress) -> PreparedData:
    """Prepare the tokenizer and the token stores of a translation config."""
    data, held_out = config.data, validation_fraction(config)

    def train_pairs(invalid: InvalidLines) -> Iterator[Pair]:
        return (pair for pair in read_pairs(data.train, invalid) if not is_held_out(pair, held_out))

    def valid_pairs(invalid: InvalidLines) -> Iterator[Pair]:
        if data.valid.has_files:
            return read_pairs(data.valid, invalid)
        uncounted = InvalidLines(data.skip_invalid)  # they were counted with the training data
        return (pair for pair in read_pairs(data.train, uncounted) if is_held_out(pair, held_out))

    def texts() -> Iterator[str]:
        for number, pair in enumerate(train_pairs(InvalidLines(data.skip_invalid)), start=1):
            if number % REPORT_INTERVAL == 0:
                report("training the tokenizer", number)
            yield pair.source
            yield pair.target

    tokenizer = load_or_train_tokenizer(folder, key, config, texts)
    max_length = (config.model.max_length or UNLIMITED) - 1  # the end token has a position too
    train_lengths = LengthFilter(max_length=min(data.max_length, max_length), max_ratio=data.max_length_ratio)
    any_lengths = LengthFilter(max_length=max_length, max_ratio=UNLIMITED)

    def prepare_split(
        name: str, pairs: Callable[[InvalidLines], Iterator[Pair]], lengths: LengthFilter, *, keep_texts: bool
    ) -> PreparedSplit:
        texts_path = folder / f"{name}.jsonl" if keep_texts else None

        def build(place: Path) -> None:
            invalid = InvalidLines(data.skip_invalid)
            passing = save_texts(pairs(invalid), texts_path) if texts_path is not None else pairs(invalid)

            def progress(count: int) -> None:
                report(f"tokenizing {name}", count)

            metadata = store_metadata(key, invalid)
            store_pairs(place, passing, tokenizer, lengths, metadata, progress, parsed=config.model.needs_parses)

        store = load_or_build_store(folder / name, key, build)
        if len(store) == 0 and name == "valid" and not data.valid.has_files:
            raise DataError(
                "no pair was held out for validation, because there are too few different ones; "
                f"raise data.validation_fraction, which is {held_out:g}, or pass --valid."
            )
        return PreparedSplit(check_not_empty(store, name), texts_path, text_columns=2)

    def test_pairs(invalid: InvalidLines) -> Iterator[Pair]:
        return read_pairs(data.test, invalid)

    return PreparedData(
        tokenizer,
        prepare_split("train", train_pairs, train_lengths, keep_texts=False),
        prepare_split("valid", valid_pairs, any_lengths, keep_texts=True),
        prepare_split("test", test_pairs, any_lengths, keep_texts=True) if data.test.has_files else None,
    )


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
    """Tokenize pairs and write those of suitable length to a token store.

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
    encode = fast_encoder(tokenizer)

    def examples() -> Iterator[tuple[list[int], ...]]:
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
                reason = lengths.reject_reason(source, target)
                counts[reason or "kept"] += 1
                if reason is None:
                    yield source, target, *columns.values()

    num_columns = 2 + len(SYNTAX_FEATURES) if parsed else 2
    write_store(folder, examples(), num_columns, len(tokenizer), {"counts": counts, **metadata})
