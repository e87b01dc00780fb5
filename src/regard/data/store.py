"""Token stores: corpora as ids on disk, read through memory maps.

Each column (source and target, or the text of a language model) is two files: all ids, concatenated, and where each
example ends. Writing streams, so that memory does not grow with the corpus; reading touches only the pages it needs.
A store is written atomically: a killed process leaves the old store, the new one or none. Checksums detect later
damage.
"""

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from regard.errors import DataError
from regard.files import atomic_folder, explain_write_errors, read_regular_file

T = TypeVar("T")
STORE_FORMAT = 2  # version
METADATA_FILE = "store.json"
MAX_METADATA_BYTES = 64 * 2**20
COLUMN_FILES = ("ids", "ends")  # suffixes of the files of a column
EXAMPLES_PER_CHUNK = 4096  # that are written at once
IDS_AT_ONCE = 2**22  # that are counted at once
CHECK_BYTES = 2**22  # that are read at once to verify a checksum


@dataclass(frozen=True)
class TokenColumn:
    """The ids of one column of all examples."""

    ids: NDArray[np.uint16] | NDArray[np.uint32]
    ends: NDArray[np.int64]  # where each example ends in `ids`

    def __getitem__(self, example: int) -> NDArray[np.uint16] | NDArray[np.uint32]:
        return self.ids[self.ends[example - 1] if example else 0 : self.ends[example]]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of tokens of each example."""
        return np.diff(self.ends, prepend=0)

    def token_counts(self, vocab_size: int) -> NDArray[np.int64]:
        """Return how often each id occurs; the ids are read a few million at a time."""
        counts = np.zeros(vocab_size, np.int64)
        for start in range(0, len(self.ids), IDS_AT_ONCE):
            counts += np.bincount(self.ids[start : start + IDS_AT_ONCE], minlength=vocab_size)[:vocab_size]
        return counts

    def lengths_of(self, examples: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of tokens of each of these examples."""
        return self.ends[examples] - np.where(examples > 0, self.ends[examples - 1], 0)

    def gather(self, examples: NDArray[np.int64]) -> tuple[NDArray[np.integer], NDArray[np.int64]]:
        """Return the ids of these examples, concatenated, and the number of tokens of each.

        >>> ids, lengths = TokenColumn(np.arange(9, dtype=np.uint16), np.array([3, 4, 9])).gather(np.array([2, 0]))
        >>> ids.tolist(), lengths.tolist()
        ([4, 5, 6, 7, 8, 0, 1, 2], [5, 3])
        """
        ends = self.ends[examples]
        starts = np.where(examples > 0, self.ends[examples - 1], 0)
        lengths = ends - starts
        offsets = starts - (lengths.cumsum() - lengths)  # from where an example goes to where it is
        return self.ids[np.repeat(offsets, lengths) + np.arange(lengths.sum())], lengths


@dataclass(frozen=True)
class TokenStore:
    """A corpus of examples, each with one row of ids per column."""

    folder: Path
    columns: tuple[TokenColumn, ...]
    counts: dict[str, int]  # examples that were read, kept and left out, by reason
    metadata: dict[str, Any] = field(default_factory=dict)  # everything in `store.json`

    def __len__(self) -> int:
        return len(self.columns[0].ends)


def write_store(
    folder: Path,
    examples: Iterable[Sequence[Sequence[int]]],
    columns: int,
    vocab_size: int,
    metadata: Mapping[str, Any],
) -> None:
    """Write a store of examples, each with a row of ids per column.

    Args:
        folder: the folder of the store, which is replaced.
        examples: the examples, which are read once.
        columns: how many columns there are.
        vocab_size: the number of different ids, which determines their type.
        metadata: what is saved with the ids.
    """
    with open_writers(folder, columns, vocab_size, metadata) as writers:
        for chunk in chunked(examples, EXAMPLES_PER_CHUNK):
            for n, writer in enumerate(writers):
                writer.add([example[n] for example in chunk])


def write_document_store(
    folder: Path, parts: Iterable[tuple[Sequence[int], bool]], vocab_size: int, metadata: Mapping[str, Any]
) -> None:
    """Write a store of one column from parts of examples, so that no example needs to fit the memory.

    Args:
        folder: the folder of the store, which is replaced.
        parts: the ids of each part, and whether it ends its example.
        vocab_size: the number of different ids, which determines their type.
        metadata: what is saved with the ids.
    """
    with open_writers(folder, 1, vocab_size, metadata) as (writer,):
        for ids, last in parts:
            writer.add([ids], last)


