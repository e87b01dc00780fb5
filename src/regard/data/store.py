"""The token store: a corpus as ids on disk, read through memory maps.

Each column (source and target, or the one text of a language model) is two arrays: all ids one after the other, and
where each example ends. Writing streams, so that memory stays the same however large the corpus; reading touches only
the pages it needs. A store is written under a hidden name and renamed when complete and on the disk, so that whoever
is killed, and whenever, leaves the old store, the new one or none, but never a part of one. What a disk does to it
later shows in its checksums.
"""

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from regard.data.draft import new_draft, publish, remove_abandoned
from regard.errors import DataError

STORE_FORMAT = 2
METADATA_FILE = "store.json"
COLUMN_FILES = ("ids", "ends")  # the files of a column
CHECK_BYTES = 2**22  # bytes that are read at once to be checked


@dataclass(frozen=True)
class TokenColumn:
    """The ids of one side of all examples."""

    ids: NDArray[np.uint16] | NDArray[np.uint32]
    ends: NDArray[np.int64]  # where each example ends among the ids

    def __getitem__(self, example: int) -> NDArray[np.uint16] | NDArray[np.uint32]:
        return self.ids[self.ends[example - 1] if example else 0 : self.ends[example]]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """How many tokens each example has."""
        return np.diff(self.ends, prepend=0)

    def gather(self, examples: NDArray[np.int64]) -> tuple[NDArray[np.integer], NDArray[np.int64]]:
        """The ids of these examples one after the other, and how many each has.

        >>> ids, lengths = TokenColumn(np.arange(9, dtype=np.uint16), np.array([3, 4, 9])).gather(np.array([2, 0]))
        >>> ids.tolist(), lengths.tolist()
        ([4, 5, 6, 7, 8, 0, 1, 2], [5, 3])
        """
        ends = self.ends[examples]
        starts = np.where(examples > 0, self.ends[examples - 1], 0)
        lengths = ends - starts
        moved = starts - (lengths.cumsum() - lengths)  # how far each example lies from where it is going
        return self.ids[np.repeat(moved, lengths) + np.arange(lengths.sum())], lengths


@dataclass(frozen=True)
class TokenStore:
    """A corpus of examples, each with one row of ids per column."""

    folder: Path
    columns: tuple[TokenColumn, ...]
    counts: dict[str, int]  # what was read, kept and left out, by reason
    metadata: dict[str, Any] = field(default_factory=dict)  # what else was written beside the ids

    def __len__(self) -> int:
        return len(self.columns[0].ends)


def write_store(
    folder: Path, examples: Iterable[Sequence[Sequence[int]]], columns: int, vocabulary: int, about: Mapping[str, Any]
) -> None:
    """Write examples, each a row of ids per column, as they come. `about` is kept beside them."""
    with _writing(folder, columns, vocabulary, about) as writers:
        for chunk in chunked(examples, 4096):
            for n, writer in enumerate(writers):
                writer.add([example[n] for example in chunk])


def write_document_store(
    folder: Path, parts: Iterable[tuple[Sequence[int], bool]], vocabulary: int, about: Mapping[str, Any]
) -> None:
    """Write a store of one column from parts of examples: ids, and whether an example ends with them.

    No example needs to fit the memory.
    """
    with _writing(folder, 1, vocabulary, about) as (writer,):
        for ids, last in parts:
            writer.add([ids], last)


def open_store(folder: Path) -> TokenStore | None:
    """The store in a folder, or None where there is none that is whole."""
    try:
        meta = json.loads((folder / METADATA_FILE).read_text("utf-8"))
        columns = tuple(_open_column(folder, n, meta) for n in range(meta["columns"]))
        checksums = set(meta["checksums"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if meta.get("format") != STORE_FORMAT or any(len(column.ends) != meta["examples"] for column in columns):
        return None
    if checksums != {f"{n}.{part}" for n in range(len(columns)) for part in COLUMN_FILES}:
        return None
    return TokenStore(folder, columns, dict(meta.get("counts", {})), meta)


def verify_store(store: TokenStore) -> None:
    """Complain if the bytes of a store are not those that were written."""
    for name, written in store.metadata["checksums"].items():
        path, found = store.folder / name, 0
        with open(path, "rb") as file:
            while read := file.read(CHECK_BYTES):
                found = zlib.crc32(read, found)
        if found != written:
            raise DataError(
                f"{path}: is damaged, its bytes are not those that were written; "
                f"remove the folder {store.folder}, and it is made again."
            )


def chunked(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Items in lists of `size`, the last one shorter."""
    items = iter(items)
    while chunk := list(islice(items, size)):
        yield chunk


@dataclass
class _Writer:
    """Writes one column."""

    ids: BinaryIO
    ends: BinaryIO
    dtype: type[np.uint16] | type[np.uint32]
    examples: int = 0
    tokens: int = 0
    checksums: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COLUMN_FILES, 0))

    def add(self, rows: Sequence[Sequence[int]], last: bool = True) -> None:
        """Add rows of ids, each an example, the last one perhaps to be continued."""
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        total = int(lengths.sum())
        self._write(self.ids, "ids", np.fromiter(chain.from_iterable(rows), self.dtype, total).tobytes())
        ends = (lengths.cumsum() + self.tokens)[: len(rows) if last else -1]
        self._write(self.ends, "ends", ends.tobytes())
        self.examples += len(ends)
        self.tokens += total

    def _write(self, file: BinaryIO, part: str, raw: bytes) -> None:
        file.write(raw)
        self.checksums[part] = zlib.crc32(raw, self.checksums[part])


@contextmanager
def _writing(folder: Path, columns: int, vocabulary: int, about: Mapping[str, Any]) -> Iterator[list[_Writer]]:
    """Writers of columns that become a store when all is written."""
    dtype = np.uint16 if vocabulary <= 2**16 else np.uint32
    with writable(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        remove_abandoned(folder)
        with new_draft(folder) as draft:
            with ExitStack() as files:
                streams = [
                    [files.enter_context(open(draft / f"{n}.{part}", "wb")) for part in COLUMN_FILES]
                    for n in range(columns)
                ]
                writers = [_Writer(ids, ends, dtype) for ids, ends in streams]
                yield writers
            meta = {
                "format": STORE_FORMAT,
                "columns": columns,
                "dtype": np.dtype(dtype).name,
                "examples": writers[0].examples,
                "checksums": {
                    f"{n}.{part}": checksum
                    for n, writer in enumerate(writers)
                    for part, checksum in writer.checksums.items()
                },
                **about,
            }
            (draft / METADATA_FILE).write_text(json.dumps(meta, indent=2) + "\n", "utf-8")
            publish(draft, folder)


@contextmanager
def writable(place: Path) -> Iterator[None]:
    """While it lasts, what keeps prepared data from being written becomes a sentence."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{place}: cannot be written ({error.strerror}); free some space or choose another place."
        ) from None


def _open_column(folder: Path, n: int, meta: dict[str, Any]) -> TokenColumn:
    ends = _map(folder / f"{n}.ends", np.int64)
    ids = _map(folder / f"{n}.ids", np.dtype(meta["dtype"]))
    if len(ids) != (int(ends[-1]) if len(ends) else 0):
        raise ValueError("the ids are cut off")
    return TokenColumn(ids, ends)


def _map(path: Path, dtype: Any) -> NDArray[Any]:
    """A file as an array; an empty file cannot be mapped."""
    if not path.stat().st_size:
        return np.empty(0, dtype)
    return np.memmap(path, dtype, "r").view(np.ndarray)  # slices of a plain array are made ten times faster
