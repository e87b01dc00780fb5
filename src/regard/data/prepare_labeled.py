"""Preparation of labeled texts and tagged sentences: tokenizer, labels and token stores.

The store of a classifier has three columns: the input (`[start] text [end]`), the label, and how many of its last
tokens belong to a second text. The store of a tagger has two: the input, and for each token 0, or 1 + the number of the
tag of the word that begins with it.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from regard.config import ClassHeadConfig, Config, CorpusConfig, EncoderConfig, TagHeadConfig
from regard.data.encoder_batches import InputTemplate, words_with_spaces
from regard.data.lines import InvalidLines
from regard.data.preparation import (
    REPORT_INTERVAL,
    SPLIT,
    TRUNCATED,
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
from regard.data.readers import read_labeled, read_tagged
from regard.data.readers.base import LabeledExample, Pair, TaggedExample
from regard.data.store import chunked, write_store
from regard.data.tokenizer import Tokenizer
from regard.data.word_tokens import fast_encoder
from regard.errors import DataError

TEXTS_PER_CHUNK, SENTENCES_PER_CHUNK = 4096, 1024  # that are tokenized at once
LISTED_LABELS = 8  # in an error message
LabelIds = Mapping[str, int]
Row = Sequence[Sequence[int]]  # the ids of an example in each column


class _Example(Protocol):
    """What labeled texts and tagged sentences have in common."""

    @property
    def texts(self) -> tuple[str, ...]: ...
    @property
    def labels(self) -> tuple[str, ...]: ...
    @property
    def location(self) -> str: ...


E = TypeVar("E", bound=_Example)


@dataclass(frozen=True)
class _Format(Generic[E]):
    """How examples are read, and what a store holds of them."""

    read: Callable[[CorpusConfig, InvalidLines], Iterator[E]]
    rows: Callable[[Iterable[E], Tokenizer, LabelIds, InputTemplate, Counter[str]], Iterator[Row]]
    columns: int
    requirement: str  # for the error message if there is only one label


def prepare_labeled(folder: Path, key: str, config: Config, report: ReportProgress) -> PreparedData:
    """Prepare the tokenizer, the labels and the token stores of a classifier."""

    def read(corpus: CorpusConfig, invalid: InvalidLines) -> Iterator[LabeledExample]:
        return read_labeled(corpus.files, invalid, corpus.columns)

    labeled = _Format(read, _text_rows, 3, "a classifier needs at least two labels")
    return _prepare(folder, key, config, report, labeled)


def prepare_tagged(folder: Path, key: str, config: Config, report: ReportProgress) -> PreparedData:
    """Prepare the tokenizer, the tags and the token stores of a tagger."""

    def read(corpus: CorpusConfig, invalid: InvalidLines) -> Iterator[TaggedExample]:
        return read_tagged(corpus.files, invalid, config.data.tag_column)

    def rows(
        sentences: Iterable[TaggedExample],
        tokenizer: Tokenizer,
        label_ids: LabelIds,
        template: InputTemplate,
        counts: Counter[str],
    ) -> Iterator[Row]:
        return _sentence_rows(sentences, tokenizer, label_ids, template, counts, config.tokens.unknown)

    return _prepare(folder, key, config, report, _Format(read, rows, 2, "a tagger needs at least two tags"))


def _text_rows(
    examples: Iterable[LabeledExample],
    tokenizer: Tokenizer,
    label_ids: LabelIds,
    template: InputTemplate,
    counts: Counter[str],
) -> Iterator[Row]:
    encode = fast_encoder(tokenizer)
    for chunk in chunked(examples, TEXTS_PER_CHUNK):
        firsts = encode([example.text for example in chunk])
        seconds = iter(encode([example.second for example in chunk if example.second is not None]))
        for example, first in zip(chunk, firsts, strict=True):
            wrapped = template.wrap(first, next(seconds) if example.second is not None else None)
            if wrapped.truncated:
                counts[TRUNCATED] += 1
            yield wrapped.ids, [label_ids[example.label]], [wrapped.second_length]


def _sentence_rows(
    examples: Iterable[TaggedExample],
    tokenizer: Tokenizer,
    label_ids: LabelIds,
    template: InputTemplate,
    counts: Counter[str],
    unknown: int,
) -> Iterator[Row]:
    encode = fast_encoder(tokenizer)
    for chunk in chunked(examples, SENTENCES_PER_CHUNK):
        word_ids = iter(encode([text for example in chunk for text in words_with_spaces(example.words)]))
        for example in chunk:
            tags = iter(example.tags)
            rows = list(template.wrap_words([next(word_ids) for _ in example.words], unknown))
            if len(rows) > 1:
                counts[SPLIT] += 1
            for ids, starts in rows:
                tag_column = [0] * len(ids)
                for start in starts:
                    tag_column[start] = 1 + label_ids[next(tags)]
                yield ids, tag_column


def _prepare(folder: Path, key: str, config: Config, report: ReportProgress, format: _Format[E]) -> PreparedData:
    data, held_out = config.data, validation_fraction(config)

    def train_examples(invalid: InvalidLines) -> Iterator[E]:
        examples = format.read(data.train, invalid)
        return (example for example in examples if not is_held_out(_split_key(example), held_out))

    def valid_examples(invalid: InvalidLines) -> Iterator[E]:
        if data.valid.has_files:
            return format.read(data.valid, invalid)
        uncounted = InvalidLines(data.skip_invalid)  # they were counted with the training data
        examples = format.read(data.train, uncounted)
        return (example for example in examples if is_held_out(_split_key(example), held_out))

    def test_examples(invalid: InvalidLines) -> Iterator[E]:
        return format.read(data.test, invalid)

    def texts() -> Iterator[str]:
        for number, example in enumerate(train_examples(InvalidLines(data.skip_invalid)), start=1):
            if number % REPORT_INTERVAL == 0:
                report("training the tokenizer", number)
            yield from example.texts

    def find_labels() -> list[str]:
        """Return the labels of the config, or those of all training data, the held-out part included."""
        head = config.model.head if isinstance(config.model, EncoderConfig) else None
        if isinstance(head, ClassHeadConfig | TagHeadConfig) and head.labels:
            return list(head.labels)
        examples = format.read(data.train, InvalidLines(data.skip_invalid))
        labels = {label for example in examples for label in example.labels}
        if len(labels) == 1:
            names = ", ".join(data.train.file_names)
            raise DataError(f"{names}: the only label is {labels.pop()!r}; {format.requirement}.")
        return sorted(labels)

    tokenizer = load_or_train_tokenizer(folder, key, config, texts)

    def prepare_split(
        name: str, examples: Callable[[InvalidLines], Iterator[E]], max_length: int | None, labels: list[str] | None
    ) -> PreparedSplit:
        texts_path = folder / f"{name}.jsonl" if name != "train" else None

        def build(place: Path) -> None:
            label_ids = {label: n for n, label in enumerate(find_labels() if labels is None else labels)}
            invalid, counts = InvalidLines(data.skip_invalid), Counter[str](read=0)
            metadata = {**store_metadata(key, invalid), "counts": counts, "labels": list(label_ids)}
            usable = with_known_labels(examples(invalid), label_ids, invalid)
            counted = _count(usable, counts, lambda n: report(f"tokenizing {name}", n))
            passing = counted if texts_path is None else _save_examples(counted, texts_path)
            template = InputTemplate.for_model(config.tokens, max_length)
            rows = format.rows(passing, tokenizer, label_ids, template, counts)
            write_store(place, rows, format.columns, max(len(tokenizer), len(label_ids) + 1), metadata)

        store = load_or_build_store(folder / name, key, build)
        if len(store) == 0 and name == "valid" and not data.valid.has_files:
            raise DataError(
                "no text was held out for validation, because there are too few different ones; "
                f"raise data.validation_fraction, which is {held_out:g}, or pass --valid."
            )
        return PreparedSplit(check_not_empty(store, name), texts_path)

    max_length = config.model.max_length
    train = prepare_split("train", train_examples, min(data.max_length, max_length or data.max_length), None)
    labels = list(train.store.metadata["labels"])
    valid = prepare_split("valid", valid_examples, max_length, labels)
    test = prepare_split("test", test_examples, max_length, labels) if data.test.has_files else None
    return PreparedData(tokenizer, train, valid, test, tuple(labels))


def _split_key(example: _Example) -> Pair:
    """Return what decides whether an example is held out: equal texts stay together, whatever their labels."""
    return Pair("\t".join(example.texts), "")


def with_known_labels(examples: Iterable[E], labels: Collection[str], invalid: InvalidLines) -> Iterator[E]:
    """Yield the examples whose labels are all among these; report the others."""
    for example in examples:
        unknown = next((label for label in example.labels if label not in labels), None)
        if unknown is None:
            yield example
        else:
            known = ", ".join(list(labels)[:LISTED_LABELS]) + (", …" if len(labels) > LISTED_LABELS else "")
            message = f"{example.location}: unknown label {unknown!r}, the labels are {known}; correct it"
            invalid.add("unknown label", message)


def _count(examples: Iterable[E], counts: Counter[str], report: Callable[[int], None]) -> Iterator[E]:
    for example in examples:
        counts["read"] += 1
        counts["kept"] += 1
        if counts["read"] % TEXTS_PER_CHUNK == 0:
            report(counts["read"])
        yield example


def _save_examples(examples: Iterable[E], path: Path) -> Iterator[E]:
    """Yield the examples, and write each to a file on the way, as a pair of texts and labels."""
    passing: list[E] = []

    def pairs() -> Iterator[Pair]:
        for example in examples:
            passing.append(example)
            yield Pair("\t".join(example.texts), " ".join(example.labels))

    for _ in save_texts(pairs(), path):
        yield passing.pop()
