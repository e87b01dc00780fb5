"""Keys of prepared data, which follow from the content of the files and the settings that preparation depends on.

A token store keeps the key that it was made with in its metadata. If files and settings are unchanged, so is the key,
and nothing is tokenized again.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from regard.config import ClassHeadConfig, Config, EncoderConfig, TagHeadConfig
from regard.data.lines import STANDARD_INPUT, explain_read_errors
from regard.data.readers import format_name
from regard.data.readers.builtin import content_version, is_builtin
from regard.data.store import TokenStore, open_store, verify_store
from regard.errors import DataError

KEY = "key"
KEY_TASK_NAMES = {"classify": "classification", "tag": "tagging", "elmo": "bidirectional"}  # as in keys of version 0.1


def fingerprint(files: Iterable[str], settings: Mapping[str, Any]) -> str:
    """Return the key of files, in order, and settings. The paths of the files do not matter.

    >>> fingerprint(["builtin:phrasebook"], {"a": 1, "b": 2}) == fingerprint(["builtin:phrasebook"], {"b": 2, "a": 1})
    True
    """
    contents = [[_format(file), _content(file)] for file in files]
    return hashlib.blake2b(json.dumps([contents, settings], sort_keys=True).encode(), digest_size=16).hexdigest()


def data_key(config: Config) -> str:
    """Return the key of the prepared data of a config.

    The names below are part of the key: renaming one would invalidate all prepared data.
    """
    data, model = config.data, config.model
    settings: dict[str, Any] = {
        "tokenizer": config.tokenizer.model_dump(mode="json", include={"kind", "lowercase", "nfkc"}),
        "vocabulary": model.vocab_size,
        "kind": model.kind,
        "data": {
            "held_out": data.validation_fraction,
            "skip_bad": data.skip_invalid,
            "longest": data.max_length,
            "ratio": data.max_length_ratio,
        },
        "parts": [[len(files) for files in (split.source, split.target, split.files)] for split in data.splits],
    }
    if isinstance(model, EncoderConfig):
        settings["task"] = KEY_TASK_NAMES.get(model.task or "", model.task)
        if isinstance(model.head, ClassHeadConfig | TagHeadConfig):
            settings["head"] = model.head.model_dump(mode="json", exclude={"dropout"})
            settings["tokens"] = config.tokens.model_dump(mode="json")
            settings["readable"] = model.max_length
            settings["column"] = data.tag_column
    if config.task != model.task:  # a plugin's task, which may prepare the same files in another way
        settings["task"] = config.task
    if any(split.parses for split in data.splits):
        settings["parses"] = [len(split.parses) for split in data.splits]
    return fingerprint([*data.file_names, *([config.tokenizer.file] if config.tokenizer.file else [])], settings)


def load_or_build_store(folder: Path, key: str, build: Callable[[Path], None]) -> TokenStore:
    """Return the store in a folder if it is complete and has this key; otherwise call `build` to write it.

    `build` gets the folder, and must write the key to the metadata: `store_pairs(folder, …, metadata={"key": key})`.
    A store of this key whose bytes have changed is an error: the disk is faulty, or another program wrote to it.
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
        raise ValueError(f"the store in {folder} was written without its key")
    return store


def _format(file: str) -> str:
    """Return how a file is read."""
    return file if is_builtin(file) else f"{format_name(file)}{'.gz' if file.endswith('.gz') else ''}"


def _content(file: str) -> str:
    """Return a hash of the content of a file."""
    if is_builtin(file):
        return content_version(file)
    if file == STANDARD_INPUT:
        raise DataError("standard input can be read only once; save it to a file, and pass the file.")
    try:
        with explain_read_errors(file):
            if Path(file).exists() and not Path(file).is_file() and not Path(file).is_dir():
                raise DataError(f"{file}: can be read only once; save it to a file, and pass the file.")
            with open(file, "rb") as stream:
                return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    except ValueError:
        raise DataError(f"{file!r}: is not a path; check it.") from None
