"""The JSON Lines files that a run appends to, and the detection of damage when it is resumed.

A checkpoint records the size and the CRC-32 of each file. On resume, what was appended after the checkpoint is removed.
If what was written before it has changed, the damaged file is kept under another name, and its readable lines continue.
"""

import json
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from regard.errors import RunFolderError
from regard.files import check_regular_file, write_bytes, write_error_message

APPENDED_FILES = ("metrics.jsonl", "samples.jsonl")
CHUNK_BYTES = 2**20


class AppendedFiles:
    """Appends to the files of a run folder, and restores them to the state of a checkpoint."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._summed: dict[str, tuple[int, int]] = {}  # size and checksum of what this process has summed so far

    def append(self, name: str, record: Mapping[str, Any]) -> None:
        """Append a line."""
        path = self._folder / name
        with write_errors(path), open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")

    def flush(self) -> tuple[dict[str, int], dict[str, int]]:
        """Flush the files to disk; return their sizes and checksums.

        Only bytes that are new since the last call are read: damage of older ones is noticed on resume.
        """
        for name in APPENDED_FILES:
            path = self._folder / name
            if path.exists():
                with write_errors(path), open(path, "rb+") as file:
                    os.fsync(file.fileno())
                    size, checksum = self._summed.get(name, (0, 0))
                    file.seek(size)
                    added, checksum = _checksum(file, None, checksum)
                    self._summed[name] = size + added, checksum
        return {name: size for name, (size, _) in self._summed.items()}, {
            name: checksum for name, (_, checksum) in self._summed.items()
        }

    def restore(self, sizes: Mapping[str, int], checksums: Mapping[str, int]) -> Iterator[str]:
        """Restore the state that `flush` returned for a checkpoint; yield a message about each damaged file."""
        for name in APPENDED_FILES:
            path, size = self._folder / name, sizes.get(name, 0)
            actual = self._read_checksum(path, size)
            if actual is not None and actual == (size, checksums.get(name, actual[1])):
                with write_errors(path):
                    os.truncate(path, size)
                self._summed[name] = actual
            elif actual is not None or size:
                yield self._repair(path, size)

    def _read_checksum(self, path: Path, size: int) -> tuple[int, int] | None:
        """Return how many bytes a file has, up to `size`, and their checksum; None if it does not exist."""
        try:
            check_regular_file(path)
            with open(path, "rb") as file:
                return _checksum(file, size)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise RunFolderError(
                f"{path}: cannot be read ({error.strerror}); restore it from a copy, or remove it."
            ) from None

    def _repair(self, path: Path, size: int) -> str:
        """Keep a damaged file under another name, and continue with its readable lines."""
        if not path.exists():
            return f"{path}: is missing, and so are its lines before this step."
        kept = next(name for name in _kept_names(path) if not name.exists())
        with write_errors(path):
            content = path.read_bytes()[:size]
            lines = [line for line in content.split(b"\n") if line]
            readable = [line for line in lines if _is_record(line)]
            os.replace(path, kept)
            write_bytes(path, b"".join(line + b"\n" for line in readable))
        return (
            f"{path}: is damaged, its bytes have changed since the checkpoint; it is kept as {kept.name}, and "
            f"{len(readable):,} of its {len(lines):,} lines, which can be read, continue."
        )


def _kept_names(path: Path) -> Iterator[Path]:
    yield path.with_name(f"{path.name}.damaged")
    yield from (path.with_name(f"{path.name}.damaged-{number}") for number in range(2, 10_000))


def _checksum(file: BinaryIO, size: int | None, checksum: int = 0) -> tuple[int, int]:
    """Return the number of bytes up to `size`, or to the end, and their CRC-32, continued from `checksum`."""
    count = 0
    while content := file.read(CHUNK_BYTES if size is None else min(CHUNK_BYTES, size - count)):
        checksum, count = zlib.crc32(content, checksum), count + len(content)
    return count, checksum


def _is_record(line: bytes) -> bool:
    try:
        record = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return False
    return isinstance(record, dict) and isinstance(record.get("step"), int)


@contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Turn an OSError into a message about the file."""
    try:
        yield
    except OSError as error:
        then = ", then continue with --resume"
        raise RunFolderError(write_error_message(path, error, remedy="make it writable", then=then)) from None
