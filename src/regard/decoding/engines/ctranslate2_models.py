"""Converted CTranslate2 models: made on first use, cached under a hash of the model folder, and loaded."""

import hashlib
import logging
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from regard.errors import ModelError, UnwritableModelError
from regard.interop.ctranslate2_support import Precision
from regard.models.folder_files import CONFIG_FILE, TARGET_TOKENIZER_FILE, TOKENIZER_FILE, WEIGHTS_FILE, parse_json

log = logging.getLogger(__name__)
CONVERSION_FOLDER = "ctranslate2"  # in the model folder
CONVERTED_WEIGHTS = "model.bin"


@dataclass(frozen=True)
class LoadedCTranslate2:
    """A loaded model, and the tokens of its vocabularies by id."""

    runner: Any
    source_tokens: list[str]
    target_tokens: list[str]


def load_ctranslate2(kind: Literal["Translator", "Generator"], folder: Path, precision: Precision) -> LoadedCTranslate2:
    """Load a model with one single-threaded worker per core; a damaged conversion is made again."""
    converted = converted_folder(folder, precision)
    try:
        return _load(kind, converted, precision)
    except (RuntimeError, ValueError, ModelError):
        shutil.rmtree(converted, ignore_errors=True)
    return _load(kind, converted_folder(folder, precision), precision)


def converted_folder(folder: Path, precision: Precision) -> Path:
    """Return the folder with the converted model; convert it, and remove older conversions, if it does not exist.

    If the model folder cannot be written or its disk is full, the conversion is stored in the user's cache.
    """
    name = f"{precision}-{fingerprint(folder)}"
    for parent in (folder / CONVERSION_FOLDER, _cache_folder()):
        if (parent / name / CONVERTED_WEIGHTS).is_file():
            return parent / name
    if os.access(folder, os.W_OK):
        try:
            _convert(folder, folder / CONVERSION_FOLDER / name, precision)
        except UnwritableModelError as error:
            log.info("%s Trying the cache.", error)
        else:
            for old in (folder / CONVERSION_FOLDER).glob(f"{precision}-*"):
                if old.name != name:
                    shutil.rmtree(old, ignore_errors=True)
            return folder / CONVERSION_FOLDER / name
    _convert(folder, _cache_folder() / name, precision)
    return _cache_folder() / name


def fingerprint(folder: Path) -> str:
    """Return a hash of all files in a model folder that determine the converted model."""
    digest = hashlib.sha256()
    for name in (CONFIG_FILE, TOKENIZER_FILE, TARGET_TOKENIZER_FILE, WEIGHTS_FILE):
        if (folder / name).is_file():
            with (folder / name).open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _convert(folder: Path, out: Path, precision: Precision) -> None:
    from regard.interop.ctranslate2 import export_ctranslate2  # imports torch, which is needed only here

    shutil.rmtree(out, ignore_errors=True)  # left over from a damaged conversion
    try:
        export_ctranslate2(folder, out, precision)
    except ModelError:
        if not (out / CONVERTED_WEIGHTS).is_file():  # else another process has converted it in the meantime
            raise


def _load(kind: str, folder: Path, precision: Precision) -> LoadedCTranslate2:
    import ctranslate2

    runner = getattr(ctranslate2, kind)(
        str(folder), inter_threads=available_cores(), intra_threads=1, compute_type=precision
    )
    if kind == "Generator" or (folder / "shared_vocabulary.json").exists():
        tokens = _read_tokens(folder / ("vocabulary.json" if kind == "Generator" else "shared_vocabulary.json"))
        return LoadedCTranslate2(runner, tokens, tokens)
    return LoadedCTranslate2(
        runner, *(_read_tokens(folder / f"{side}_vocabulary.json") for side in ("source", "target"))
    )


def _read_tokens(path: Path) -> list[str]:
    tokens = parse_json(path)
    if not isinstance(tokens, list):
        raise ModelError(f"{path}: should contain a list of tokens; remove the folder, so that it is made again.")
    return tokens


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "regard" / CONVERSION_FOLDER
