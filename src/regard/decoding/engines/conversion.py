"""Models converted for CTranslate2: made on first use, cached under a hash of the model folder, and loaded.

The checksums of a conversion are verified whenever it is loaded; a damaged conversion is made again. Of several
processes that need a conversion at the same time, one makes it. Before a language model is first used in int8, its
predictions are compared with those in float32, which is used instead if they differ too much; the result is kept
in the folder of the conversions.
"""

import hashlib
import json
import logging
import os
import shutil
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from regard.config import Config
from regard.data.tokenizer_file import MAX_TOKENIZER_BYTES
from regard.errors import ModelError, UnwritableModelError
from regard.files import checksums_match, folder_lock, read_regular_file, write_text
from regard.interop.int8_quality import Int8Quality, measure_int8_quality
from regard.machine import available_cores, ctranslate2_device
from regard.models.adapter_files import ADAPTER_FILE, ADAPTER_WEIGHTS_FILE
from regard.models.folder_files import CONFIG_FILE, TARGET_TOKENIZER_FILE, TOKENIZER_FILE, WEIGHTS_FILE, parse_json
from regard.registry import Precision

CONVERSION_FOLDER = "ctranslate2"  # in the model folder
CONVERTED_WEIGHTS = "model.bin"
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoadedCTranslate2:
    """A loaded model, and the tokens of its vocabularies by id."""

    runner: Any
    source_tokens: list[str]
    target_tokens: list[str]


def worker_count(threads: int | None, device: str) -> int:
    """Return how many workers load a model: on a CPU `threads`, by default one per core; on a GPU one."""
    kind, _ = ctranslate2_device(device) or ("cpu", 0)
    return 1 if kind == "cuda" else threads or available_cores()


def load_ctranslate2(
    kind: Literal["Translator", "Generator"],
    folder: Path,
    precision: Precision,
    threads: int | None = None,
    device: str = "cpu",
) -> LoadedCTranslate2:
    """Load a model with single-threaded workers, by default one per core; on a GPU with one.

    A conversion that cannot be loaded is made again.
    """
    converted = converted_folder(folder, precision)
    try:
        return _load(kind, converted, precision, threads, device)
    except (RuntimeError, ValueError, ModelError):  # written by another version of CTranslate2
        shutil.rmtree(converted, ignore_errors=True)
    converted = converted_folder(folder, precision)
    try:
        return _load(kind, converted, precision, threads, device)
    except (RuntimeError, ValueError) as error:
        raise ModelError(f"{converted}: CTranslate2 cannot load it ({error}); use --engine torch.") from None


def usable_precision(folder: Path, config: Config, precision: Precision) -> Precision:
    """Return the precision for a language model: float32 instead of int8, with one notice, if int8 harms it."""
    if precision != "int8":
        return precision
    fingerprint = model_fingerprint(folder)
    quality = _stored_quality(folder, fingerprint)
    if quality is None:
        with folder_lock(folder):
            quality = _stored_quality(folder, fingerprint)  # another process may have measured it in the meantime
            if quality is None:
                quality = _measure_quality(folder, config, fingerprint)
                if not quality.is_accurate:
                    log.warning("%s: %s, so float32 is used.", folder, quality)
    return "int8" if quality.is_accurate else "float32"


def _stored_quality(folder: Path, fingerprint: str) -> Int8Quality | None:
    for parent in (folder / CONVERSION_FOLDER, _cache_folder()):
        try:
            stored = json.loads(read_regular_file(parent / f"quality-{fingerprint}.json"))
            return Int8Quality(float(stored["divergence"]), float(stored["agreement"]))
        except (OSError, ValueError, LookupError, TypeError):  # not measured yet, or damaged
            continue
    return None


def _measure_quality(folder: Path, config: Config, fingerprint: str) -> Int8Quality:
    """Convert the model to both precisions, keep the one that will be used, and store how much they differ."""
    had_float32 = any(
        (parent / f"float32-{fingerprint}").exists() for parent in (folder / CONVERSION_FOLDER, _cache_folder())
    )
    int8, float32 = converted_folder(folder, "int8"), converted_folder(folder, "float32")
    quality = measure_int8_quality(int8, float32, config)
    for old in int8.parent.glob("quality-*.json") if int8.parent != _cache_folder() else ():
        old.unlink(missing_ok=True)
    with suppress(OSError):  # it is measured again by the next process
        write_text(int8.parent / f"quality-{fingerprint}.json", json.dumps(asdict(quality)) + "\n")
    if not quality.is_accurate:
        shutil.rmtree(int8, ignore_errors=True)
    elif not had_float32:
        shutil.rmtree(float32, ignore_errors=True)
    return quality


def _load(kind: str, folder: Path, precision: Precision, threads: int | None, device: str) -> LoadedCTranslate2:
    import ctranslate2

    device_kind, index = ctranslate2_device(device) or ("cpu", 0)
    runner = getattr(ctranslate2, kind)(
        str(folder),
        device=device_kind,
        device_index=index,
        inter_threads=worker_count(threads, device),
        intra_threads=1,
        compute_type=precision,
    )
    if kind == "Generator" or (folder / "shared_vocabulary.json").exists():
        tokens = _read_tokens(folder / ("vocabulary.json" if kind == "Generator" else "shared_vocabulary.json"))
        return LoadedCTranslate2(runner, tokens, tokens)
    return LoadedCTranslate2(
        runner, *(_read_tokens(folder / f"{side}_vocabulary.json") for side in ("source", "target"))
    )


def _read_tokens(path: Path) -> list[str]:
    tokens = parse_json(path, MAX_TOKENIZER_BYTES)
    if not isinstance(tokens, list):
        raise ModelError(f"{path}: should contain a list of tokens; remove the folder, so that it is made again.")
    return tokens


def converted_folder(folder: Path, precision: Precision) -> Path:
    """Return the folder with the converted model; convert it, and remove older conversions, if it does not exist.

    If the model folder cannot be written or its disk is full, the conversion is stored in the user's cache.
    """
    name = f"{precision}-{model_fingerprint(folder)}"
    for parent in (folder / CONVERSION_FOLDER, _cache_folder()):
        if checksums_match(parent / name):
            return parent / name
        if (parent / name / CONVERTED_WEIGHTS).is_file():
            log.warning("%s: is damaged, or was written by an older version; it is converted again.", parent / name)
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


def _convert(folder: Path, out: Path, precision: Precision) -> None:
    from regard.interop.ctranslate2 import export_ctranslate2  # only here: its imports take a while

    with folder_lock(out.parent):
        if checksums_match(out):
            return  # another process has converted it in the meantime
        shutil.rmtree(out, ignore_errors=True)  # left over from a damaged conversion
        export_ctranslate2(folder, out, precision, checksums=True)


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "regard" / CONVERSION_FOLDER


def model_fingerprint(folder: Path) -> str:
    """Return a hash of all files in a model folder that determine the converted model."""
    digest = hashlib.sha256()
    shards = sorted(path.name for path in folder.glob("model-*-of-*.safetensors"))
    weights = (WEIGHTS_FILE, ADAPTER_FILE, ADAPTER_WEIGHTS_FILE, *shards)  # an adapter has the checksum of its base
    for name in (CONFIG_FILE, TOKENIZER_FILE, TARGET_TOKENIZER_FILE, *weights):
        if (folder / name).is_file():
            with (folder / name).open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]
