"""The token store: a corpus as ids on disk, read through memory maps.

Each column (source and target, or the one text of a language model) is two arrays: all ids one after the other, and
where each example ends. Writing streams, so that memory stays the same however large the corpus; reading touches only
the pages it needs. A store is written under a temporary name and renamed when complete.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from regard.errors import DataError

FORMAT = 1
META = "store.json"


@dataclass(frozen=True)
class Column:
    """The ids of one side of all examples."""

    ids: NDArray[np.uint16] | NDArray[np.uint32]
    ends: NDArray[np.int64]  # where each example ends among the ids

    def __getitem__(self, example: int) -> NDArray[np.uint16] | NDArray[np.uint32]:
        return self.ids[self.ends[example - 1] if example else 0 : self.ends[example]]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """How many tokens each example has."""
        return np.diff(self.ends, prepend=0)


@dataclass(frozen=True)
class TokenStore:
    """A corpus of examples, each with one row of ids per column."""

    folder: Path
    columns: tuple[Column, ...]
    counts: dict[str, int]  # what was read, kept and left out, by reason

    def __len__(self) -> int:
        return len(self.columns[0].ends)


def write_store(
    folder: Path, examples: Iterable[Sequence[Sequence[int]]], columns: int, vocabulary: int, about: dict[str, Any]
) -> None:
    """Write examples, each a row of ids per column, as they come. `about` is kept beside them."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    dtype = np.uint16 if vocabulary <= 2**16 else np.uint32
    try:
        with ExitStack() as files:
            streams = [
                (
                    files.enter_context(open(draft / f"{n}.ids", "wb")),
                    files.enter_context(open(draft / f"{n}.ends", "wb")),
                )
                for n in range(columns)
            ]
            kept = _write(examples, streams, dtype)
        meta = {"format": FORMAT, "columns": columns, "dtype": np.dtype(dtype).name, "examples": kept, **about}
        (draft / META).write_text(json.dumps(meta, indent=2) + "\n", "utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(draft, folder)
    except OSError as error:
        raise DataError(
            f"{folder}: cannot be written ({error.strerror}); free some space or choose another place."
        ) from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def open_store(folder: Path) -> TokenStore | None:
    """The store in a folder, or None where there is none that is whole."""
    try:
        meta = json.loads((folder / META).read_text("utf-8"))
        columns = tuple(_open_column(folder, n, meta) for n in range(meta["columns"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if meta.get("format") != FORMAT or any(len(column.ends) != meta["examples"] for column in columns):
        return None
    return TokenStore(folder, columns, dict(meta.get("counts", {})))


def chunks(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Items in lists of `size`, the last one shorter."""
    items = iter(items)
    while chunk := list(islice(items, size)):
        yield chunk


def _write(
    examples: Iterable[Sequence[Sequence[int]]], streams: Sequence[tuple[BinaryIO, BinaryIO]], dtype: Any
) -> int:
    kept, ends = 0, [0] * len(streams)
    for chunk in chunks(examples, 4096):
        for n, (ids, marks) in enumerate(streams):
            rows = [example[n] for example in chunk]
            lengths = np.fromiter(map(len, rows), np.int64, len(rows))
            ids.write(np.fromiter((number for row in rows for number in row), dtype, int(lengths.sum())).tobytes())
            marks.write((lengths.cumsum() + ends[n]).tobytes())
            ends[n] += int(lengths.sum())
        kept += len(chunk)
    return kept


def _open_column(folder: Path, n: int, meta: dict[str, Any]) -> Column:
    ends = _map(folder / f"{n}.ends", np.int64)
    ids = _map(folder / f"{n}.ids", np.dtype(meta["dtype"]))
    if len(ids) != (int(ends[-1]) if len(ends) else 0):
        raise ValueError("the ids are cut off")
    return Column(ids, ends)


def _map(path: Path, dtype: Any) -> NDArray[Any]:
    """A file as an array; an empty file cannot be mapped."""
    return np.memmap(path, dtype, "r") if path.stat().st_size else np.empty(0, dtype)