def open_store(folder: Path) -> TokenStore | None:
    """Open the store in a folder; None if there is no complete one."""
    try:
        metadata = json.loads(read_regular_file(folder / METADATA_FILE, MAX_METADATA_BYTES).decode("utf-8"))
        columns = tuple(_open_column(folder, n, metadata) for n in range(metadata["columns"]))
        checksums = set(metadata["checksums"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if metadata.get("format") != STORE_FORMAT or any(len(column.ends) != metadata["examples"] for column in columns):
        return None
    if checksums != {f"{n}.{suffix}" for n in range(len(columns)) for suffix in COLUMN_FILES}:
        return None
    return TokenStore(folder, columns, dict(metadata.get("counts", {})), metadata)


_verified: ContextVar[bool] = ContextVar("verified", default=False)


@contextmanager
def verified_stores() -> Iterator[None]:
    """Do not verify stores in the body: another process of the same run has just done so."""
    token = _verified.set(True)
    try:
        yield
    finally:
        _verified.reset(token)


def verify_store(store: TokenStore) -> None:
    """Raise an error if the bytes of a store have changed since it was written."""
    if _verified.get():
        return
    for name, checksum in store.metadata["checksums"].items():
        path, actual = store.folder / name, 0
        with open(path, "rb") as file:
            while content := file.read(CHECK_BYTES):
                actual = zlib.crc32(content, actual)
        if actual != checksum:
            raise DataError(
                f"{path}: is damaged, its bytes have changed since it was written; "
                f"remove the folder {store.folder}, and it is prepared again."
            )


def id_type(vocab_size: int) -> type[np.uint16] | type[np.uint32]:
    """Return the type of the ids of a vocabulary."""
    return np.uint16 if vocab_size <= 2**16 else np.uint32


def chunked(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield items in lists of `size`; the last may be shorter."""
    items = iter(items)
    while chunk := list(islice(items, size)):
        yield chunk


@dataclass
class ColumnWriter:
    """Writes one column."""

    ids: BinaryIO
    ends: BinaryIO
    dtype: type[np.uint16] | type[np.uint32]
    examples: int = 0
    tokens: int = 0
    checksums: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COLUMN_FILES, 0))

    def add(self, rows: Sequence[Sequence[int]], last: bool = True) -> None:
        """Add rows of ids, one per example; unless `last`, the last row is continued by the next call."""
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        self.add_arrays(np.fromiter(chain.from_iterable(rows), self.dtype, int(lengths.sum())), lengths, last)

    def add_arrays(self, ids: NDArray[np.integer[Any]], lengths: NDArray[np.int64], last: bool = True) -> None:
        """Add rows of ids, concatenated, and the length of each; unless `last`, the last row is continued."""
        self._write(self.ids, "ids", ids.astype(self.dtype, copy=False).tobytes())
        ends = (lengths.cumsum() + self.tokens)[: len(lengths) if last else -1]
        self._write(self.ends, "ends", ends.tobytes())
        self.examples += len(ends)
        self.tokens += len(ids)

    def _write(self, file: BinaryIO, suffix: str, content: bytes) -> None:
        file.write(content)
        self.checksums[suffix] = zlib.crc32(content, self.checksums[suffix])


@contextmanager
def open_writers(
    folder: Path, columns: int, vocab_size: int, metadata: Mapping[str, Any]
) -> Iterator[list[ColumnWriter]]:
    """Yield the writers of columns; the store, with the metadata as they are then, replaces `folder` at the end."""
    dtype = id_type(vocab_size)
    with explain_write_errors(folder, remedy="choose another place"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with atomic_folder(folder, replace=True) as temporary:
            with ExitStack() as files:
                streams = [
                    [files.enter_context(open(temporary / f"{n}.{suffix}", "wb")) for suffix in COLUMN_FILES]
                    for n in range(columns)
                ]
                writers = [ColumnWriter(ids, ends, dtype) for ids, ends in streams]
                yield writers
            content = {
                "format": STORE_FORMAT,
                "columns": columns,
                "dtype": np.dtype(dtype).name,
                "examples": writers[0].examples,
                "checksums": {
                    f"{n}.{suffix}": checksum
                    for n, writer in enumerate(writers)
                    for suffix, checksum in writer.checksums.items()
                },
                **metadata,
            }
            (temporary / METADATA_FILE).write_text(json.dumps(content, indent=2) + "\n", "utf-8")


def _open_column(folder: Path, n: int, metadata: dict[str, Any]) -> TokenColumn:
    ends = _map_file(folder / f"{n}.ends", np.int64)
    ids = _map_file(folder / f"{n}.ids", np.dtype(metadata["dtype"]))
    if len(ids) != (int(ends[-1]) if len(ends) else 0):
        raise ValueError("the ids are truncated")
    return TokenColumn(ids, ends)


def _map_file(path: Path, dtype: Any) -> NDArray[Any]:
    """Map a file as an array; an empty file cannot be mapped."""
    if not path.stat().st_size:
        return np.empty(0, dtype)
    return np.memmap(path, dtype, "r").view(np.ndarray)  # slicing a plain array is ten times faster
