"""Weights averaged over time: an exponential moving average at every step, or the mean of the last checkpoints."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.config import Config
from regard.errors import ConfigError, ModelError
from regard.models import LoadedNetwork, load, save
from regard.models.folder import check_tensors
from regard.models.folder_files import CONFIG_FILE, TARGET_TOKENIZER_FILE, TOKENIZER_FILE
from regard.models.weights import named_tensors, read_tensors
from regard.training.checkpoint import restore_network
from regard.training.run_folder import RunFolder


class MovingAverage:
    """average ← decay · average + (1 − decay) · weights, after every step.

    In the first steps the decay is smaller, (1 + step) / (10 + step): the random first values are soon forgotten.
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.network = network
        self.decay = decay
        self.tensors = {name: tensor.clone() for name, tensor in named_tensors(network).items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the weights after a step."""
        decay = min(self.decay, (1 + step) / (10 + step))
        now = list(named_tensors(self.network).values())
        torch._foreach_lerp_(list(self.tensors.values()), now, 1 - decay)

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from a checkpoint's average."""
        for name, tensor in self.tensors.items():
            tensor.copy_(tensors[name])


def mean(several: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of each tensor, summed in double precision.

    >>> mean([{"w": torch.tensor([1.0])}, {"w": torch.tensor([2.0])}])
    {'w': tensor([1.5000])}
    """
    first = several[0]
    return {
        name: torch.stack([tensors[name].double() for tensors in several]).mean(0).to(tensor.dtype)
        for name, tensor in first.items()
    }


@contextmanager
def swapped_weights(network: nn.Module, tensors: Mapping[str, Tensor] | None) -> Iterator[None]:
    """While it lasts, the network has other weights; None leaves it its own."""
    if tensors is None:
        yield
        return
    own = {name: tensor.clone() for name, tensor in named_tensors(network).items()}
    restore_network(network, tensors)
    try:
        yield
    finally:
        restore_network(network, own)


IRRELEVANT = {"dropout", "attention_dropout", "activation_dropout"}  # to a network that is used


def average_folders(folders: Sequence[Path], out: Path) -> str:
    """Write the mean of the weights of model folders of one shape and vocabulary, and say what was averaged."""
    models = [load(folder) for folder in folders]
    for other in models[1:]:
        _check_alike(models[0], other)
    origin = f"The mean of the weights of {len(models)} models: {', '.join(str(model.folder) for model in models)}."
    return _write(models[0], [named_tensors(model.network) for model in models], out, origin)


def average_run(folder: Path, last: int, out: Path) -> str:
    """Write the mean of the weights of the last validations of a run, and say what was averaged."""
    model, kept = load(folder), RunFolder(folder).saved_weights()
    if not kept:
        raise ModelError(
            f"{folder}: keeps no weights to average; train with training.average_checkpoints = {last}, or give "
            "model folders."
        )
    if len(kept) < last:
        raise ModelError(
            f"{folder}: keeps the weights of {len(kept)} validations, not of {last}; lower --last, "
            f"or train with training.average_checkpoints = {last}."
        )
    steps = list(kept)[-last:]
    several = [read_tensors(kept[step]) for step in steps]
    for step, tensors in zip(steps, several, strict=True):
        check_tensors(model.network, tensors, f"{kept[step]}:")
    origin = f"The mean of the weights of {folder} at the steps {', '.join(f'{step:,}' for step in steps)}."
    return _write(model, several, out, origin)


def _write(model: LoadedNetwork, several: Sequence[Mapping[str, Tensor]], out: Path, origin: str) -> str:
    restore_network(model.network, mean(several))
    tokenizers = [model.folder / name for name in (TOKENIZER_FILE, TARGET_TOKENIZER_FILE)]
    copied = {path.name: path.read_bytes() for path in tokenizers if path.exists()}
    save(out, model.network, model.config, origin=origin, extra_files=copied)
    return origin


def _check_alike(first: LoadedNetwork, other: LoadedNetwork) -> None:
    """Weights have a mean only where they mean the same: in networks of one shape, for tokens of one vocabulary."""
    ours, theirs = _settings(first.config), _settings(other.config)
    for name in ours | theirs:
        if ours.get(name) != theirs.get(name):
            raise ConfigError(
                f"{other.folder / CONFIG_FILE}: has {name} = {theirs.get(name)!r}, but {first.folder / CONFIG_FILE} "
                f"has {ours.get(name)!r}; only networks that are alike have a mean."
            )
    for name in (TOKENIZER_FILE, TARGET_TOKENIZER_FILE):
        one, another = first.folder / name, other.folder / name
        if _content(one) != _content(another):
            raise ConfigError(
                f"{another}: is not the same as {one}; only networks with one vocabulary have a mean: "
                "train them with one tokenizer.file."
            )


def _settings(config: Config) -> dict[str, Any]:
    model = config.model.model_dump(mode="json", exclude=IRRELEVANT)
    tokens = config.tokens.model_dump(mode="json")
    return {
        f"{table}.{key}": value
        for table, named in (("model", model), ("tokens", tokens))
        for key, value in named.items()
    }


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None
