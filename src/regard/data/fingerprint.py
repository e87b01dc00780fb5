"""Whether a token store still fits: a key that follows from the content of the files and from the settings.

A store keeps the key that it was made with as `key` among what is written about it. Where files and settings are the
same, so is the key, and nothing is tokenised again.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from regard.data.corpus import format_of
from regard.data.lines import STANDARD_INPUT, explain_read_errors
from regard.data.readers.builtin import is_builtin, version_of
from regard.data.store import TokenStore, open_store, verify_store
from regard.errors import DataError

KEY = "key"


def fingerprint(files: Iterable[str], settings: Mapping[str, Any]) -> str:
    """The key of files, in order, and settings; where the files lie does not matter.

    >>> fingerprint(["builtin:phrasebook"], {"a": 1, "b": 2}) == fingerprint(["builtin:phrasebook"], {"b": 2, "a": 1})
    True
    """
    contents = [[_kind(file), _content(file)] for file in files]
    return hashlib.blake2b(json.dumps([contents, settings], sort_keys=True).encode(), digest_size=16).hexdigest()


def store_for(folder: Path, key: str, build: Callable[[Path], None]) -> TokenStore:
    """The store in a folder if it is whole and was made with this key; else `build` makes it anew.

    A store of this key whose bytes have changed since is an error: something is wrong with the disk, or with whoever
    writes on it.

    `build` is given the folder, and passes the key on: `store_pairs(folder, …, about={"key": key})`.
    """
    store = open_store(folder)
    if store is not None and store.metadata.get(KEY) == key:
        verify_store(store)
        return store
    build(folder)
    store = open_store(folder)
    if store is None:
        raise DataError(f"{folder}: was written but cannot be read again; check the disk.")
    if store.metadata.get(KEY) != key:
        raise ValueError(f"the store in {folder} was made without its key")
    return store


def _kind(file: str) -> str:
    """How a file is read, which goes by its name."""
    return file if is_builtin(file) else f"{format_of(file)}{'.gz' if file.endswith('.gz') else ''}"


def _content(file: str) -> str:
    """What is in a file, as a short name for it."""
    if is_builtin(file):
        return version_of(file)
    if file == STANDARD_INPUT:
        raise DataError("standard input can be read only once; save it to a file, and give the file.")
    try:
        with explain_read_errors(file):
            if Path(file).exists() and not Path(file).is_file() and not Path(file).is_dir():
                raise DataError(f"{file}: can be read only once; save it to a file, and give the file.")
            with open(file, "rb") as stream:
                return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    except ValueError:
        raise DataError(f"{file!r}: is no path; check it.") from None
