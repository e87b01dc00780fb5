"""Keys of prepared data: hashes of the content of files and of the settings that preparation depends on."""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from regard.config import ClassHeadConfig, Config, EncoderConfig, TagHeadConfig
from regard.config.tasks import task_info
from regard.data.chat_templates import read_chat_files
from regard.data.lines import STANDARD_INPUT
from regard.data.readers import files_in, format_name
from regard.data.readers.builtin import content_version, is_builtin
from regard.data.remote import (
    compression_suffix,
    content_digest,
    expand_pattern,
    explain_read_errors,
    has_pattern,
    is_url,
)
from regard.errors import DataError


def files_fingerprint(
    files: Iterable[str], settings: Mapping[str, Any], digests: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Return the key of files, in order, and settings. The paths of the files do not matter.

    Files are read and hashed, except those in `digests`, which were hashed before.

    >>> files = ["builtin:phrasebook"]
    >>> files_fingerprint(files, {"a": 1, "b": 2}) == files_fingerprint(files, {"b": 2, "a": 1})
    True
    """
    contents = [[_format(file), _content(file, digests)] for file in files]
    return hashlib.blake2b(json.dumps([contents, settings], sort_keys=True).encode(), digest_size=16).hexdigest()


def data_key(config: Config, digests: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return the key of the prepared data of a config; `digests` are those of files that were hashed before.

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
        settings["task"] = (task_info(model.task).key_name or model.task) if model.task else ""
        if isinstance(model.head, ClassHeadConfig | TagHeadConfig):
            settings["head"] = model.head.model_dump(mode="json", exclude={"dropout"})
            settings["tokens"] = config.tokens.model_dump(mode="json", exclude={"other_ends"})
            settings["readable"] = model.max_length
            settings["column"] = data.tag_column
    if config.tokenizer.split_punctuation:
        settings["split_punctuation"] = True
    if config.tokenizer.byte_fallback and config.tokenizer.kind in ("character", "word"):  # the others always have it
        settings["byte_fallback"] = True
    if config.task != model.task:  # a plugin's task, which may prepare the same files in another way
        settings["task"] = config.task
    if config.tokenizer.file and config.task and task_info(config.task).uses_chat_template:
        chat_files = read_chat_files(Path(config.tokenizer.file).parent)
        settings["chat"] = {name: content.decode() for name, content in chat_files.items()}
        settings["readable"] = [config.data.context_length, model.max_length]
    if data.train.weights:  # the store has to know where each corpus ends
        settings["corpora"] = data.train.num_parts
    if any(split.parses for split in data.splits):
        settings["parses"] = [len(split.parses) for split in data.splits]
    if any(split.columns for split in data.splits):
        settings["columns"] = [split.columns for split in data.splits]
    files = [*data.file_names, *([config.tokenizer.file] if config.tokenizer.file else [])]
    return files_fingerprint(files, settings, digests)


def _format(file: str) -> str:
    """Return how a file is read."""
    return file if is_builtin(file) else f"{format_name(file)}{compression_suffix(file)}"


def _content(file: str, digests: Mapping[str, str]) -> str:
    """Return a hash of the content of a file, or of the files in a folder."""
    if is_builtin(file):
        return content_version(file)
    if file == STANDARD_INPUT:
        raise DataError("standard input can be read only once; save it to a file, and pass the file.")
    if file in digests:
        return digests[file]
    if has_pattern(file):
        return files_fingerprint(expand_pattern(file), {}, digests)
    if is_url(file):
        return content_digest(file)
    if os.path.isdir(file):
        return files_fingerprint(files_in(file), {}, digests)
    try:
        with explain_read_errors(file):
            if Path(file).exists() and not Path(file).is_file() and not Path(file).is_dir():
                raise DataError(f"{file}: can be read only once; save it to a file, and pass the file.")
            return content_digest(file)
    except ValueError:
        raise DataError(f"{file!r}: is not a path; check it.") from None
