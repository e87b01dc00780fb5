"""Word vectors in text format, as word2vec, GloVe and fastText write them: a word and its numbers on each line.

The files of word2vec and fastText have a header with the number of words and the size of their vectors; those of GloVe
do not. A file may have millions of words: it is read line by line, and only requested words are kept. `.gz` files are
decompressed.
"""

import gzip
import math
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from regard.errors import DataError
from regard.files import atomic_file

MAX_VECTOR_LINE_BYTES = 2**20  # longer lines are not text
Vector = NDArray[np.float32]


@dataclass(frozen=True)
class WordVectors:
    """Vectors of the requested words that a file has."""

    vectors: dict[str, Vector]
    num_words: int  # in the whole file
    lowercase: bool  # whether no word of the file has an uppercase letter


def vector_size(path: Path) -> int:
    """Return the size of the vectors of a file, from its first line."""
    with _opened(path) as file:
        return _read_header(path, file.readline(MAX_VECTOR_LINE_BYTES))[0]


def read_word_vectors(path: Path, requested: Collection[str]) -> WordVectors:
    """Return the vectors of the requested words; if a word occurs twice, the first."""
    vectors: dict[str, Vector] = {}
    num_words, lowercase = 0, True
    with _opened(path) as file:
        first = file.readline(MAX_VECTOR_LINE_BYTES)
        size, expected_words = _read_header(path, first)
        for number, line in _vector_lines(file, first if expected_words is None else None):
            spaces = line.count(b" ")
            if spaces < size:
                raise _wrong_size(path, number, line, size)
            if spaces == size:
                raw, _, rest = line.partition(b" ")
            else:  # GloVe has words with spaces
                raw, rest = _split_from_end(line, size)
            word = raw.decode("utf-8", errors="replace")
            num_words += 1
            lowercase = lowercase and word == word.lower()
            if word in requested and word not in vectors:
                vectors[word] = _parse_numbers(path, number, rest)
    if expected_words is not None and num_words < expected_words:
        raise DataError(
            f"{path}: its header says {expected_words:,} words, but it has {num_words:,}; get the complete file."
        )
    return WordVectors(vectors, num_words, lowercase)


def write_word_vectors(path: Path, words: Collection[str], vectors: Vector) -> None:
    """Write vectors (words, size) in the format of word2vec."""
    with atomic_file(path) as file:
        file.write(f"{len(vectors)} {vectors.shape[1]}\n".encode())
        for word, vector in zip(words, vectors, strict=True):
            file.write(f"{word} {' '.join(f'{number:.6g}' for number in vector.tolist())}\n".encode())


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            yield cast(BinaryIO, file)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise DataError(
            f"{path}: cannot be decompressed; get the complete file, or one that is not compressed."
        ) from None
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror}); pass the path of word vectors in text format."
        ) from None


def _vector_lines(file: BinaryIO, first: bytes | None) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that hold vectors, with their numbers."""
    if first is not None:
        yield 1, first.rstrip()
    for number, line in enumerate(iter(lambda: file.readline(MAX_VECTOR_LINE_BYTES), b""), start=2):
        if stripped := line.rstrip(b" \t\r\n"):
            yield number, stripped


def _read_header(path: Path, first: bytes) -> tuple[int, int | None]:
    """Return the size of vectors, and the number of words if the first line is a header."""
    fields = first.split()
    if len(fields) == 2 and all(field.isdigit() for field in fields) and int(fields[1]):
        return int(fields[1]), int(fields[0])
    if len(fields) < 2:
        raise DataError(f"{path}:1: expected a word and its numbers; pass word vectors in text format.")
    _parse_numbers(path, 1, b" ".join(fields[1:]))
    return len(fields) - 1, None


def _split_from_end(line: bytes, size: int) -> tuple[bytes, bytes]:
    """Return a word that may have spaces, and its numbers."""
    numbers = line.rsplit(b" ", size)
    return numbers[0], b" ".join(numbers[1:])


def _parse_numbers(path: Path, line_number: int, text: bytes) -> Vector:
    values = []
    for field in text.split(b" "):
        try:
            values.append(float(field))
        except ValueError:
            values.append(math.nan)
        if not math.isfinite(values[-1]):
            shown = field.decode("utf-8", errors="replace")
            raise DataError(f"{path}:{line_number}: {shown!r} is not a number; fix the line, or remove it.")
    return np.array(values, np.float32)


def _wrong_size(path: Path, line_number: int, line: bytes, size: int) -> DataError:
    if b"\0" in line:
        return DataError(f"{path}: is in a binary format; save the vectors as text.")
    word, *rest = line.decode("utf-8", errors="replace").split(" ")
    return DataError(
        f"{path}:{line_number}: the word {word[:40]!r} has {len(rest)} numbers instead of {size}; "
        "fix the line, or remove it."
    )
