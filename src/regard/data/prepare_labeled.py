"""Preparation of labeled texts and tagged sentences: tokenizer, labels and token stores.

The store of a classifier has three columns: the input (`[start] text [end]`), the label, and how many of its last
tokens belong to a second text. The store of a tagger has two: the input, and for each token 0, or 1 + the number of the
tag of the word that begins with it.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Generic, Protocol, TypeVar

from regard.config import ClassHeadConfig, Config, CorpusConfig, EncoderConfig, TagHeadConfig
from regard.data.corpus_scan import REPORT_INTERVAL, ReportProgress, saved_labels
from regard.data.encoder_batches import InputTemplate, words_with_spaces
from regard.data.lines import InvalidLines
from regard.data.preparation import (
    SPLIT,
    TRUNCATED,
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
from regard.data.readers import read_labeled, read_parts, read_tagged
from regard.data.readers.base import LabeledExample, Pair, TaggedExample
from regard.data.shards import (
    SHARDS_FOLDER,
    Chunk,
    Encoded,
    EncodedRows,
    ShardedBuild,
    SplitTarget,
    encoded_rows,
)
from regard.data.store import chunked
from regard.data.tokenizer import Tokenizer
from regard.data.word_tokens import Encode, fast_encoder
from regard.errors import DataError

TEXTS_PER_CHUNK, SENTENCES_PER_CHUNK = 4096, 1024  # that are tokenized at once
LISTED_LABELS = 8  # in an error message
LabelIds = Mapping[str, int]
Row = Sequence[Sequence[int]]  # the ids of an example in each column


class _LabeledExample(Protocol):
    """What labeled texts and tagged sentences have in common."""

    @property
    def texts(self) -> tuple[str, ...]: ...
    @property
    def labels(self) -> tuple[str, ...]: ...
    @property
    def location(self) -> str: ...


E = TypeVar("E", bound=_LabeledExample)


Reader = Callable[[CorpusConfig, InvalidLines], Iterator[E]]


def prepare_labeled(folder: Path, key: str, config: Config, report: ReportProgress) -> PreparedData:
    """Prepare the tokenizer, the labels and the token stores of a classifier."""

    def read(corpus: CorpusConfig, invalid: InvalidLines) -> Iterator[LabeledExample]:
        return read_labeled(corpus.files, invalid, corpus.columns)

    return _prepare(folder, key, config, report, read, LabeledTextEncoder)


def prepare_tagged(folder: Path, key: str, config: Config, report: ReportProgress) -> PreparedData:
    """Prepare the tokenizer, the tags and the token stores of a tagger."""

    def read(corpus: CorpusConfig, invalid: InvalidLines) -> Iterator[TaggedExample]:
        return read_tagged(corpus.files, invalid, config.data.tag_column)

    return _prepare(folder, key, config, report, read, SentenceEncoder)


@dataclass
class LabelEncoder(ABC, Generic[E]):
    """Tokenizes a shard of labeled examples, and separates the training examples from those that are held out."""

    tokenizer: Tokenizer
    label_ids: LabelIds
    templates: Mapping[str, InputTemplate]  # by split
    split: str  # of examples that are not held out
    held_out: float = 0.0  # fraction of examples that are validation data
    keep_texts: Collection[str] = ()  # splits whose texts are kept
    unknown: int = 0  # the token of words without tokens
    corpora: int = 1

    columns: ClassVar[int]
    requirement: ClassVar[str]  # for the error message if there is only one label

    def __call__(self, chunk: Chunk[E]) -> Encoded:
        """Return the rows of each split."""
        parts: dict[str, Chunk[E]] = {name: [] for name in self.templates}
        for item in chunk:
            parts["valid" if is_held_out(_split_key(item[1]), self.held_out) else self.split].append(item)
        return {name: self._encode(name, part) for name, part in parts.items()}

    def _encode(self, name: str, part: Chunk[E]) -> EncodedRows:
        counts = Counter[str](read=len(part), kept=len(part))
        corpora = [0] * self.corpora
        rows: list[Row] = []
        encoded = self.rows([example for _, example in part], self.templates[name], counts)
        for (corpus, _), inputs in zip(part, encoded, strict=True):
            rows += inputs
            corpora[corpus] += len(inputs)
        texts = b"".join(_as_json(example) for _, example in part) if name in self.keep_texts else b""
        return encoded_rows(rows, self.columns, self.vocab_size, counts if part else {}, texts, corpora)

    @property
    def vocab_size(self) -> int:
        """Number of different ids in any column."""
        return max(len(self.tokenizer), len(self.label_ids) + 1)

    @abstractmethod
    def rows(self, examples: Sequence[E], template: InputTemplate, counts: Counter[str]) -> Iterator[list[Row]]:
        """Yield the rows of each example."""

    @cached_property
    def encode(self) -> Encode:
        """Tokenizes texts."""
        return fast_encoder(self.tokenizer)


class LabeledTextEncoder(LabelEncoder[LabeledExample]):
    """Tokenizes labeled texts."""

    columns = 3
    requirement = "a classifier needs at least two labels"

    def rows(
        self, examples: Sequence[LabeledExample], template: InputTemplate, counts: Counter[str]
    ) -> Iterator[list[Row]]:
        """Yield one row per text: input, label, and length of the second text."""
        for chunk in chunked(examples, TEXTS_PER_CHUNK):
            firsts = self.encode([example.text for example in chunk])
            seconds = iter(self.encode([example.second for example in chunk if example.second is not None]))
            for example, first in zip(chunk, firsts, strict=True):
                wrapped = template.wrap(first, next(seconds) if example.second is not None else None)
                if wrapped.truncated:
                    counts[TRUNCATED] += 1
                yield [(wrapped.ids, [self.label_ids[example.label]], [wrapped.second_length])]


class SentenceEncoder(LabelEncoder[TaggedExample]):
    """Tokenizes tagged sentences."""

    columns = 2
    requirement = "a tagger needs at least two tags"

    def rows(
        self, examples: Sequence[TaggedExample], template: InputTemplate, counts: Counter[str]
    ) -> Iterator[list[Row]]:
        """Yield the inputs of each sentence, with the tags at the first tokens of words."""
        for chunk in chunked(examples, SENTENCES_PER_CHUNK):
            word_ids = iter(self.encode([text for example in chunk for text in words_with_spaces(example.words)]))
            for example in chunk:
                tags = iter(example.tags)
                inputs = list(template.wrap_words([next(word_ids) for _ in example.words], self.unknown))
                if len(inputs) > 1:
                    counts[SPLIT] += 1
                rows: list[Row] = []
                for ids, starts in inputs:
                    tag_column = [0] * len(ids)
                    for start in starts:
                        tag_column[start] = 1 + self.label_ids[next(tags)]
                    rows.append((ids, tag_column))
                yield rows


def _prepare(
    folder: Path,
    key: str,
    config: Config,
    report: ReportProgress,
    read: Reader[E],
    encoder_class: type[LabelEncoder[E]],
) -> PreparedData:
    data, held_out = config.data, validation_fraction(config)

    def examples() -> Iterator[tuple[str, ...]]:
        for number, example in enumerate(read(data.train, InvalidLines(data.skip_invalid)), start=1):
            if number % REPORT_INTERVAL == 0:
                report("training the tokenizer", number)
            yield example.texts

    def texts(example: Sequence[str]) -> Sequence[str]:
        return () if is_held_out(Pair("\t".join(example), ""), held_out) else example

    def find_labels() -> list[str]:
        """Return the labels of the config, or those of all training data, the held-out part included."""
        head = config.model.head if isinstance(config.model, EncoderConfig) else None
        if isinstance(head, ClassHeadConfig | TagHeadConfig) and head.labels:
            return list(head.labels)
        labels = saved_labels(folder, key)
        if labels is None:
            found = read(data.train, InvalidLines(data.skip_invalid))
            labels = sorted({label for example in found for label in example.labels})
        if len(labels) == 1:
            names = ", ".join(data.train.file_names)
            raise DataError(f"{names}: the only label is {labels[0]!r}; {encoder_class.requirement}.")
        return labels

    tokenizer = load_or_train_tokenizer(folder, key, config, examples, texts)

    def prepare_splits(
        corpus: CorpusConfig, lengths: Mapping[str, int | None], held_out: float, labels: list[str] | None
    ) -> list[PreparedSplit]:
        split, *_ = lengths
        paths = {name: folder / f"{name}.jsonl" for name in lengths if name != "train"}

        def build() -> None:
            label_ids = {label: n for n, label in enumerate(find_labels() if labels is None else labels)}
            invalid = InvalidLines(data.skip_invalid)
            templates = {name: InputTemplate.for_model(config.tokens, length) for name, length in lengths.items()}
            encoder = encoder_class(
                tokenizer,
                label_ids,
                templates,
                split,
                held_out,
                list(paths),
                config.tokens.unknown,
                corpus.num_parts,
            )
            targets = {
                name: SplitTarget(folder / name, encoder.columns, encoder.vocab_size, paths.get(name))
                for name in lengths
            }
            job = ShardedBuild(
                folder / SHARDS_FOLDER / split,
                key,
                encoder,
                targets,
                lambda example: sum(map(len, example.texts)),
                num_workers(config),
                data.cluster,
            )
            uncounted = InvalidLines(data.skip_invalid)  # they are counted with the training data
            job.run(
                read_parts(corpus, lambda part: with_known_labels(read(part, invalid), label_ids, invalid)),
                lambda name: {
                    **store_metadata(key, invalid if name == split else uncounted),
                    "labels": list(label_ids),
                },
                lambda count: report(f"tokenizing {split}", count),
            )

        stores = load_or_build_stores([folder / name for name in lengths], key, build)
        return [PreparedSplit(store, paths.get(name)) for name, store in zip(lengths, stores, strict=True)]

    max_length = config.model.max_length
    train_length = min(data.max_length, max_length or data.max_length)
    if data.valid.has_files:
        (train,) = prepare_splits(data.train, {"train": train_length}, 0.0, None)
        check_not_empty(train.store, "train")
        (valid,) = prepare_splits(data.valid, {"valid": max_length}, 0.0, list(train.store.metadata["labels"]))
    else:
        train, valid = prepare_splits(data.train, {"train": train_length, "valid": max_length}, held_out, None)
        check_not_empty(train.store, "train")
        if len(valid.store) == 0:
            raise DataError(
                "no text was held out for validation, because there are too few different ones; "
                f"raise data.validation_fraction, which is {held_out:g}, or pass --valid."
            )
    check_not_empty(valid.store, "valid")
    labels, test = list(train.store.metadata["labels"]), None
    if data.test.has_files:
        (test,) = prepare_splits(data.test, {"test": max_length}, 0.0, labels)
        check_not_empty(test.store, "test")
    return PreparedData(tokenizer, train, valid, test, tuple(labels))


def _split_key(example: _LabeledExample) -> Pair:
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


def _as_json(example: _LabeledExample) -> bytes:
    """Return the line of an example in the file of texts: a pair of texts and labels."""
    return texts_as_json(Pair("\t".join(example.texts), " ".join(example.labels)))
