"""A Hugging Face model folder as it lies on disk: `config.json`, `model.safetensors` and what may stand beside them.

Everything read here was written by someone else, so every value is checked before it is believed, and what is wrong
is said in one sentence that names the file.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.errors import ModelError
from regard.models.folder_files import read_json
from regard.models.weights import read_tensors

CONFIG, WEIGHTS, WEIGHTS_INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
FLOAT_TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@dataclass(frozen=True)
class HFConfig:
    """The values of a `config.json`, asked for one by one with the default that Hugging Face's class gives them."""

    path: Path
    values: Mapping[str, Any]
    also_called: Mapping[str, str] = field(default_factory=dict)  # our caller's name -> another that files use

    def get(self, name: str, default: Any = None) -> Any:
        """A value as it stands there."""
        if name not in self.values:
            name = self.also_called.get(name, name)
        return self.values.get(name, default)

    def size(self, name: str, default: int, most: int = 2**24) -> int:
        """A whole number above 0, and none so high that only a damaged file would ask for it."""
        value = self.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.wrong(name, "should be a whole number above 0")
        if value > most:
            raise self.wrong(name, f"is more than the {most:,} that regard takes; copy the folder again")
        return value

    def layers(self, name: str, default: int) -> int:
        """A number of layers."""
        return self.size(name, default, most=1000)

    def rate(self, name: str, default: float) -> float:
        """A probability below 1."""
        value = self.get(name, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1:
            raise self.wrong(name, "should be a number from 0 to below 1")
        return float(value)

    def epsilon(self, name: str, default: float) -> float:
        """A small number above 0."""
        value = self.get(name, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1:
            raise self.wrong(name, "should be a number between 0 and 1")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self.get(name, default)
        if not isinstance(value, bool):
            raise self.wrong(name, "should be true or false")
        return value

    def heads(self, name: str, default: int, width_name: str, width: int) -> int:
        """A number of heads that divides the width."""
        heads = self.size(name, default)
        if width % heads:
            raise self.wrong(name, f"does not divide {width_name} = {width}")
        return heads

    def token(self, name: str, default: int | None, vocabulary: int) -> int | None:
        """A token's id, the first where there are several; None where it is not given or not in the vocabulary."""
        value = self.get(name, default)
        if isinstance(value, list) and value:
            value = value[0]
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self.wrong(name, "should be a token's id")
        return value if value < vocabulary else None

    def must_be(self, name: str, wanted: Any, because: str) -> None:
        """Refuse a folder that asks for what our network cannot hold; `because` says what regard's is like instead."""
        if self.get(name) not in (None, wanted):
            raise self.wrong(
                name, f"cannot be imported, because regard's {because}; choose a model where it is {json.dumps(wanted)}"
            )

    def wrong(self, name: str, what: str) -> ModelError:
        """The complaint about one setting."""
        return ModelError(f"{self.path}: {name} = {json.dumps(self.get(name), ensure_ascii=False)} {what}.")


@dataclass(frozen=True)
class HFWeights:
    """Tensors by their names in a whole model (`transformer.wte.weight`); the file may leave `transformer.` out."""

    path: Path
    tensors: dict[str, Tensor]
    in_file: dict[str, str]  # the whole model's name -> the file's
    left_out: str = ""  # what the file leaves out of its names

    def shown(self, name: str) -> str:
        """The name by which someone finds the tensor in the file."""
        return self.in_file.get(name, name.removeprefix(self.left_out))


def read_optional_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file that a folder need not have; empty where it has none."""
    return read_json(path) if path.exists() else {}


def read_weights(
    folder: Path, prefix: str, heads: tuple[str, ...] = (), renamed: Mapping[str, str] | None = None
) -> HFWeights:
    """All tensors of a folder, from one file or from the shards that an index lists.

    A model saved without its head leaves `prefix` out; then it is put before every name but those of `heads`.
    `renamed` gives old endings of names and what they are called today.
    """
    path, tensors = _read_tensors(folder)
    bare = not any(name.startswith(prefix) for name in tensors)
    in_file = {}
    for name in tensors:
        full = prefix + name if bare and not name.startswith(heads) else name
        for old, new in (renamed or {}).items():
            full = full.removesuffix(old) + new if full.endswith(old) else full
        in_file[full] = name
    return HFWeights(path, {full: tensors[name] for full, name in in_file.items()}, in_file, prefix if bare else "")


def _read_tensors(folder: Path) -> tuple[Path, dict[str, Tensor]]:
    path = folder / WEIGHTS
    if path.exists():
        return path, read_tensors(path)
    index = folder / WEIGHTS_INDEX
    if not index.exists():
        pickled = sorted(file.name for file in folder.glob("pytorch_model*.bin"))
        if pickled:
            raise ModelError(
                f"{folder / pickled[0]}: is pickled, and regard reads no pickle; "
                "save the model as safetensors with transformers' save_pretrained."
            )
        raise ModelError(f"{path}: is missing, so {folder} is not a complete model folder.")
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(place, str) for place in places.values()):
        raise ModelError(f"{index}: should map tensors to files under weight_map; copy the folder again.")
    tensors: dict[str, Tensor] = {}
    for name in sorted(set(places.values())):
        if Path(name).name != name:
            raise ModelError(f"{index}: names the file {name!r}, which is not beside it; copy the folder again.")
        tensors |= read_tensors(folder / name)
    missing = next((name for name in places if name not in tensors), None)
    if missing is not None:
        raise ModelError(
            f"{folder / places[missing]}: has no tensor {missing}, which {WEIGHTS_INDEX} promises; "
            "copy the folder again."
        )
    return index, tensors
