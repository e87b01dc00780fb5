"""Word vectors in the standard text format: a word and its numbers on each line, as word2vec, GloVe and fastText write.

word2vec and fastText say first how many words there are and how many numbers each has; GloVe does not. A file may hold
millions of words: it is read line by line, and only what is wanted is kept. A name that ends in `.gz` is unpacked.
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

MAX_VECTOR_LINE_BYTES = 2**20  # bytes of a line; what is longer is not text
Vector = NDArray[np.float32]


@dataclass(frozen=True)
class WordVectors:
    """What a file has of the words that were wanted."""

    vectors: dict[str, Vector]
    words: int  # in the whole file
    lowercase: bool  # whether no word of the file has a capital


def vector_size(path: Path) -> int:
    """How many numbers the words of a file have, as its first line tells."""
    with _opened(path) as file:
        return _layout(path, file.readline(MAX_VECTOR_LINE_BYTES))[0]


def read_word_vectors(path: Path, wanted: Collection[str]) -> WordVectors:
    """The vectors of the words that are wanted; of a word that comes twice, the first."""
    vectors: dict[str, Vector] = {}
    words, lowercase = 0, True
    with _opened(path) as file:
        first = file.readline(MAX_VECTOR_LINE_BYTES)
        width, promised = _layout(path, first)
        for number, line in _lines(file, first if promised is None else None):
            spaces = line.count(b" ")
            if spaces < width:
                raise _misfit(path, number, line, width)
            if spaces == width:
                raw, _, rest = line.partition(b" ")
            else:  # GloVe has words with a space inside
                raw, rest = _apart(line, width)
            word = raw.decode("utf-8", errors="replace")  # what is not text is no word that anyone wants
            words += 1
            lowercase = lowercase and word == word.lower()
            if word in wanted and word not in vectors:
                vectors[word] = _numbers(path, number, rest)
    if promised is not None and words < promised:
        raise DataError(f"{path}: says that it has {promised:,} words, but has {words:,}; get the whole file.")
    return WordVectors(vectors, words, lowercase)


def write_word_vectors(path: Path, words: Collection[str], vectors: Vector) -> None:
    """Write vectors (words, width) as word2vec does."""
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
        raise DataError(f"{path}: cannot be unpacked; get the whole file, or one that is not packed.") from None
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror}); give the path of word vectors in text format."
        ) from None


def _lines(file: BinaryIO, first: bytes | None) -> Iterator[tuple[int, bytes]]:
    """The lines that hold vectors, with their numbers."""
    if first is not None:
        yield 1, first.rstrip()
    for number, line in enumerate(iter(lambda: file.readline(MAX_VECTOR_LINE_BYTES), b""), start=2):
        if stripped := line.rstrip(b" \t\r\n"):
            yield number, stripped


def _layout(path: Path, first: bytes) -> tuple[int, int | None]:
    """The width, and how many words there should be, if the first line says so."""
    fields = first.split()
    if len(fields) == 2 and all(field.isdigit() for field in fields) and int(fields[1]):
        return int(fields[1]), int(fields[0])
    if len(fields) < 2:
        raise DataError(f"{path}:1: should be a word and its numbers; give word vectors in text format.")
    _numbers(path, 1, b" ".join(fields[1:]))
    return len(fields) - 1, None


def _apart(line: bytes, width: int) -> tuple[bytes, bytes]:
    """A word with spaces inside, and its numbers."""
    numbers = line.rsplit(b" ", width)
    return numbers[0], b" ".join(numbers[1:])


def _numbers(path: Path, number: int, text: bytes) -> Vector:
    values = []
    for field in text.split(b" "):
        try:
            values.append(float(field))
        except ValueError:
            values.append(math.nan)
        if not math.isfinite(values[-1]):
            said = field.decode("utf-8", errors="replace")
            raise DataError(f"{path}:{number}: {said!r} is not a number; mend the line, or remove it.")
    return np.array(values, np.float32)


def _misfit(path: Path, number: int, line: bytes, width: int) -> DataError:
    if b"\0" in line:
        return DataError(f"{path}: is in a binary format; save the vectors as text.")
    word, *rest = line.decode("utf-8", errors="replace").split(" ")
    return DataError(
        f"{path}:{number}: the word {word[:40]!r} has {len(rest)} numbers, and should have {width}; "
        "mend the line, or remove it."
    )
