"""Averaged weights: an exponential moving average at every step, and the mean of checkpoints or models (§6.1)."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.config import Config
from regard.data.chat_templates import read_chat_files
from regard.data.tokenizer_file import MAX_TOKENIZER_BYTES
from regard.errors import ConfigError, ModelError
from regard.models import LoadedNetwork, save
from regard.models.adapter_files import read_adapter
from regard.models.folder import check_tensors, load_merged, read_tensors, trained_tensors
from regard.models.folder_files import (
    CONFIG_FILE,
    TARGET_TOKENIZER_FILE,
    TOKENIZER_FILE,
    read_file,
    resolve_model_folder,
)
from regard.training.checkpoint import restore_network
from regard.training.distributed import local_part
from regard.training.run_folder import RunFolder

TRAINING_ONLY = {"dropout", "attention_dropout", "activation_dropout"}  # settings that inference does not use


class MovingAverage:
    """average ← decay · average + (1 − decay) · weights, after every step.

    In the first steps the decay is at most (1 + step) / (10 + step), so that the initialization has little influence.
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.network = network
        self.decay = decay
        self.tensors = {name: tensor.clone() for name, tensor in trained_tensors(network).items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Add the weights after a step."""
        decay = min(self.decay, (1 + step) / (10 + step))
        weights = [local_part(tensor) for tensor in trained_tensors(self.network).values()]
        torch._foreach_lerp_([local_part(tensor) for tensor in self.tensors.values()], weights, 1 - decay)

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Continue from the average of a checkpoint."""
        for name, tensor in self.tensors.items():
            tensor.copy_(tensors[name])


def mean(weights: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of each tensor, computed in double precision.

    >>> mean([{"w": torch.tensor([1.0])}, {"w": torch.tensor([2.0])}])
    {'w': tensor([1.5000])}
    """
    return {
        name: torch.stack([tensors[name].double() for tensors in weights]).mean(0).to(tensor.dtype)
        for name, tensor in weights[0].items()
    }


@contextmanager
def swapped_weights(network: nn.Module, tensors: Mapping[str, Tensor] | None) -> Iterator[None]:
    """Give a network other weights for a while; with None, it keeps its own."""
    if tensors is None:
        yield
        return
    own = {name: tensor.clone() for name, tensor in trained_tensors(network).items()}
    restore_network(network, tensors)
    try:
        yield
    finally:
        restore_network(network, own)


def average_folders(folders: Sequence[Path], out: Path) -> str:
    """Write a model folder with the mean weights of model folders; returns what was averaged."""
    models = [load_merged(folder) for folder in folders]
    for other in models[1:]:
        _check_compatible(models[0], other)
    origin = f"The mean of the weights of {len(models)} models: {', '.join(str(model.folder) for model in models)}."
    return _write(models[0], [trained_tensors(model.network) for model in models], out, origin)


def average_run(folder: Path, last: int, out: Path) -> str:
    """Write a model folder with the mean weights of the last validations of a run; returns what was averaged."""
    if read_adapter(resolve_model_folder(folder)) is not None:
        raise ModelError(
            f"{folder}: trained an adapter, and the product of averaged matrices is no average; average models that "
            "regard merge wrote."
        )
    model, saved = load_merged(folder), RunFolder(folder).saved_weights()
    if not saved:
        raise ModelError(
            f"{folder}: has no saved weights to average; train with training.average_checkpoints = {last}, "
            "or pass model folders."
        )
    if len(saved) < last:
        raise ModelError(
            f"{folder}: has the saved weights of {len(saved)} validations, not of {last}; lower --last, "
            f"or train with training.average_checkpoints = {last}."
        )
    steps = list(saved)[-last:]
    weights = [read_tensors(saved[step]) for step in steps]
    for step, tensors in zip(steps, weights, strict=True):
        check_tensors(model.network, tensors, f"{saved[step]}:")
    origin = f"The mean of the weights of {folder} at the steps {', '.join(f'{step:,}' for step in steps)}."
    return _write(model, weights, out, origin)


def _write(model: LoadedNetwork, weights: Sequence[Mapping[str, Tensor]], out: Path, origin: str) -> str:
    restore_network(model.network, mean(weights))
    tokenizers = [model.folder / name for name in (TOKENIZER_FILE, TARGET_TOKENIZER_FILE)]
    files = {path.name: read_file(path, MAX_TOKENIZER_BYTES) for path in tokenizers if path.exists()}
    files |= read_chat_files(model.folder)
    save(out, model.network, model.config, origin=origin, extra_files=files)
    return origin


def _check_compatible(first: LoadedNetwork, other: LoadedNetwork) -> None:
    """Raise a ConfigError unless two networks have the same shape and vocabulary."""
    ours, theirs = _settings(first.config), _settings(other.config)
    for key in ours | theirs:
        if ours.get(key) != theirs.get(key):
            raise ConfigError(
                f"{other.folder / CONFIG_FILE}: has {key} = {theirs.get(key)!r}, but {first.folder / CONFIG_FILE} has "
                f"{ours.get(key)!r}; only networks with equal settings can be averaged."
            )
    for name in (TOKENIZER_FILE, TARGET_TOKENIZER_FILE):
        first_file, other_file = first.folder / name, other.folder / name
        if _content(first_file) != _content(other_file):
            raise ConfigError(
                f"{other_file}: differs from {first_file}; only networks with the same vocabulary can be averaged: "
                "train them with one tokenizer.file."
            )


def _settings(config: Config) -> dict[str, Any]:
    tables = {
        "model": config.model.model_dump(mode="json", exclude=TRAINING_ONLY),
        "tokens": config.tokens.model_dump(mode="json"),
    }
    return {f"{table}.{key}": value for table, values in tables.items() for key, value in values.items()}


def _content(path: Path) -> bytes | None:
    return read_file(path, MAX_TOKENIZER_BYTES) if path.exists() else None
