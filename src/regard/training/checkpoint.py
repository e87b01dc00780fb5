"""Checkpoints: the complete state of training, one safetensors file each.

Networks that are divided among processes have folders instead, see `sharded_checkpoint`; both can be resumed from with
any number of processes.

A checkpoint is written atomically and the one before it is kept, so that after a kill, a full disk or a damaged file
there is an intact one. A digest of the tensors is checked when a checkpoint is read.

Randomness depends only on the seed and the step (`seed_step`), so that a resumed run draws the same numbers as an
uninterrupted one; checkpoints have no state of a random generator.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors import torch as safetensors
from torch import Tensor, nn

from regard.data.batching import DataPosition
from regard.errors import RunError, RunFolderError
from regard.files import atomic_path, check_regular_file, read_regular_file, write_error_message
from regard.models.folder import save_tensors, trained_tensors
from regard.training.distributed import SINGLE_PROCESS, ProcessGroup
from regard.training.optimizers import UpdateResult, single_optimizers
from regard.training.time_budget import Pace

CHECKPOINTS_KEPT = 2
CHECKPOINT_NAME = re.compile(r"step-(\d+)\.safetensors")
STATE_FILE = "state.json"  # in a checkpoint that is a folder
CHECKPOINT_FOLDER_NAME = re.compile(r"step-(\d+)")


@dataclass
class MetricsInterval:
    """Sums over the steps since the last line of metrics."""

    steps: int = 0
    loss: float = 0.0
    cross_entropy: float = 0.0
    targets: int = 0
    grad_norm: float = 0.0  # the largest
    balance: float = 0.0
    flops: float = 0.0
    seconds: float = 0.0

    def add(self, result: UpdateResult, flops: float, seconds: float) -> None:
        """Add one optimizer step."""
        self.steps += 1
        self.loss += result.loss
        self.cross_entropy += result.cross_entropy
        self.targets += result.targets
        self.grad_norm = max(self.grad_norm, result.grad_norm)
        self.balance += result.balance
        self.flops += flops
        self.seconds += seconds


@dataclass
class TrainingState:
    """The state between two steps, besides the tensors."""

    step: int = 0
    position: DataPosition = field(default_factory=DataPosition)
    first_loss: float | None = None  # of the first step
    targets: int = 0  # predicted so far
    seconds: float = 0.0  # spent training so far
    elapsed: float = 0.0  # seconds of training, validations and checkpoints so far
    pace: Pace | None = None  # of a run with a time budget
    interval: MetricsInterval = field(default_factory=MetricsInterval)
    last_validation: int = 0  # step of the last validation
    validated_progress: float = 0.0  # planned steps that were done then
    best_scores: dict[str, float] | None = None
    best_step: int = 0
    validations_since_best: int = 0
    learning_rate_factor: float = 1.0  # set by a plateau schedule
    plateau_validations: int = 0  # validations since the best, or since the learning rate was last reduced
    averaged_steps: list[int] = field(default_factory=list)  # steps whose weights are saved for averaging
    file_sizes: dict[str, int] = field(default_factory=dict)  # bytes of the files that the run appends to
    file_checksums: dict[str, int] = field(default_factory=dict)  # CRC-32 of these bytes

    def as_dict(self) -> dict[str, Any]:
        """For JSON, which keeps every bit of a float."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "TrainingState":
        """From JSON."""
        position, interval = DataPosition(**values["position"]), MetricsInterval(**values["interval"])
        pace = None if values.get("pace") is None else Pace(**values["pace"])
        return cls(**{**values, "position": position, "interval": interval, "pace": pace})


class TensorSpec(NamedTuple):
    """Shape and dtype of a tensor."""

    shape: torch.Size
    dtype: torch.dtype


@dataclass(frozen=True)
class Checkpoint:
    """The state of training, and the tensors of the network, the optimizer and the moving average by name."""

    state: TrainingState
    tensors: Mapping[str, Tensor]

    @property
    def specs(self) -> dict[str, TensorSpec]:
        """Shape and dtype of each tensor, by name."""
        return {name: TensorSpec(tensor.shape, tensor.dtype) for name, tensor in self.tensors.items()}

    def part(self, name: str) -> dict[str, Tensor]:
        """The tensors of one part, such as `network`."""
        prefix = f"{name}/"
        return {key.removeprefix(prefix): tensor for key, tensor in self.tensors.items() if key.startswith(prefix)}


class CheckpointSaver:
    """Saves checkpoints of networks that every process has: the first process writes a file."""

    def __init__(self, folder: Path, process_group: ProcessGroup, on_saved: Callable[[int, Path], None]) -> None:
        """`on_saved` is called in the first process with the step and the path of each checkpoint that is on disk."""
        self.folder = folder
        self.process_group = process_group
        self.on_saved = on_saved

    def save(self, state: TrainingState, parts: Mapping[str, Mapping[str, Tensor]], *, wait: bool = False) -> None:
        """Save a checkpoint; with `wait`, it is on disk when this returns. Every process must call this."""
        if self.process_group.is_first:
            self.on_saved(state.step, write_checkpoint(self.folder, state, parts))

    def finish(self) -> None:
        """Wait until all checkpoints are on disk."""


