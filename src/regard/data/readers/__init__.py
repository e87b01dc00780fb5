"""Readers of file formats, by name, and functions that read examples from files of any format.

The format follows from the file name, with or without `.gz`; names that begin with `builtin:` are corpora that come
with the package. A file whose suffix no reader of the example type claims is read in the usual format of that type:
TSV for pairs and labeled texts, plain text for documents, CoNLL columns for tagged sentences.
"""

from collections.abc import Iterable, Iterator
from itertools import chain

from regard.config import CorpusConfig
from regard.data.lines import InvalidLines, check_gzip_on_error
from regard.data.readers.aligned import read_aligned
from regard.data.readers.base import READERS, ExampleType, LabeledExample, Pair, Reader, TaggedExample

__all__ = [
    "READERS",
    "ExampleType",
    "Reader",
    "format_name",
    "read_documents",
    "read_labeled",
    "read_pair_files",
    "read_pairs",
    "read_tagged",
    "read_texts",
    "reader_for",
]

DEFAULT_FORMATS: dict[ExampleType, str] = {
    "pairs": "tsv",
    "documents": "text",
    "texts": "text",
    "labeled": "tsv",
    "tagged": "conll",
}


def reader_for(file: str, examples: ExampleType) -> Reader:
    """Return the reader of examples of this type from a file.

    >>> type(reader_for("a.jsonl.gz", "pairs")).__name__, type(reader_for("a.tsv", "documents")).__name__
    ('JsonLinesReader', 'TextReader')
    """
    for name in READERS:
        reader = READERS[name]
        if reader.matches(file) and reader.yields(examples):
            return reader()
    return READERS[DEFAULT_FORMATS[examples]]()


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
    aligned = read_aligned(corpus.source, corpus.target, invalid, corpus.parses)
    return chain(aligned, read_pair_files(corpus.files, invalid))


def read_pair_files(files: Iterable[str], invalid: InvalidLines) -> Iterator[Pair]:
    """Yield the pairs of files that hold both sides."""
    for file in files:
        with check_gzip_on_error(file):
            yield from reader_for(file, "pairs").pairs(file, invalid)


def read_documents(files: Iterable[str], invalid: InvalidLines) -> Iterator[Iterator[str]]:
    """Yield documents, each as a stream of text."""
    for file in files:
        with check_gzip_on_error(file):
            yield from reader_for(file, "documents").documents(file, invalid)


def read_texts(files: Iterable[str], invalid: InvalidLines) -> Iterator[str]:
    """Yield separate texts: the lines of a plain file, the records of other formats."""
    for file in files:
        with check_gzip_on_error(file):
            yield from reader_for(file, "texts").texts(file, invalid)


def read_labeled(files: Iterable[str], invalid: InvalidLines) -> Iterator[LabeledExample]:
    """Yield labeled texts."""
    for file in files:
        with check_gzip_on_error(file):
            yield from reader_for(file, "labeled").labeled(file, invalid)


def read_tagged(files: Iterable[str], invalid: InvalidLines, column: int | None = None) -> Iterator[TaggedExample]:
    """Yield tagged sentences; `column` is the column of the tag, counted from 1."""
    for file in files:
        with check_gzip_on_error(file):
            yield from reader_for(file, "tagged").tagged(file, invalid, column)
