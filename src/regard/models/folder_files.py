"""The files of a model folder, and reading its settings; imports no torch."""

import json
import shlex
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from regard.config import Config, validate_sources
from regard.config.errors import ConfigSource
from regard.errors import ConfigError, ModelError
from regard.files import MAX_SMALL_FILE_BYTES, load_json, read_regular_file

FORMAT_VERSION = 1
MAX_JSON_BYTES = 64 * 2**20  # of indexes and tokenizer settings, which list tensors and tokens
CONFIG_FILE, WEIGHTS_FILE, CARD_FILE = "config.json", "model.safetensors", "README.md"
WEIGHTS_INDEX_FILE = "model.safetensors.index.json"  # of weights in several files, as Hugging Face writes them
TOKENIZER_FILE = "tokenizer.json"
TARGET_TOKENIZER_FILE = "target_tokenizer.json"  # if the target has a tokenizer of its own
BEST_FOLDER, RUN_FILE = "best", "run.json"  # in a run folder: the model folder, and the state of the run
CHECKSUM_KEY = "crc32"  # of the bytes of the tensors, in the metadata of a file of weights
NO_CHECKSUM = "00000000"  # until they are written
MAX_HEADER_BYTES = 100_000_000  # of safetensors
CHUNK_BYTES = 2**20
T = TypeVar("T")


def resolve_model_folder(path: str | Path) -> Path:
    """Return the path of a model folder; for a run folder, that of its best model."""
    folder = Path(path)
    if not folder.is_dir():
        problem = "is not a folder" if folder.exists() else "does not exist"
        raise ModelError(f"{folder}: {problem}; give the path of a model folder, or of a run.")
    if not (folder / CONFIG_FILE).exists() and (folder / BEST_FOLDER / CONFIG_FILE).is_file():
        return folder / BEST_FOLDER
    if not (folder / CONFIG_FILE).exists() and (folder / RUN_FILE).is_file():
        raise ModelError(
            f"{folder}: is a run that has no model yet, because it stopped before its first validation; continue it "
            f"with regard train --resume --out {shlex.quote(str(folder))}."
        )
    return folder


def read_config(folder: Path) -> Config:
    """Return the settings of a model folder."""
    path = folder / CONFIG_FILE
    info = read_json(path)
    version = info.pop("format", None)
    if version is None:
        raise ModelError(
            f"{path}: has no format number, so it is not a regard model; "
            "import a Hugging Face folder with regard import."
        )
    if version != FORMAT_VERSION:
        raise ModelError(
            f"{path}: has format {version!r}, but this regard reads format {FORMAT_VERSION}; update regard."
        )
    info.pop("regard", None)
    try:
        return validate_sources([ConfigSource(str(path), info)])
    except ConfigError as error:
        raise ModelError(str(error)) from None


def read_weight_files(folder: Path, read: Callable[[Path], Mapping[str, T]]) -> tuple[Path, dict[str, T]]:
    """Return the tensors of a model folder by name, from one file or several, and the file or index they are from.

    `read` returns the tensors of one file.
    """
    path, index = folder / WEIGHTS_FILE, folder / WEIGHTS_INDEX_FILE
    if path.exists() or not index.exists():
        return path, dict(read(path))
    shards = read_json(index, MAX_JSON_BYTES).get("weight_map")
    if not isinstance(shards, dict) or not all(isinstance(shard, str) for shard in shards.values()):
        raise ModelError(f"{index}: should map tensors to files under weight_map; copy the folder again.")
    tensors: dict[str, T] = {}
    for shard in sorted(set(shards.values())):
        if Path(shard).name != shard:
            raise ModelError(f"{index}: names the file {shard!r}, which is in another folder; copy the folder again.")
        tensors |= read(folder / shard)
    missing = next((name for name in shards if name not in tensors), None)
    if missing is not None:
        raise ModelError(
            f"{folder / shards[missing]}: has no tensor {missing}, which {index.name} lists; copy the folder again."
        )
    return index, tensors


def write_checksum(path: Path) -> None:
    """Put the checksum of its tensors into a safetensors file whose metadata has `NO_CHECKSUM` in its place.

    The metadata are written in the order of their names: safetensors writes them in another one each time.
    """
    with path.open("r+b") as file:
        header = _read_header(file)
        start = header.index(b"{", header.index(b'"__metadata__":'))
        metadata = json.loads(header[start : header.index(b"}", start) + 1])
        metadata[CHECKSUM_KEY] = _checksum(file)
        file.seek(8 + start)
        file.write(json.dumps(metadata, sort_keys=True, separators=(",", ":")).encode())


def check_checksum(path: Path) -> None:
    """Raise ModelError if the tensors of a safetensors file differ from its checksum; files of others have none."""
    with path.open("rb") as file:
        try:
            expected = json.loads(_read_header(file)).get("__metadata__", {}).get(CHECKSUM_KEY)
        except (AttributeError, ValueError, RecursionError):
            return  # what the file is, is up to safetensors
        if expected is not None and expected != _checksum(file):
            raise ModelError(
                f"{path}: is damaged (its content differs from the {CHECKSUM_KEY} in its metadata); copy the folder "
                "again."
            )


def _read_header(file: BinaryIO) -> bytes:
    return file.read(min(int.from_bytes(file.read(8), "little"), MAX_HEADER_BYTES))


def _checksum(file: BinaryIO) -> str:
    """Return the CRC-32 of the rest of a file."""
    checksum = 0
    while content := file.read(CHUNK_BYTES):
        checksum = zlib.crc32(content, checksum)
    return f"{checksum:08x}"


def read_json(path: Path, max_bytes: int = MAX_SMALL_FILE_BYTES) -> dict[str, Any]:
    """Return the object in a JSON file of a model folder."""
    content = parse_json(path, max_bytes)
    if not isinstance(content, dict):
        raise ModelError(f"{path}: should contain a JSON object; copy the folder again.")
    return content


def read_optional_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; an empty one if the file does not exist."""
    return read_json(path, MAX_JSON_BYTES) if path.exists() else {}


def parse_json(path: Path, max_bytes: int = MAX_SMALL_FILE_BYTES) -> Any:
    """Return the content of a JSON file of a model folder."""
    try:
        return load_json(read_regular_file(path, max_bytes).decode("utf-8"))
    except FileNotFoundError:
        raise missing_file(path) from None
    except OSError as error:
        raise unreadable_file(path, error) from None
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: is not valid JSON ({error}); copy the folder again.") from None


def read_file(path: Path, max_bytes: int = MAX_SMALL_FILE_BYTES) -> bytes:
    """Return the content of a regular file of a model folder; ModelError if it cannot be read."""
    try:
        return read_regular_file(path, max_bytes)
    except FileNotFoundError:
        raise missing_file(path) from None
    except OSError as error:
        raise unreadable_file(path, error) from None


def unreadable_file(path: Path, error: OSError) -> ModelError:
    """Return the error for a file that cannot be read, or is not a regular file of a reasonable size."""
    return ModelError(f"{path}: cannot be read ({error.strerror or error}); copy the folder again.")


def missing_file(path: Path) -> ModelError:
    """Return the error for a missing file."""
    return ModelError(f"{path}: is missing, so {path.parent} is not a complete model folder.")
