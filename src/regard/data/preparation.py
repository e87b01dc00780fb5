"""Prepared data: the tokenizer and the token stores of the training, validation and test splits, in one folder.

This module holds what the preparation of pairs, documents and labeled texts shares. Everything in the folder has a key
that follows from the content of the files and the settings that preparation depends on: if files and settings are
unchanged, so is the key, and nothing is tokenized again.
"""

import hashlib
import json
import shutil
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from regard.config import Config, CorpusConfig, DataConfig
from regard.data.batching import CorpusWeights, corpus_weights
from regard.data.corpus_scan import TextSample, saved_sample
from regard.data.lines import STANDARD_INPUT, InvalidLines
from regard.data.readers.base import Pair
from regard.data.store import TokenStore, open_store, verify_store
from regard.data.syntax import parse_from_json, parse_to_json
from regard.data.tokenizer import Tokenizer, load_tokenizer, train_tokenizer, unknown_note
from regard.data.tokenizer_file import MAX_TOKENIZER_BYTES
from regard.errors import ConfigError, DataError
from regard.files import (
    atomic_file,
    check_regular_file,
    explain_write_errors,
    folder_lock,
    read_regular_file,
    write_bytes,
    write_text,
)
from regard.machine import available_cores

TRUNCATED, SPLIT = "cut", "divided"  # counts of texts that were longer than the network can read, but not left out
KEY = "key"
TOKENIZER_KEY_FILE = "tokenizer.key"


@dataclass(frozen=True)
class PreparedSplit:
    """A split of the data: its token store and, if they are needed for scores, its texts."""

    store: TokenStore
    texts: Path | None = None
    text_columns: int = 1  # of the store; the others hold labels and other features

    def counts(self) -> dict[str, int]:
        """Return how many examples were read, kept, left out and skipped, by reason."""
        skipped = {f"skipped: {reason}": count for reason, count in self.store.metadata.get("skipped", {}).items()}
        return {**self.store.counts, **skipped}

    def omissions(self) -> Iterator[str]:
        """Yield a message for each reason for which examples are missing or shortened."""
        for reason, count in self.store.counts.items():
            if reason in (TRUNCATED, SPLIT):
                yield f"{count:,} {reason}: longer than the maximum length"
            elif reason not in ("read", "kept"):
                yield f"{count:,} left out: {reason}"
        examples = self.store.metadata.get("examples_of", {})
        for reason, count in self.store.metadata.get("skipped", {}).items():
            yield f"{count:,} skipped: {reason} ({examples[reason].removesuffix('.')})"

    def unknown_tokens(self, tokenizer: Tokenizer) -> int:
        """Return how many tokens are unknown: text that the tokenizer has no token for."""
        unknown = tokenizer.unknown_id
        columns = self.store.columns[: self.text_columns]
        return 0 if unknown is None else sum(int(column.token_counts(len(tokenizer))[unknown]) for column in columns)

    def notes(self, tokenizer: Tokenizer) -> list[str]:
        """Return notes on how the files were read, such as headers that were found, and on unknown tokens."""
        notes = list(self.store.metadata.get("notes", ()))
        if unknown := self.unknown_tokens(tokenizer):
            total = sum(len(column.ids) for column in self.store.columns[: self.text_columns])
            notes.append(unknown_note(unknown, total))
        return notes

    def weights(self, corpus: CorpusConfig) -> CorpusWeights | None:
        """Return the weights of the corpora of this split; None if every example occurs once in an epoch.

        Examples that were mixed in follow all corpora, and occur once.
        """
        if not corpus.weights:
            return None
        corpora = list(self.store.metadata.get("corpora", [len(self.store)]))
        mixed = len(self.store) - sum(corpora)
        return corpus_weights([*corpora, mixed], [*corpus.weights, 1.0])

    def pairs(self, limit: int | None = None) -> list[Pair]:
        """Return the texts of the first `limit` examples, or of all."""
        if self.texts is None:
            return []
        try:
            check_regular_file(self.texts)
            with open(self.texts, encoding="utf-8") as lines:
                return [_pair_from_json(json.loads(line)) for line in islice(lines, limit)]
        except (OSError, ValueError, TypeError):
            raise DataError(
                f"{self.texts}: is damaged; remove the folder {self.texts.parent}, and it is prepared again."
            ) from None


