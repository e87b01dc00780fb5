"""Checkpoints: the whole state of training in one safetensors file each.

A checkpoint is written under a temporary name and renamed when it is on disk, and the one before it is kept, so that
a kill at any instant, a full disk or a damaged file leaves one that is good. The bytes are checked when it is read.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors import torch as safetensors
from torch import Tensor, nn

from regard.files import atomic_path
from regard.models.weights import named_tensors
from regard.training.state import TrainingState
from regard.training.unwritable import unwritable

CHECKPOINTS_KEPT = 2
CHECKPOINT_NAME = re.compile(r"step-(\d+)\.safetensors")


@dataclass(frozen=True)
class Checkpoint:
    """The tensors of a network, its optimiser and its average, by name, and the state beside them."""

    state: TrainingState
    tensors: Mapping[str, Tensor]

    def part(self, name: str) -> dict[str, Tensor]:
        """The tensors of one part, such as `network`."""
        prefix = f"{name}/"
        return {key.removeprefix(prefix): tensor for key, tensor in self.tensors.items() if key.startswith(prefix)}


def write_checkpoint(folder: Path, state: TrainingState, parts: Mapping[str, Mapping[str, Tensor]]) -> Path:
    """Write a checkpoint, then remove all but the last ones."""
    tensors = {f"{part}/{name}": tensor for part, named in parts.items() for name, tensor in named.items()}
    about = {"state": json.dumps(state.as_dict()), "digest": _digest(tensors)}
    written = folder / f"step-{state.step:09d}.safetensors"
    write_tensors(written, tensors, about)
    for path in _newest_first(folder)[CHECKPOINTS_KEPT:]:
        path.unlink(missing_ok=True)
    return written


def write_tensors(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, str]) -> None:
    """Write a safetensors file whole or not at all."""
    content = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path) as temporary:
            safetensors.save_file(content, temporary, dict(about))
    except (OSError, SafetensorError) as error:
        then = ", then go on with --resume: what was saved before it is still good"
        raise unwritable(path, error, then) from None


def checkpoints(folder: Path) -> Iterator[Checkpoint | str]:
    """The checkpoints of a folder, the newest first; in place of a damaged one, a sentence about it."""
    for path in _newest_first(folder):
        try:
            yield _read(path)
        except OSError as error:
            yield f"{path}: cannot be read ({error.strerror or error})"
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            yield f"{path}: is damaged ({error})"


def _newest_first(folder: Path) -> list[Path]:
    named = [(CHECKPOINT_NAME.fullmatch(path.name), path) for path in (folder.iterdir() if folder.is_dir() else [])]
    return [path for match, path in sorted(named, key=lambda entry: entry[1].name, reverse=True) if match]


def _read(path: Path) -> Checkpoint:
    with open(path, "rb"):  # safetensors says of a file that may not be read that it is not there
        pass
    with safe_open(path, "pt") as file:
        about = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # it is not a mapping
    if about["digest"] != _digest(tensors):
        raise ValueError("its bytes are not those that were written")
    return Checkpoint(TrainingState.from_dict(json.loads(about["state"])), tensors)


def _digest(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].detach().reshape(-1).view(torch.uint8).cpu().numpy())  # type: ignore[arg-type]
    return digest.hexdigest()


def optimizer_tensors(optimizer: torch.optim.Optimizer, network: nn.Module) -> dict[str, Tensor]:
    """The optimiser's memory of each parameter, by the parameter's name."""
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    return {
        f"{names[id(parameter)]}/{what}": tensor
        for parameter, memory in optimizer.state.items()
        for what, tensor in memory.items()
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, network: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Give the optimiser its memory back."""
    for name, parameter in network.named_parameters():
        memory: dict[str, Any] = {
            key.removeprefix(f"{name}/"): tensor for key, tensor in tensors.items() if key.startswith(f"{name}/")
        }
        if memory:
            optimizer.state[parameter] = memory


def restore_network(network: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copy weights into a network, which keeps its own parameters."""
    with torch.no_grad():
        for name, tensor in named_tensors(network).items():
            tensor.copy_(tensors[name])
