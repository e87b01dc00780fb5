"""Readers of file formats, by name, and functions that read examples from files of any format.

The format follows from the file name, with or without `.gz`; names that begin with `builtin:` are corpora that come
with the package. A file whose suffix no reader of the example type claims is read in the usual format of that type:
TSV for pairs and labeled texts, plain text for documents, CoNLL columns for tagged sentences.

A folder stands for the files in it, in the order of their paths. Hidden files, binary files and run folders are left
out. For examples that need a format (pairs, labeled texts, tagged words), a folder with files of such formats stands
for these, and other files in it are left out too.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import TypeVar

from regard.config import CorpusConfig
from regard.data.lines import InvalidLines, check_compression_on_error, wide_encoding
from regard.data.readers.aligned import read_aligned
from regard.data.readers.base import NO_COLUMNS, READERS, LabeledExample, Pair, Reader, TaggedExample
from regard.data.remote import compression_suffix, expand_pattern, explain_read_errors, is_url
from regard.errors import ConfigError, DataError
from regard.registry import ExampleType

__all__ = [
    "READERS",
    "ExampleType",
    "Reader",
    "expand_folders",
    "files_in",
    "format_name",
    "read_documents",
    "read_labeled",
    "read_pair_files",
    "read_pairs",
    "read_parts",
    "read_tagged",
    "read_texts",
    "reader_for",
]

T = TypeVar("T")
RUN_FILE = "run.json"  # in a run folder, which may be in the folder of the data
BINARY_SAMPLE = 4096  # bytes
MAX_LISTED = 3  # files that are named in a note
DEFAULT_FORMATS: dict[ExampleType, str] = {
    "pairs": "tsv",
    "documents": "text",
    "texts": "text",
    "labeled": "tsv",
    "tagged": "conll",
}
EXAMPLE_NOUNS: dict[ExampleType, str] = {
    "pairs": "sentence pairs",
    "documents": "text",
    "texts": "text",
    "labeled": "labeled texts",
    "tagged": "tagged words",
}
ROLES: dict[ExampleType, tuple[str, ...]] = {  # columns that the user can choose
    "pairs": ("source", "target"),
    "documents": ("text",),
    "texts": ("text",),
    "labeled": ("text", "label"),
    "tagged": (),
}


def reader_for(file: str, examples: ExampleType, columns: Mapping[str, str] = NO_COLUMNS) -> Reader:
    """Return the reader of examples of this type from a file, with the columns that the user set.

    >>> type(reader_for("a.jsonl.gz", "pairs")).__name__, type(reader_for("a.md", "documents")).__name__
    ('JsonLinesReader', 'TextReader')
    """
    classes = (READERS[name] for name in READERS)
    default = READERS[DEFAULT_FORMATS[examples]]
    reader = next((reader for reader in classes if reader.matches(file) and reader.yields(examples)), default)()
    if columns:
        unusable = next((role for role in columns if role not in ROLES[examples]), None)
        if unusable is not None:
            raise ConfigError(f"--{unusable}-column: does not apply to {EXAMPLE_NOUNS[examples]}; remove it.")
        if not reader.has_columns:
            raise ConfigError(f"{file}: has no columns to choose from; remove --{next(iter(columns))}-column.")
        reader.columns = columns
    return reader


def _expand(files: Iterable[str], examples: ExampleType, invalid: InvalidLines) -> Iterator[str]:
    """Yield files, and those files in folders that may hold examples of this type."""

    def is_claimed(file: str) -> bool:
        return any(READERS[name].matches(file) and READERS[name].yields(examples) for name in READERS)

    return expand_folders(files, invalid, None if examples in ("documents", "texts") else is_claimed)


def format_name(file: str) -> str:
    """Return the format that a file name indicates; it is part of the key of prepared data.

    >>> format_name("pairs.tsv.gz"), format_name("pairs.jsonl"), format_name("book.txt"), format_name("-")
    ('tsv', 'jsonl', 'text', 'text')
    """
    for name, reader in READERS.items():
        if reader.matches(file):
            return reader.fingerprint_name or name
    return "text"


def read_pairs(corpus: CorpusConfig, invalid: InvalidLines) -> Iterator[Pair]:
    """Yield all pairs of a corpus in order: those of aligned files, then those of files that hold both sides."""
    if corpus.columns and not corpus.files:
        raise ConfigError(f"--{next(iter(corpus.columns))}-column: is for --data, not for aligned files; remove it.")
    aligned = read_aligned(corpus.source, corpus.target, invalid, corpus.parses)
    return chain(aligned, read_pair_files(corpus.files, invalid, corpus.columns))


def read_parts(corpus: CorpusConfig, read: Callable[[CorpusConfig], Iterator[T]]) -> Iterator[tuple[int, T]]:
    """Yield the examples of a corpus, each with the number of its part, which has a weight; without weights all 0."""
    for number, part in enumerate(corpus.parts):
        for example in read(part):
            yield number, example


def read_pair_files(
    files: Iterable[str], invalid: InvalidLines, columns: Mapping[str, str] = NO_COLUMNS
) -> Iterator[Pair]:
    """Yield the pairs of files that hold both sides."""
    for file in _expand(files, "pairs", invalid):
        with check_compression_on_error(file):
            yield from reader_for(file, "pairs", columns).pairs(file, invalid)


def read_documents(
    files: Iterable[str], invalid: InvalidLines, columns: Mapping[str, str] = NO_COLUMNS
) -> Iterator[Iterator[str]]:
    """Yield documents, each as a stream of text."""
    for file in _expand(files, "documents", invalid):
        with check_compression_on_error(file):
            yield from reader_for(file, "documents", columns).documents(file, invalid)


def read_texts(files: Iterable[str], invalid: InvalidLines, columns: Mapping[str, str] = NO_COLUMNS) -> Iterator[str]:
    """Yield separate texts: the lines of a plain file, the records of other formats."""
    for file in _expand(files, "texts", invalid):
        with check_compression_on_error(file):
            yield from reader_for(file, "texts", columns).texts(file, invalid)


def read_labeled(
    files: Iterable[str], invalid: InvalidLines, columns: Mapping[str, str] = NO_COLUMNS
) -> Iterator[LabeledExample]:
    """Yield labeled texts."""
    for file in _expand(files, "labeled", invalid):
        with check_compression_on_error(file):
            yield from reader_for(file, "labeled", columns).labeled(file, invalid)


def read_tagged(
    files: Iterable[str],
    invalid: InvalidLines,
    column: int | None = None,
    columns: Mapping[str, str] = NO_COLUMNS,
) -> Iterator[TaggedExample]:
    """Yield tagged sentences; `column` is the column of the tag, counted from 1."""
    for file in _expand(files, "tagged", invalid):
        with check_compression_on_error(file):
            yield from reader_for(file, "tagged", columns).tagged(file, invalid, column)


def files_in(folder: str) -> list[str]:
    """Return all files in a folder and its subfolders, except hidden ones and those of run folders."""
    files: list[str] = []

    def fail(error: OSError) -> None:
        raise error

    with explain_read_errors(folder):
        for place, folders, names in os.walk(folder, onerror=fail):
            folders[:] = [] if RUN_FILE in names else [name for name in folders if not name.startswith(".")]
            if RUN_FILE not in names:
                paths = (os.path.join(place, name) for name in names if not name.startswith("."))
                files += (path for path in paths if os.path.isfile(path))
    return sorted(files)


def expand_folders(
    files: Iterable[str], invalid: InvalidLines, is_claimed: Callable[[str], bool] | None = None
) -> Iterator[str]:
    """Yield files, those that patterns stand for, and those in folders.

    Args:
        files: paths of files and folders, or other names, which are yielded unchanged.
        invalid: gets a note for each folder.
        is_claimed: whether the name of a file is that of a format for the examples; None if any text will do.
    """
    for name in files:
        for file in expand_pattern(name):
            if not is_url(file) and os.path.isdir(file):
                yield from _readable_files(file, invalid, is_claimed)
            else:
                yield file


def _readable_files(folder: str, invalid: InvalidLines, is_claimed: Callable[[str], bool] | None) -> list[str]:
    everything = files_in(folder)
    readable = [file for file in everything if is_claimed(file)] if is_claimed is not None else []
    readable = readable or [file for file in everything if not _is_binary(file)]
    if not readable:
        raise DataError(f"{folder}: has no text files; pass a folder with some.")
    left_out = [file for file in everything if file not in set(readable)]
    note = f"{folder}: {_count(readable)}"
    invalid.note(f"{note}; left out: {_names(left_out, folder)}" if left_out else note)
    return readable


def _is_binary(file: str) -> bool:
    """Return whether a file is not text; UTF-16 is text, and reading it has a message of its own."""
    if compression_suffix(file):
        return False
    with explain_read_errors(file), open(file, "rb") as stream:
        sample = stream.read(BINARY_SAMPLE)
    return b"\0" in sample and wide_encoding(sample) is None


def _count(files: list[str]) -> str:
    return f"{len(files):,} file{'s' if len(files) > 1 else ''}"


def _names(files: list[str], folder: str) -> str:
    names = [str(Path(file).relative_to(folder)) for file in files[:MAX_LISTED]]
    more = len(files) - len(names)
    return ", ".join(names) + (f" and {more:,} more" if more else "")
