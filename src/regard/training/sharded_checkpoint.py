"""Checkpoints of divided networks: a folder to which each process writes its part (`torch.distributed.checkpoint`).

    step-000000100/
        shard-00001-model-00001-of-00001.safetensors           tensors, or parts of them, of the first process
        shard-00001-model-00001-of-00001.safetensors.blake2b   digest of the file, checked when it is read
        …
        state.json                                             the rest of the state, and the list of files

The files are written in the background while training continues. The folder has a temporary name until all of them are
on disk, so that a checkpoint is complete or ignored; the one before it is kept.

Any layout can read it: each process reads the parts that it needs, wherever they are. Split projections
(`sharded.SplitLinear`) have tensors of their own, which are split or fused where the layouts differ.
"""

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, distributed, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.distributed.checkpoint.storage import WriteResult
from torch.distributed.tensor import DTensor, distribute_tensor

from regard.errors import RunFolderError
from regard.files import read_regular_file, sync_folder, write_error_message, write_text
from regard.training.checkpoint import (
    STATE_FILE,
    Checkpoint,
    CheckpointSaver,
    TensorSpec,
    TrainingState,
    flatten_parts,
    remove_old_checkpoints,
    restored_device,
)
from regard.training.distributed import ProcessGroup, canonical_name, local_part
from regard.training.optimizers import single_optimizers

DIGEST_SUFFIX = ".blake2b"


class ShardedSaver(CheckpointSaver):
    """Writes checkpoints in the background; at most one at a time."""

    def __init__(self, folder: Path, process_group: ProcessGroup, on_saved: Callable[[int, Path], None]) -> None:
        super().__init__(folder, process_group, on_saved)
        self._group = distributed.new_group(backend="gloo")  # of its own: training uses the others at the same time
        self._pending: tuple[int, Path, Future[Any]] | None = None

    def save(self, state: TrainingState, parts: Mapping[str, Mapping[str, Tensor]], *, wait: bool = False) -> None:
        """Copy the tensors and start to write them; `wait` until they are on disk."""
        self.finish()
        path = self.folder / f"step-{state.step:09d}"
        writer = _CheckpointWriter(path, json.dumps(state.as_dict()))
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _write_error(path, error) from None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            future = async_save(flatten_parts(parts), storage_writer=writer, process_group=self._group)
        self._pending = (state.step, path, future)  # type: ignore[assignment]
        if wait:
            self.finish()

    def finish(self) -> None:
        """Wait until the last checkpoint is on disk; raise the error of a process that failed."""
        if self._pending is None:
            return
        (step, path, future), self._pending = self._pending, None
        try:
            future.result()
        except CheckpointException as exception:
            errors = [failure[0] for failure in exception.failures.values()]
            error = next((error for error in errors if isinstance(error, OSError | SafetensorError)), errors[0])
            if isinstance(error, OSError | SafetensorError):
                raise _write_error(path, error) from None
            raise error from None
        if self.process_group.is_first:
            self.on_saved(step, path)


def _write_error(path: Path, error: OSError | SafetensorError) -> RunFolderError:
    then = ", then continue with --resume: what was saved before is intact"
    return RunFolderError(write_error_message(path, error, remedy="make it writable", then=then))


