"""Reading Hugging Face model folders: `config.json` with checked values, and the tensors of `model.safetensors`.

The files come from elsewhere, so every value is checked before use, and errors name the file and the setting.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.errors import ModelError
from regard.models.folder import read_model_weights
from regard.models.folder_files import WEIGHTS_FILE, WEIGHTS_INDEX_FILE, read_optional_json

GENERATION_CONFIG_FILE = "generation_config.json"
SAMPLING_SETTINGS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
MAX_NUMBER = 1e12
FLOAT_TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@dataclass(frozen=True)
class HFConfig:
    """The values of a `config.json`, read with the defaults of the Hugging Face class."""

    path: Path
    values: Mapping[str, Any]
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Alternative names of settings."""

    def get(self, name: str, default: Any = None) -> Any:
        """Return a value unchecked."""
        if name not in self.values:
            name = self.aliases.get(name, name)
        return self.values.get(name, default)

    def size(self, name: str, default: int, maximum: int = 2**24) -> int:
        """Return a positive integer; larger values than the maximum are found only in damaged files."""
        value = self.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.error(name, "should be an integer greater than 0")
        if value > maximum:
            raise self.error(name, f"is more than the maximum, {maximum:,}; copy the folder again")
        return value

    def layers(self, name: str, default: int) -> int:
        """Return a number of layers."""
        return self.size(name, default, maximum=1000)

    def probability(self, name: str, default: float) -> float:
        """Return a probability below 1."""
        value = self.get(name, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1:
            raise self.error(name, "should be a number from 0 to below 1")
        return float(value)

    def epsilon(self, name: str, default: float) -> float:
        """Return a number between 0 and 1."""
        value = self.get(name, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1:
            raise self.error(name, "should be a number between 0 and 1")
        return float(value)

    def number(self, name: str, default: float | None = None, above: float = 0.0) -> float:
        """Return a number above a limit; larger values than `MAX_NUMBER` are found only in damaged files."""
        value = self.get(name)
        value = default if value is None else value
        if not isinstance(value, int | float) or isinstance(value, bool) or not above < value < MAX_NUMBER:
            raise self.error(name, f"should be a number above {above:g}")
        return float(value)

    def table(self, name: str) -> dict[str, Any]:
        """Return a table of settings; an empty one if it is not set."""
        value = self.get(name)
        if not isinstance(value, dict | None):
            raise self.error(name, "should be an object with settings")
        return value or {}

    def flag(self, name: str, default: bool) -> bool:
        """Return true or false."""
        value = self.get(name, default)
        if not isinstance(value, bool):
            raise self.error(name, "should be true or false")
        return value

    def heads(self, name: str, default: int, width_name: str, width: int) -> int:
        """Return a number of heads that divides the width."""
        heads = self.size(name, default)
        if width % heads:
            raise self.error(name, f"does not divide {width_name} = {width}")
        return heads

    def token(self, name: str, default: int | None, vocab_size: int) -> int | None:
        """Return a token id, the first of a list; None if it is not set or outside of the vocabulary."""
        value = self.get(name, default)
        if isinstance(value, list) and value:
            value = value[0]
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self.error(name, "should be a token id")
        return value if value < vocab_size else None

    def require(self, name: str, value: Any, fact: str) -> None:
        """Raise ModelError if a setting has another value; `fact` says what regard's network is like instead."""
        if self.get(name) not in (None, value):
            problem = f"cannot be imported, because regard's {fact}"
            raise self.error(name, f"{problem}; choose a model where it is {json.dumps(value)}")

    def error(self, name: str, problem: str) -> ModelError:
        """Return the error about a setting."""
        return ModelError(f"{self.path}: {name} = {json.dumps(self.get(name), ensure_ascii=False)} {problem}.")


@dataclass(frozen=True)
class HFWeights:
    """Tensors by their full names (`transformer.wte.weight`); the file may omit the prefix `transformer.`."""

    path: Path
    tensors: dict[str, Tensor]
    file_names: dict[str, str]
    """Full name -> name in the file."""
    omitted_prefix: str = ""

    def name_in_file(self, name: str) -> str:
        """Return the name of a tensor in the file."""
        return self.file_names.get(name, name.removeprefix(self.omitted_prefix))


def read_weights(
    folder: Path, prefix: str, heads: tuple[str, ...] = (), suffixes: Mapping[str, str] | None = None
) -> HFWeights:
    """Read all tensors of a folder, from one file or from the shards of an index.

    Args:
        folder: A Hugging Face folder.
        prefix: What models saved without a head omit; it is added to every name that does not begin with a head.
        heads: Prefixes of the tensors of heads.
        suffixes: Old suffixes of names and their present forms.
    """
    path, tensors = _read_tensors(folder)
    is_bare = not any(name.startswith(prefix) for name in tensors)
    file_names = {}
    for name in tensors:
        full_name = prefix + name if is_bare and not name.startswith(heads) else name
        for old, new in (suffixes or {}).items():
            full_name = full_name.removesuffix(old) + new if full_name.endswith(old) else full_name
        file_names[full_name] = name
    renamed = {full_name: tensors[name] for full_name, name in file_names.items()}
    return HFWeights(path, renamed, file_names, prefix if is_bare else "")


def _read_tensors(folder: Path) -> tuple[Path, dict[str, Tensor]]:
    path = folder / WEIGHTS_FILE
    if not path.exists() and not (folder / WEIGHTS_INDEX_FILE).exists():
        pickled = sorted(file.name for file in folder.glob("pytorch_model*.bin"))
        if pickled:
            raise ModelError(
                f"{folder / pickled[0]}: is a pickle, which regard does not read; "
                "save the model as safetensors with save_pretrained of transformers."
            )
    return read_model_weights(folder)


def read_generation(folder: Path) -> HFConfig:
    """Return the contents of `generation_config.json`; empty without it."""
    path = folder / GENERATION_CONFIG_FILE
    return HFConfig(path, read_optional_json(path))


def sampling_note(generation: HFConfig) -> list[str]:
    """Return a note on the original's sampling settings, if there are some."""
    sampling = [f"{name} {generation.get(name)}" for name in SAMPLING_SETTINGS if generation.get(name) is not None]
    if not sampling:
        return []
    return [f"The original samples with {', '.join(sampling)}: pass these as options of regard generate."]


def generation_ends(generation: HFConfig, vocab_size: int) -> list[int]:
    """Return the end tokens of `generation_config.json`, those that the network has."""
    listed = generation.get("eos_token_id")
    ends = [end for end in (listed if isinstance(listed, list) else [listed]) if end is not None]
    if not all(isinstance(end, int) and not isinstance(end, bool) and end >= 0 for end in ends):
        raise generation.error("eos_token_id", "should be a token id, or a list of them")
    return [end for end in dict.fromkeys(ends) if end < vocab_size]