@dataclass(frozen=True)
class PreparedData:
    """Everything that training reads."""

    tokenizer: Tokenizer
    train: PreparedSplit
    valid: PreparedSplit
    test: PreparedSplit | None
    labels: tuple[str, ...] = ()  # of classifiers and taggers
    mix: PreparedSplit | None = None  # old data, some of which are in `train` too

    @property
    def splits(self) -> dict[str, PreparedSplit]:
        """All splits, by name."""
        named = {"train": self.train, "mix": self.mix, "valid": self.valid, "test": self.test}
        return {name: split for name, split in named.items() if split is not None}


def _pair_from_json(record: dict[str, Any]) -> Pair:
    parse = record.pop("parse", None)
    return Pair(**record, parse=None if parse is None else parse_from_json(parse))


def load_or_build_store(folder: Path, key: str, build: Callable[[Path], None]) -> TokenStore:
    """Return the store in a folder if it is complete and has this key; otherwise call `build` to write it.

    `build` gets the folder, and must write the key to the metadata: `store_pairs(folder, …, metadata={"key": key})`.
    A store of this key whose bytes have changed is an error: the disk is faulty, or another program wrote to it.
    """
    return load_or_build_stores([folder], key, lambda: build(folder))[0]


def load_or_build_stores(folders: Sequence[Path], key: str, build: Callable[[], None]) -> list[TokenStore]:
    """Return the stores in several folders, as `load_or_build_store`; `build` writes all of them."""
    if existing := _existing_stores(folders, key):
        return existing
    with _exclusive(folders[0].parent):  # another process may be preparing the same data
        if existing := _existing_stores(folders, key):
            return existing
        build()
    stores = []
    for folder in folders:
        written = open_store(folder)
        if written is None:
            raise DataError(f"{folder}: was written but cannot be read again; check the disk.")
        if written.metadata.get(KEY) != key:
            raise ValueError(f"the store in {folder} was written without its key")
        stores.append(written)
    return stores


def _existing_stores(folders: Sequence[Path], key: str) -> list[TokenStore]:
    """Return the stores of all folders, verified; nothing if one of them is missing."""
    existing = [store for folder in folders if (store := has_store(folder, key)) is not None]
    if len(existing) < len(folders):
        return []
    for store in existing:
        verify_store(store)
    return existing


@contextmanager
def _exclusive(folder: Path) -> Iterator[None]:
    """Wait until no other process prepares data in a folder, where the system has such locks."""
    with explain_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with folder_lock(folder):
        yield


def has_store(folder: Path, key: str) -> TokenStore | None:
    """Return the store in a folder if it is complete and has this key."""
    store = open_store(folder)
    return store if store is not None and store.metadata.get(KEY) == key else None


def num_workers(config: Config) -> int:
    """Return how many processes tokenize: `data.workers`, or the number of cores."""
    return config.data.workers or available_cores()


def store_metadata(key: str, invalid: InvalidLines) -> dict[str, Any]:
    """Return the metadata that every store has; counts and notes grow while examples are read."""
    return {"key": key, "skipped": invalid.counts, "examples_of": invalid.examples, "notes": invalid.notes}


def check_not_empty(store: TokenStore, name: str) -> TokenStore:
    """Return the store of a split; raise an error if it has no examples."""
    if len(store) == 0:
        omitted = ", ".join(f"{count} {reason}" for reason, count in store.counts.items() if reason != "read")
        raise DataError(f"data.{name} has no usable examples ({omitted or 'it is empty'}); pass more text.")
    return store