def flatten_parts(parts: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The tensors of all parts, by part and name."""
    return {f"{part}/{name}": tensor for part, named in parts.items() for name, tensor in named.items()}


def write_checkpoint(folder: Path, state: TrainingState, parts: Mapping[str, Mapping[str, Tensor]]) -> Path:
    """Write a checkpoint, remove all but the last ones, and return its path."""
    tensors = flatten_parts(parts)
    metadata = {"state": json.dumps(state.as_dict()), "digest": _digest(tensors)}
    checkpoint = folder / f"step-{state.step:09d}.safetensors"
    write_tensors(checkpoint, tensors, metadata)
    remove_old_checkpoints(folder)
    return checkpoint


def remove_old_checkpoints(folder: Path) -> None:
    """Remove all checkpoints but the last ones."""
    for path in _newest_first(folder)[CHECKPOINTS_KEPT:]:
        if path.is_dir():  # at once: a part of a folder would look like a damaged checkpoint
            path = path.rename(path.with_name(f".{path.name}-old"))
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write a safetensors file atomically: of a checkpoint with its metadata, or else weights with their checksum."""
    content = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path) as temporary:
            if metadata is None:
                save_tensors(content, temporary)
            else:
                safetensors.save_file(content, temporary, dict(metadata))
    except (OSError, SafetensorError) as error:
        then = ", then continue with --resume: what was saved before is intact"
        raise RunFolderError(write_error_message(path, error, remedy="make it writable", then=then)) from None


def checkpoints(folder: Path, process_group: ProcessGroup = SINGLE_PROCESS) -> Iterator[Checkpoint | str]:
    """The checkpoints of a folder, the newest first; instead of a damaged one, a message about it."""
    for path in _newest_first(folder):
        try:
            yield _read_folder(path, process_group) if path.is_dir() else _read(path)
        except OSError as error:
            yield f"{path}: cannot be read ({error.strerror or error})"
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            yield f"{path}: is damaged ({error})"


def newest_state(folder: Path) -> TrainingState | None:
    """The state in the newest checkpoint, without its tensors; None if there is none that can be read."""
    for path in _newest_first(folder):
        with suppress(OSError, SafetensorError, KeyError, TypeError, ValueError):
            if path.is_dir():
                content = json.loads(read_regular_file(path / STATE_FILE))["state"]
            else:
                check_regular_file(path)
                with safe_open(path, "pt") as file:
                    content = json.loads(file.metadata()["state"])
            return TrainingState.from_dict(content)
    return None


def _newest_first(folder: Path) -> list[Path]:
    """Files and folders by their step; of the same step, the one that was written last comes first."""
    paths = folder.iterdir() if folder.is_dir() else []
    steps = {}
    for path in paths:
        match = (CHECKPOINT_FOLDER_NAME if path.is_dir() else CHECKPOINT_NAME).fullmatch(path.name)
        if match is not None:
            steps[path] = (int(match[1]), path.stat().st_mtime_ns)
    return sorted(steps, key=lambda path: steps[path], reverse=True)


def _read(path: Path) -> Checkpoint:
    check_regular_file(path)
    with open(path, "rb"):  # safetensors reports an unreadable file as missing
        pass
    with safe_open(path, "pt") as file:
        metadata = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # it is not a mapping
    if metadata["digest"] != _digest(tensors):
        raise ValueError("its digest does not match its content")
    return Checkpoint(TrainingState.from_dict(json.loads(metadata["state"])), tensors)


def _read_folder(path: Path, process_group: ProcessGroup) -> Checkpoint:
    from regard.training.sharded_checkpoint import read_sharded  # it imports much that single processes do not need

    return read_sharded(path, process_group)


def _digest(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].detach().reshape(-1).view(torch.uint8).cpu().numpy())  # type: ignore[arg-type]
    return digest.hexdigest()


def optimizer_tensors(optimizer: torch.optim.Optimizer, network: nn.Module) -> dict[str, Tensor]:
    """The optimizer state of all parameters, by parameter name and name of the state."""
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    tensors = {}
    for parameter, state in optimizer.state.items():
        for key, value in state.items():
            if isinstance(value, Tensor):
                tensors[f"{names[id(parameter)]}/{key}"] = value
            elif value is not None:
                raise RunError(
                    f"the optimizer {type(optimizer).__name__} keeps its state {key!r} as {type(value).__name__}, but "
                    "checkpoints hold tensors; make it a tensor."
                )
    return tensors


def restore_optimizer(optimizer: torch.optim.Optimizer, network: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Restore the optimizer state of all parameters."""
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    states: dict[str, dict[str, Tensor]] = {}
    for path, tensor in tensors.items():
        name, _, key = path.rpartition("/")
        states.setdefault(name, {})[key] = tensor
    for single in single_optimizers(optimizer):
        for group in single.param_groups:
            for parameter in group["params"]:
                if (name := names[id(parameter)]) in states:
                    single.state[parameter] = {
                        key: tensor.to(restored_device(parameter, group, tensor.shape))
                        for key, tensor in states[name].items()
                    }


def restored_device(parameter: Tensor, group: Mapping[str, Any], shape: torch.Size) -> torch.device:
    """The device of a tensor of the optimizer state: the parameter's, but torch keeps scalars on the CPU.

    A fused or capturable optimizer, which reads the number of steps on the device, is the exception.
    """
    on_device = len(shape) > 0 or group.get("fused") or group.get("capturable")
    return parameter.device if on_device else torch.device("cpu")


def restore_network(network: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copy weights into the parameters of a network."""
    with torch.no_grad():
        for name, tensor in trained_tensors(network).items():
            tensor.copy_(tensors[name])


def seed_step(seed: int, step: int, rank: int = 0) -> None:
    """Seed torch for one step of one process.

    >>> seed_step(1, step=7)
    >>> first = torch.rand(1)
    >>> seed_step(1, step=7)
    >>> bool(first == torch.rand(1))
    True
    """
    value = int(np.random.default_rng([seed, step, rank]).integers(2**63))
    torch.default_generator.manual_seed(value)
    if torch.cuda.is_available():  # torch.manual_seed formats a stack trace per absent device: a millisecond per step
        torch.cuda.manual_seed_all(value)
