"""The model folder: `config.json`, `model.safetensors`, `tokenizer.json` and a model card, `README.md`.

It is self-contained and can be moved; nothing in it is executable. It is written whole or not at all: a folder under
a temporary name takes its own name only when everything is on disk.
"""

import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from regard.config import Config
from regard.errors import ModelError
from regard.models.assembly import sketch
from regard.models.card import card
from regard.models.contents import CARD, CONFIG, FORMAT, WEIGHTS, model_folder, read_config
from regard.models.network import Network
from regard.models.weights import fill, read_tensors, shape, tensors_of
from regard.version import __version__

FLOATS = {torch.float16, torch.bfloat16, torch.float32, torch.float64}


@dataclass(frozen=True)
class Loaded:
    """A network with its settings, as loaded from a folder."""

    network: Network
    config: Config
    folder: Path


def save(
    folder: str | Path,
    network: Network,
    config: Config,
    *,
    origin: str = "",
    extra_files: dict[str, bytes] | None = None,
) -> None:
    """Write a model folder. `origin` is a sentence for the model card; `extra_files` such as the tokenizer, by name."""
    folder = Path(folder)
    if folder.exists():
        raise ModelError(f"{folder}: already exists; choose another name or remove it first.")
    network = getattr(network, "_orig_mod", network)  # what torch.compile wraps
    check_fit(sketch(config.model), tensors_of(network), f"{folder}: cannot hold this network, which")
    for name in extra_files or {}:
        if Path(name).name != name or name in (CONFIG, WEIGHTS, CARD):
            raise ModelError(f"{folder}: cannot hold an extra file {name!r}; choose another name.")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise ModelError(f"{folder}: cannot be written ({error.strerror}); choose another place.") from None
    try:
        about = {"format": FORMAT, "regard": __version__, **_kept(config)}
        (draft / CONFIG).write_text(json.dumps(about, indent=2, ensure_ascii=False) + "\n", "utf-8")
        (draft / CARD).write_text(card(folder.name, network, config, origin), "utf-8")
        for name, content in (extra_files or {}).items():
            (draft / name).write_bytes(content)
        tensors = {name: tensor.contiguous() for name, tensor in tensors_of(network).items()}
        save_file(tensors, draft / WEIGHTS, {"format": "pt"})
        for file in draft.iterdir():
            file.chmod(0o666 & ~_umask())
            _sync(file)
        draft.chmod(0o777 & ~_umask())
        _sync(draft)
        os.replace(draft, folder)
        _sync(folder.parent)
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ModelError(f"{folder}: cannot be written ({reason}); free some space or choose another place.") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def load(folder: str | Path) -> Loaded:
    """Read a model folder, or the best of a run's; the network is ready for inference."""
    folder = model_folder(folder)
    config = read_config(folder)
    network = sketch(config.model)  # no time is spent on first values that are replaced at once
    tensors = read_tensors(folder / WEIGHTS)
    check_fit(network, tensors, f"{folder / WEIGHTS}:")
    fill(network, tensors)
    return Loaded(network.eval(), config, folder)


def check_fit(network: Network, given: dict[str, Tensor], who: str) -> None:
    """Complain about the first tensor that is missing, of another shape or type, or one too many."""
    wanted, types = tensors_of(network), {tensor.dtype for tensor in given.values()}
    for name, tensor in wanted.items():
        if name not in given:
            raise ModelError(f"{who} has no tensor {name}, which {CONFIG} asks for.")
        if given[name].shape != tensor.shape:
            raise ModelError(f"{who} has {name} of shape {shape(given[name])}, but {CONFIG} asks for {shape(tensor)}.")
    surplus = next((name for name in given if name not in wanted), None)
    if surplus is not None:
        raise ModelError(f"{who} has a tensor {surplus}, which {CONFIG} does not ask for.")
    if len(types) > 1 or not types <= FLOATS:
        found = ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in types))
        raise ModelError(f"{who} has numbers of the types {found}; all should be of one float type of 16 to 64 bits.")


def _kept(config: Config) -> dict[str, Any]:
    """What a network needs to be used; of a language model, also how many tokens it was trained to see at once."""
    found = config.model_dump(mode="json", include={"model", "tokens"})
    if config.model.generates and config.data.context_length is not None:
        found["data"] = {"context_length": config.data.context_length}
    return found


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _umask() -> int:
    """The permissions that this process withholds; they can only be read by setting them."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
