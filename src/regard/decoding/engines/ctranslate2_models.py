"""Converted CTranslate2 models: made on first use, cached under a hash of the weights, and loaded."""

import hashlib
import logging
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from regard.decoding.engines.engine import Precision
from regard.errors import ModelError, UnwritableModelError
from regard.models.folder_files import CONFIG_FILE, TARGET_TOKENIZER_FILE, TOKENIZER_FILE, WEIGHTS_FILE, parse_json

log = logging.getLogger(__name__)
CONVERSION_FOLDER = "ctranslate2"  # in the model folder


def available_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def converted_folder(folder: Path, precision: Precision) -> Path:
    """The folder with the converted model, which is made if it is not there; others of this precision are removed.

    Where the model folder cannot be written, or its disk is full, it is kept in the user's cache.
    """
    name = f"{precision}-{fingerprint(folder)}"
    for home in (folder / CONVERSION_FOLDER, _cache()):
        if (home / name / "model.bin").is_file():
            return home / name
    if os.access(folder, os.W_OK):
        try:
            _convert(folder, folder / CONVERSION_FOLDER / name, precision)
        except UnwritableModelError as error:
            log.info("%s The cache is tried.", error)
        else:
            for old in (folder / CONVERSION_FOLDER).glob(f"{precision}-*"):
                if old.name != name:
                    shutil.rmtree(old, ignore_errors=True)
            return folder / CONVERSION_FOLDER / name
    _convert(folder, _cache() / name, precision)
    return _cache() / name


def _convert(folder: Path, out: Path, precision: Precision) -> None:
    from regard.interop.ctranslate2 import export_ctranslate2  # only now is torch needed

    shutil.rmtree(out, ignore_errors=True)  # what is left of a damaged one
    try:
        export_ctranslate2(folder, out, precision)
    except ModelError:
        if not (out / "model.bin").is_file():  # else someone else has converted it in the meantime
            raise


def load_ctranslate2(
    kind: Literal["Translator", "Generator"], folder: Path, precision: Precision
) -> "LoadedCTranslate2":
    """CTranslate2 with a model: one worker for each core, with one thread each. A damaged conversion is made again."""
    place = converted_folder(folder, precision)
    try:
        return _load(kind, place, precision)
    except (RuntimeError, ValueError, ModelError):
        shutil.rmtree(place, ignore_errors=True)
    return _load(kind, converted_folder(folder, precision), precision)


@dataclass(frozen=True)
class LoadedCTranslate2:
    """A model that is ready to run, and the tokens of its vocabularies by their ids."""

    runner: Any
    source: list[str]
    target: list[str]


def _load(kind: str, place: Path, precision: Precision) -> LoadedCTranslate2:
    import ctranslate2

    runner = getattr(ctranslate2, kind)(
        str(place), inter_threads=available_cores(), intra_threads=1, compute_type=precision
    )
    if kind == "Generator" or (place / "shared_vocabulary.json").exists():
        names = _names(place / ("vocabulary.json" if kind == "Generator" else "shared_vocabulary.json"))
        return LoadedCTranslate2(runner, names, names)
    return LoadedCTranslate2(runner, *(_names(place / f"{side}_vocabulary.json") for side in ("source", "target")))


def _names(path: Path) -> list[str]:
    names = parse_json(path)
    if not isinstance(names, list):
        raise ModelError(f"{path}: should hold a list.")
    return names


def fingerprint(folder: Path) -> str:
    """A hash of everything in a model folder that a converted model follows from."""
    digest = hashlib.sha256()
    for name in (CONFIG_FILE, TOKENIZER_FILE, TARGET_TOKENIZER_FILE, WEIGHTS_FILE):
        if (folder / name).is_file():
            with (folder / name).open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "regard" / CONVERSION_FOLDER
