"""From files to what training reads: a tokenizer, and stores of tokens for training, validation and test.

Everything lies in one folder, under a key that follows from the content of the files and the settings. Preparing
again with the same key reads nothing anew.
"""

import json
import os
import re
import shutil
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from regard.config import ClassHeadConfig, Config, CorpusConfig, DataConfig, EncoderConfig, TagHeadConfig
from regard.data.corpus import Pair, read_documents
from regard.data.fingerprint import fingerprint, store_for
from regard.data.held_out import is_held_out, split_tail
from regard.data.language_batches import store_documents
from regard.data.lines import STANDARD_INPUT, InvalidLines
from regard.data.pairs import LengthFilter, store_pairs
from regard.data.parses import parse_from_json, parse_to_json
from regard.data.stats import ReportProgress, read_pairs
from regard.data.store import TokenStore, writable
from regard.data.tokenizer import Tokenizer, load_tokenizer, train_tokenizer
from regard.errors import ConfigError, DataError

MAX_TOKENIZER_TEXTS = 2_000_000  # texts that a tokenizer is learned from, at most; more would not change it
UNBOUNDED = 2**31
CUT, DIVIDED = (
    "cut",
    "divided",
)  # what befalls texts that are longer than can be read at once, rather than to be left out


@dataclass(frozen=True)
class PreparedSplit:
    """One part of the data: its tokens and, where they are needed for scores, its texts."""

    store: TokenStore
    texts: Path | None = None

    def counts(self) -> dict[str, int]:
        """What was read, kept, left out and skipped, by reason."""
        skipped = {f"skipped: {reason}": count for reason, count in self.store.metadata.get("skipped", {}).items()}
        return {**self.store.counts, **skipped}

    def omissions(self) -> Iterator[str]:
        """A sentence for each reason for which something is missing."""
        for reason, count in self.store.counts.items():
            if reason in (CUT, DIVIDED):
                yield f"{count:,} {reason}: longer than can be read at once"
            elif reason not in ("read", "kept"):
                yield f"{count:,} left out: {reason}"
        examples = self.store.metadata.get("examples_of", {})
        for reason, count in self.store.metadata.get("skipped", {}).items():
            yield f"{count:,} skipped: {reason} ({examples[reason].removesuffix('.')})"

    def pairs(self, most: int | None = None) -> list[Pair]:
        """The texts of the first examples."""
        if self.texts is None:
            return []
        try:
            with open(self.texts, encoding="utf-8") as lines:
                return [_read_back(json.loads(line)) for line in islice(lines, most)]
        except (OSError, ValueError, TypeError):
            raise DataError(
                f"{self.texts}: is damaged; remove the folder {self.texts.parent}, and it is made again."
            ) from None


@dataclass(frozen=True)
class PreparedData:
    """Everything that training reads."""

    tokenizer: Tokenizer
    train: PreparedSplit
    valid: PreparedSplit
    test: PreparedSplit | None
    labels: tuple[str, ...] = ()  # what can be predicted, where that is not tokens

    @property
    def splits(self) -> dict[str, PreparedSplit]:
        """All parts that there are, by name."""
        named = {"train": self.train, "valid": self.valid, "test": self.test}
        return {name: part for name, part in named.items() if part is not None}


def data_key(config: Config) -> str:
    """The key of the data: the same files and settings give the same."""
    data = config.data
    settings: dict[str, Any] = {
        "tokenizer": config.tokenizer.model_dump(mode="json", exclude={"dropout", "file"}),  # its content counts
        "vocabulary": config.model.vocab_size,
        "kind": config.model.kind,
        **({"task": config.model.task} if isinstance(config.model, EncoderConfig) else {}),
        "data": data.model_dump(
            mode="json", include={"validation_fraction", "skip_invalid", "max_length", "max_length_ratio"}
        ),
        "parts": [[len(files) for files in (part.source, part.target, part.files)] for part in data.splits],
        **_labelling(config),
    }
    if any(part.parses for part in data.splits):
        settings["parses"] = [len(part.parses) for part in data.splits]
    return fingerprint([*data.file_names, *([config.tokenizer.file] if config.tokenizer.file else [])], settings)