def load_or_train_tokenizer(
    folder: Path,
    key: str,
    config: Config,
    examples: Callable[[], Iterable[Sequence[str]]],
    texts: Callable[[Sequence[str]], Iterable[str]],
    *,
    mask_token: bool = False,
) -> Tokenizer:
    """Return the tokenizer of the config, or one that is trained and saved under this key.

    Args:
        folder: where prepared data is saved.
        key: its key.
        config: the config.
        examples: reads the texts of all examples, unless a scan of the corpus has saved a sample of them.
        texts: returns what the tokenizer is trained on of the texts of an example: nothing if it is held out.
        mask_token: add `[MASK]` to the vocabulary.
    """
    if config.tokenizer.file is not None:
        return load_tokenizer(Path(config.tokenizer.file))
    path = folder / "tokenizer.json"
    if has_tokenizer(folder, key):
        return load_tokenizer(path)
    sample: Iterable[Sequence[str]] | None = saved_sample(folder, key)
    if sample is None:
        sample = TextSample()
        sample.extend(examples())
    chosen = chain.from_iterable(map(texts, sample))
    content = train_tokenizer(chosen, config.tokenizer, config.model.vocab_size, mask_token=mask_token).to_json()
    with explain_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / TOKENIZER_KEY_FILE).unlink(missing_ok=True)
        write_bytes(path, content)
        write_text(folder / TOKENIZER_KEY_FILE, f"{key} {_checksum(content)}")
    return load_tokenizer(path)


def has_tokenizer(folder: Path, key: str) -> bool:
    """Return whether a folder has a tokenizer of this key; DataError if its bytes have changed."""
    path, key_path = folder / "tokenizer.json", folder / TOKENIZER_KEY_FILE
    saved_key, _, checksum = key_path.read_text("utf-8").partition(" ") if key_path.is_file() else ("", "", "")
    if not path.exists() or saved_key != key:
        return False
    with suppress(OSError):  # of a pipe or a device
        if checksum == _checksum(read_regular_file(path, MAX_TOKENIZER_BYTES)):
            return True
    raise DataError(f"{path}: is damaged; remove the folder {folder}, and it is prepared again.")


def _checksum(content: bytes) -> str:
    return f"{zlib.crc32(content):08x}"


def spool_stdin(data: DataConfig, path: Path, *, read: bool) -> DataConfig:
    """Return the settings with standard input, which can be read only once, replaced by the file `path`.

    With `read`, standard input is copied to that file, unless it exists.
    """
    uses = data.file_names.count(STANDARD_INPUT)
    if uses == 0:
        return data
    if uses > 1:
        raise ConfigError("standard input (-) can be read only once; pass the other part as a file.")
    if read and not path.exists():
        with explain_write_errors(path), atomic_file(path) as copy:
            shutil.copyfileobj(sys.stdin.buffer, copy)

    def replaced(files: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(str(path) if name == STANDARD_INPUT else name for name in files)

    def corpus(original: CorpusConfig) -> CorpusConfig:
        fields = ("source", "target", "parses", "files")
        return original.model_copy(update={name: replaced(getattr(original, name)) for name in fields})

    return data.model_copy(update={"train": corpus(data.train), "valid": corpus(data.valid), "test": corpus(data.test)})


def validation_fraction(config: Config) -> float:
    """Return the fraction of the training data that is held out for validation; 0 if there is validation data."""
    return 0.0 if config.data.valid.has_files else config.data.validation_fraction


def is_held_out(pair: Pair, fraction: float) -> bool:
    """Return whether a pair is held out for validation: by a hash of its text, so that equal pairs stay together.

    >>> sum(is_held_out(Pair(str(n), "x"), 0.1) for n in range(1000))
    111
    """
    if fraction == 0:
        return False
    digest = hashlib.blake2b(f"{pair.source}\t{pair.target}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) < fraction * 2**64


def texts_as_json(pair: Pair) -> bytes:
    """Return the line of a pair in the file of texts of a split."""
    record: dict[str, Any] = {"source": pair.source, "target": pair.target}
    if pair.parse is not None:
        record["parse"] = parse_to_json(pair.parse)
    return (json.dumps(record, ensure_ascii=False) + "\n").encode()
