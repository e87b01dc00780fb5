"""Folders in place of data files: the files in them, in the order of their paths.

Hidden files, binary files and run folders are left out. For examples that need a format (pairs, labeled texts, tagged
words), a folder with files of such formats stands for these, and other files in it are left out too.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from regard.data.encoding import wide_encoding
from regard.data.lines import InvalidLines
from regard.data.remote import compression_suffix, expand_pattern, explain_read_errors, is_url
from regard.errors import DataError

RUN_FILE = "run.json"  # in a run folder, which may be in the folder of the data
BINARY_SAMPLE = 4096  # bytes
MAX_LISTED = 3  # files that are named in a note


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