class _CheckpointWriter(HuggingFaceStorageWriter):
    """Writes safetensors files with a digest each, and renames the folder when it is complete."""

    def __init__(self, folder: Path, state: str) -> None:
        super().__init__(str(folder.with_name(f".{folder.name}")), save_distributed=True)
        self._folder = folder
        self._state = state

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> torch.futures.Future[list[WriteResult]]:
        """Write the part of this process."""
        future = super().write_data(plan, planner)
        for name in _file_names(future.value()):
            path = Path(self.path) / name
            write_text(path.with_name(name + DIGEST_SUFFIX), _file_digest(path))
        return future

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Called in the first process when all parts are on disk."""
        super().finish(metadata, results)
        files = sorted({name for result in results for name in _file_names(result)})
        temporary = Path(self.path)
        write_text(temporary / STATE_FILE, json.dumps({"files": files, "state": json.loads(self._state)}))
        if self._folder.exists():  # the same step, saved before its validation
            old = self._folder.with_name(f".{self._folder.name}-old")
            os.replace(self._folder, old)
            os.replace(temporary, self._folder)
            shutil.rmtree(old, ignore_errors=True)
        else:
            os.replace(temporary, self._folder)
        sync_folder(self._folder.parent)
        remove_old_checkpoints(self._folder.parent)


def _file_names(results: list[WriteResult]) -> set[str]:
    return {result.storage_data.relative_path for result in results}


def _file_digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


@dataclass(frozen=True)
class ShardedCheckpoint(Checkpoint):
    """A checkpoint whose tensors are divided among files; they are read when they are needed."""

    folder: Path = Path()

    @property
    def specs(self) -> dict[str, TensorSpec]:
        """Shape and dtype of each tensor, by name."""
        metadata = HuggingFaceStorageReader(str(self.folder)).read_metadata()
        return {
            name: TensorSpec(item.size, item.properties.dtype)
            for name, item in metadata.state_dict_metadata.items()
            if isinstance(item, TensorStorageMetadata)
        }

    def part(self, name: str) -> dict[str, Tensor]:
        """The whole tensors of one part, such as `network`, with fused projections."""
        prefix = f"{name}/"
        whole = self.whole([key for key in self.specs if key.startswith(prefix)])
        return {key.removeprefix(prefix): tensor for key, tensor in whole.items()}

    def whole(self, names: list[str]) -> dict[str, Tensor]:
        """Whole tensors by canonical name: those of split projections are fused."""
        specs = self.specs
        tensors = {name: torch.empty(specs[name].shape, dtype=specs[name].dtype) for name in sorted(names, key=_order)}
        self.read(tensors)
        fused: dict[str, list[Tensor]] = {}
        for name, tensor in tensors.items():
            fused.setdefault(canonical_name(name), []).append(tensor)
        return {name: torch.cat(own) if len(own) > 1 and own[0].dim() else own[0] for name, own in fused.items()}

    def read(self, tensors: Mapping[str, Tensor]) -> None:
        """Fill tensors, or the parts of them that this process holds, from the files."""
        if tensors:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # that each process reads on its own is intended
                reader = HuggingFaceStorageReader(str(self.folder))
                load(dict(tensors), storage_reader=reader, no_dist=True)


def _order(name: str) -> list[int | str]:
    """Sort the tenth part of a projection after the second one."""
    return [int(part) if part.isdigit() else part for part in name.replace("/", ".").split(".")]


def read_sharded(folder: Path, process_group: ProcessGroup) -> ShardedCheckpoint:
    """Open a checkpoint; raises ValueError in all processes if a file is missing or damaged.

    Each process checks the digests of some of the files.
    """
    problem, state = "", TrainingState()
    try:
        content = json.loads(read_regular_file(folder / STATE_FILE))
        state = TrainingState.from_dict(content["state"])
        for name in process_group.own(content["files"]):
            if (folder / f"{name}{DIGEST_SUFFIX}").read_text("utf-8") != _file_digest(folder / name):
                problem = f"the digest of {name} does not match its content"
    except (OSError, KeyError, TypeError, ValueError) as error:
        problem = str(error)
    problems = [message for message in process_group.exchange(problem) if message]
    if problems:
        raise ValueError(problems[0])
    return ShardedCheckpoint(state, {}, folder)


def load_into(checkpoint: Checkpoint, tensors: Mapping[str, Tensor]) -> None:
    """Fill tensors, of which this process may hold a part only, from a checkpoint of any layout."""
    available = checkpoint.specs
    if isinstance(checkpoint, ShardedCheckpoint):
        checkpoint.read({name: tensor for name, tensor in tensors.items() if name in available})
        tensors = {name: tensor for name, tensor in tensors.items() if name not in available}
    groups: dict[str, list[Tensor]] = {}
    for name, tensor in tensors.items():
        groups.setdefault(canonical_name(name), []).append(tensor)
    for name, parts in groups.items():
        if isinstance(checkpoint, ShardedCheckpoint):
            whole = checkpoint.whole([other for other in available if canonical_name(other) == name])[name]
        else:
            whole = checkpoint.tensors[name]
        pieces = whole.split([len(part) for part in parts]) if whole.dim() else [whole] * len(parts)
        for part, piece in zip(parts, pieces, strict=True):
            _copy(part, piece)


@torch.no_grad()
def _copy(tensor: Tensor, whole: Tensor) -> None:
    """Copy the part of a whole tensor that this process holds."""
    if isinstance(tensor, DTensor):
        whole = distribute_tensor(whole.to(tensor.device), tensor.device_mesh, tensor.placements, src_data_rank=None)
    local_part(tensor.detach()).copy_(local_part(whole))


def prepare_optimizer(
    optimizer: torch.optim.Optimizer, network: nn.Module, checkpoint: Checkpoint
) -> dict[str, Tensor]:
    """Give an optimizer the state that a checkpoint has for each parameter, and return its tensors, to be filled."""
    states: dict[str, dict[str, TensorSpec]] = {}
    for path, spec in checkpoint.specs.items():
        if path.startswith("optimizer/"):
            name, _, key = path.removeprefix("optimizer/").rpartition("/")
            states.setdefault(canonical_name(name), {})[key] = spec
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    tensors = {}
    for single in single_optimizers(optimizer):
        for group in single.param_groups:
            for parameter in group["params"]:
                name, state = names[id(parameter)], {}
                for key, spec in states.get(canonical_name(name), {}).items():
                    if spec.shape:
                        value = torch.zeros_like(parameter, dtype=spec.dtype, requires_grad=False)
                    else:
                        value = torch.zeros((), dtype=spec.dtype, device=restored_device(parameter, group, spec.shape))
                    tensors[f"optimizer/{name}/{key}"] = state[key] = value
                if state:
                    single.state[parameter] = state
    return tensors
