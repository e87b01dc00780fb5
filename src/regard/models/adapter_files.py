"""Adapters: small model folders on top of a base model; this module imports no torch.

An adapter folder has `adapter.json` and `adapter.safetensors` instead of `model.safetensors`. The weights are those
that training has changed: the LoRA matrices, and the head of an encoder. `adapter.json` identifies the base model by
its path and the checksum of its weights.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from regard.errors import ModelError
from regard.files import check_regular_file
from regard.models.folder_files import (
    FORMAT_VERSION,
    MAX_JSON_BYTES,
    WEIGHTS_FILE,
    WEIGHTS_INDEX_FILE,
    missing_file,
    read_json,
    unreadable_file,
)
from regard.version import __version__

ADAPTER_FILE, ADAPTER_WEIGHTS_FILE = "adapter.json", "adapter.safetensors"
LORA_SUFFIXES = (".lora_a", ".lora_b")
WHOLE_PARTS = ("head.", "pooling.", "mixing.")  # are trained and saved whole: the base model may have others or none


@dataclass(frozen=True)
class Adapter:
    """LoRA matrices of some linear layers of a base model."""

    base: str
    """Path of the base model; a relative one begins at the adapter folder."""
    sha256: str
    """Checksum of the weights of the base model."""
    rank: int
    alpha: float
    modules: tuple[str, ...]
    """Names of the adapted layers."""

    @property
    def scale(self) -> float:
        """α / r."""
        return self.alpha / self.rank

    def owns(self, tensor: str) -> bool:
        """Return whether a tensor of the network belongs to the adapter, and not to the base model."""
        return tensor.endswith(LORA_SUFFIXES) or tensor.startswith(WHOLE_PARTS)

    def to_json(self) -> str:
        """Return the content of `adapter.json`."""
        content = {
            "format": FORMAT_VERSION,
            "regard": __version__,
            "base": {"path": self.base, "sha256": self.sha256},
            "lora": {"rank": self.rank, "alpha": self.alpha, "modules": list(self.modules)},
        }
        return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def read_adapter(folder: Path) -> Adapter | None:
    """Return the adapter in a folder; None for a folder that has all weights of its model."""
    path = folder / ADAPTER_FILE
    if not path.exists() or (folder / WEIGHTS_FILE).exists():
        return None
    content = read_json(path)
    if content.get("format") != FORMAT_VERSION:
        raise ModelError(
            f"{path}: has format {content.get('format')!r}, but this regard reads format {FORMAT_VERSION}; update "
            "regard, or check that it is an adapter of regard."
        )
    base, lora = content.get("base"), content.get("lora")
    values = {**(base if isinstance(base, dict) else {}), **(lora if isinstance(lora, dict) else {})}
    modules, rank, alpha = values.get("modules"), values.get("rank"), values.get("alpha")
    if not (
        isinstance(values.get("path"), str)
        and isinstance(values.get("sha256"), str)
        and isinstance(rank, int)
        and not isinstance(rank, bool)
        and 0 < rank < 2**24
        and isinstance(alpha, int | float)
        and 0 < alpha < 2**24
        and isinstance(modules, list)
        and all(isinstance(name, str) for name in modules)
    ):
        raise ModelError(
            f"{path}: should have base.path, base.sha256, lora.rank, lora.alpha and lora.modules; copy the folder "
            "again."
        )
    return Adapter(values["path"], values["sha256"], rank, float(alpha), tuple(modules))


def adapter_base(folder: Path, adapter: Adapter) -> Path:
    """Return the folder of an adapter's base model, whose weights have the right checksum."""
    path, base = folder / ADAPTER_FILE, folder / adapter.base
    if not base.is_dir():
        raise ModelError(
            f"{path}: its base model {adapter.base} does not exist; copy it there, or correct base.path, which may be "
            "relative to this folder."
        )
    if weights_checksum(base) != adapter.sha256:
        raise ModelError(
            f"{path}: belongs to other weights than those in {base}: the checksum {adapter.sha256[:12]}… differs; set "
            "base.path to the model that it was trained on, or train it again."
        )
    return base


def check_lora_shapes(path: Path, layer: str, *shapes: tuple[int, ...] | None) -> None:
    """Raise ModelError unless these are the shapes (N, C), (r, C) and (N, r) of W, A and B of a layer."""
    weight, lora_a, lora_b = shapes
    if weight is None or lora_a is None or lora_b is None:
        missing = next(name for name, shape in zip(("W", "A", "B"), shapes, strict=True) if shape is None)
        raise ModelError(
            f"{path}: does not fit its base model: {layer} has no matrix {missing}; copy the folder again."
        )
    if (lora_b[0], lora_a[-1], lora_a[0]) != (*weight, lora_b[-1]):
        sizes = [" × ".join(map(str, shape)) for shape in (lora_b, lora_a, weight)]
        raise ModelError(
            f"{path}: does not fit its base model: B · A of {layer} is {sizes[0]} times {sizes[1]}, but W is "
            f"{sizes[2]}; use the adapter with its own base model."
        )


def weights_checksum(folder: Path) -> str:
    """Return the SHA-256 of a folder's weights; of several files, that of their checksums one after the other."""
    if (folder / ADAPTER_FILE).exists() and not (folder / WEIGHTS_FILE).exists():
        raise ModelError(
            f"{folder}: is an adapter itself, and an adapter needs a complete model as its base; merge it first: "
            f"regard merge {folder} --out MODEL."
        )
    index = folder / WEIGHTS_INDEX_FILE
    if (folder / WEIGHTS_FILE).exists() or not index.exists():
        return _checksum(folder / WEIGHTS_FILE)
    shards = sorted(
        {Path(str(shard)).name for shard in dict(read_json(index, MAX_JSON_BYTES).get("weight_map", {})).values()}
    )
    return hashlib.sha256("".join(_checksum(folder / shard) for shard in shards).encode()).hexdigest()


def _checksum(path: Path) -> str:
    try:
        check_regular_file(path)
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        raise missing_file(path) from None
    except OSError as error:
        raise unreadable_file(path, error) from None