def _labelling(config: Config) -> dict[str, Any]:
    """What prepared data depend on where texts have labels."""
    model = config.model
    if not isinstance(model, EncoderConfig) or not isinstance(model.head, ClassHeadConfig | TagHeadConfig):
        return {}
    head, tokens = model.head.model_dump(mode="json", exclude={"dropout"}), config.tokens.model_dump(mode="json")
    return {"head": head, "tokens": tokens, "readable": model.max_length, "column": config.data.tag_column}


def spool_stdin(data: DataConfig, path: Path, *, read: bool) -> DataConfig:
    """The settings with standard input, which can be read only once, as the file `path`.

    With `read`, it is copied there, unless that was done before.
    """
    used = data.file_names.count(STANDARD_INPUT)
    if used == 0:
        return data
    if used > 1:
        raise ConfigError("standard input (-) can be read only once; give the other part as a file.")
    if read and not path.exists():
        draft = path.with_name(f".{path.name}")
        with writable(path):
            with open(draft, "wb") as copy:
                shutil.copyfileobj(sys.stdin.buffer, copy)
            os.replace(draft, path)

    def named(files: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(str(path) if name == STANDARD_INPUT else name for name in files)

    def corpus(given: CorpusConfig) -> CorpusConfig:
        return CorpusConfig(
            source=named(given.source),
            target=named(given.target),
            parses=named(given.parses),
            files=named(given.files),
        )

    return data.model_copy(update={"train": corpus(data.train), "valid": corpus(data.valid), "test": corpus(data.test)})


def prepare_pairs(folder: Path, key: str, config: Config, report: ReportProgress) -> PreparedData:
    """Tokenizer and stores for translation."""
    data, held_out = config.data, validation_fraction(config)

    def training(faults: InvalidLines) -> Iterator[Pair]:
        return (pair for pair in read_pairs(data.train, faults) if not is_held_out(pair, held_out))

    def validation(faults: InvalidLines) -> Iterator[Pair]:
        if data.valid.has_files:
            return read_pairs(data.valid, faults)
        counted = InvalidLines(data.skip_invalid)  # with the training data already
        return (pair for pair in read_pairs(data.train, counted) if is_held_out(pair, held_out))

    def sides() -> Iterator[str]:
        for number, pair in enumerate(training(InvalidLines(data.skip_invalid)), start=1):
            if number % 10_000 == 0:
                report("learning the tokenizer", number)
            yield pair.source
            yield pair.target

    tokenizer = load_or_train_tokenizer(folder, key, config, sides)
    readable = (config.model.max_length or UNBOUNDED) - 1  # the end token has a position too
    fit = LengthFilter(max_length=min(data.max_length, readable), max_ratio=data.max_length_ratio)
    anything = LengthFilter(max_length=readable, max_ratio=UNBOUNDED)

    def part(
        name: str, pairs: Callable[[InvalidLines], Iterator[Pair]], fit: LengthFilter, *, texts: bool
    ) -> PreparedSplit:
        kept = folder / f"{name}.jsonl" if texts else None

        def build(place: Path) -> None:
            faults = InvalidLines(data.skip_invalid)
            passing = save_texts(pairs(faults), kept) if kept is not None else pairs(faults)
            about = {"key": key, "skipped": faults.counts, "examples_of": faults.examples}  # filled as it reads

            def progress(count: int) -> None:
                report(f"tokenising {name}", count)

            store_pairs(place, passing, tokenizer, fit, about, progress, parsed=config.model.needs_parses)

        store = store_for(folder / name, key, build)
        if len(store) == 0 and name == "valid" and not data.valid.has_files:
            raise DataError(
                "no pair was held out for validation, because there are too few different ones; "
                f"raise data.validation_fraction, which is {held_out:g}, or give --valid."
            )
        return PreparedSplit(check_not_empty(store, name), kept)

    return PreparedData(
        tokenizer,
        part("train", training, fit, texts=False),
        part("valid", validation, anything, texts=True),
        part("test", lambda faults: read_pairs(data.test, faults), anything, texts=True)
        if data.test.has_files
        else None,
    )


def prepare_documents(
    folder: Path, key: str, config: Config, report: ReportProgress, *, spaced: bool = False
) -> PreparedData:
    """Tokenizer and stores for a language model; `spaced`: ends of lines and the like become single spaces."""
    data = config.data

    def texts() -> Iterator[str]:
        return chain.from_iterable(_read(data.train.files, InvalidLines(data.skip_invalid), spaced=spaced))

    tokenizer = load_or_train_tokenizer(folder, key, config, texts)

    def part(name: str, corpus: CorpusConfig) -> PreparedSplit:
        def progress(count: int) -> None:
            report(f"tokenising {name}", count)

        faults = InvalidLines(data.skip_invalid)
        found = prepare_document_split(folder / name, corpus.files, tokenizer, faults, progress, key=key, spaced=spaced)
        check_not_empty(found.store, name)
        return found

    train = part("train", data.train)
    if data.valid.has_files:
        valid = part("valid", data.valid)
    else:
        first, last = split_tail(train.store, data.validation_fraction)
        train, valid = replace(train, store=first), PreparedSplit(last)
    return PreparedData(tokenizer, train, valid, part("test", data.test) if data.test.has_files else None)


def prepare_document_split(
    folder: Path,
    files: Sequence[str],
    tokenizer: Tokenizer,
    faults: InvalidLines,
    progress: Callable[[int], None],
    *,
    key: str = "",
    spaced: bool = False,
) -> PreparedSplit:
    """The tokens of documents, kept in a folder under a key."""

    def build(place: Path) -> None:
        about = {"key": key, "skipped": faults.counts, "examples_of": faults.examples}  # filled as it reads
        store_documents(place, _read(files, faults, spaced=spaced), tokenizer, about, progress)

    return PreparedSplit(store_for(folder, key, build))


def _read(files: Iterable[str], faults: InvalidLines, *, spaced: bool) -> Iterator[Iterator[str]]:
    found = read_documents(files, faults)
    return (map(_single_spaces, document) for document in found) if spaced else found


def _single_spaces(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def validation_fraction(config: Config) -> float:
    """The share of the training data that is held out for validation: none where there are other data for it."""
    return 0.0 if config.data.valid.has_files else config.data.validation_fraction


def check_not_empty(store: TokenStore, name: str) -> TokenStore:
    """The store, or a complaint if there is nothing in it."""
    if len(store) == 0:
        left_out = ", ".join(f"{count} {reason}" for reason, count in store.counts.items() if reason != "read")
        raise DataError(f"data.{name} has nothing to use ({left_out or 'it is empty'}); give more text.")
    return store


def save_texts(pairs: Iterable[Pair], path: Path) -> Iterator[Pair]:
    """The pairs, each written down as it passes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}")
    with open(draft, "w", encoding="utf-8") as file:
        for pair in pairs:
            written: dict[str, Any] = {"source": pair.source, "target": pair.target}
            if pair.parse is not None:
                written["parse"] = parse_to_json(pair.parse)
            file.write(json.dumps(written, ensure_ascii=False) + "\n")
            yield pair
    os.replace(draft, path)


def _read_back(written: dict[str, Any]) -> Pair:
    """A pair that was written down."""
    parse = written.pop("parse", None)
    return Pair(**written, parse=None if parse is None else parse_from_json(parse))


def load_or_train_tokenizer(folder: Path, key: str, config: Config, texts: Callable[[], Iterable[str]]) -> Tokenizer:
    """The tokenizer of this key: the given one, or one learned from the texts, once."""
    if config.tokenizer.file is not None:
        return load_tokenizer(Path(config.tokenizer.file))
    path, mark = folder / "tokenizer.json", folder / "tokenizer.key"
    made_with, _, checksum = mark.read_text("utf-8").partition(" ") if mark.is_file() else ("", "", "")
    if path.exists() and made_with == key:
        if checksum != _checksum(path.read_bytes()):
            raise DataError(f"{path}: is damaged; remove the folder {folder}, and it is made again.")
        return load_tokenizer(path)
    sample = islice(texts(), MAX_TOKENIZER_TEXTS)
    learned = train_tokenizer(
        sample, config.tokenizer, config.model.vocab_size, masked=config.model.task == "masked"
    ).to_json()
    with writable(folder):
        folder.mkdir(parents=True, exist_ok=True)
        mark.unlink(missing_ok=True)
        path.write_bytes(learned)
        mark.write_text(f"{key} {_checksum(learned)}", "utf-8")
    return load_tokenizer(path)


def _checksum(content: bytes) -> str:
    return f"{zlib.crc32(content):08x}"
