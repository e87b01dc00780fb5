"""The model folder: `config.json`, `model.safetensors`, `tokenizer.json` and a model card, `README.md`.

It is self-contained and can be moved; nothing in it is executable. It is written completely or not at all. Tensors are
saved by name; a shared matrix appears once, under its first name. Weights of more than 5 GB are in several files, as
Hugging Face writes them: `model-00001-of-00002.safetensors` and so on, and `model.safetensors.index.json`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from regard.config import Config, ModelConfig, RecurrentConfig
from regard.errors import ModelError
from regard.files import atomic_folder, check_regular_file, write_error_message
from regard.models.assembly import build_meta
from regard.models.folder_files import (
    CARD_FILE,
    CONFIG_FILE,
    FORMAT_VERSION,
    WEIGHTS_FILE,
    WEIGHTS_INDEX_FILE,
    missing_file,
    read_config,
    read_weight_files,
    resolve_model_folder,
    unreadable_file,
)
from regard.models.network import Network
from regard.version import __version__

MAX_SHARD_BYTES = 5 * 1000**3  # of one file of weights
FLOATS = {torch.float16, torch.bfloat16, torch.float32, torch.float64}


@dataclass(frozen=True)
class LoadedNetwork:
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
    replace: bool = False,
    shard_bytes: int = MAX_SHARD_BYTES,
) -> None:
    """Write a model folder.

    Args:
        folder: path of the new folder.
        network: the network, whose tensors must be those that `config.model` describes.
        config: its settings.
        origin: text for the model card.
        extra_files: further files, such as the tokenizer, by name.
        replace: replace an existing folder; otherwise it is an error.
        shard_bytes: size above which the weights are divided among several files.
    """
    folder = Path(folder)
    if folder.exists() and not replace:
        raise ModelError(f"{folder}: already exists; choose another name or remove it first.")
    network = getattr(network, "_orig_mod", network)  # unwrap torch.compile
    check_tensors(build_meta(config.model), named_tensors(network), f"{folder}: cannot hold this network, which")
    for name in extra_files or {}:
        if Path(name).name != name or name in (CONFIG_FILE, WEIGHTS_FILE, WEIGHTS_INDEX_FILE, CARD_FILE):
            raise ModelError(f"{folder}: cannot hold an extra file {name!r}; choose another name.")
    info = {"format": FORMAT_VERSION, "regard": __version__, **_saved_settings(config)}
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with atomic_folder(folder, replace=replace) as temporary:
            (temporary / CONFIG_FILE).write_text(json.dumps(info, indent=2, ensure_ascii=False) + "\n", "utf-8")
            (temporary / CARD_FILE).write_text(model_card(folder.name, network, config, origin), "utf-8")
            for name, content in (extra_files or {}).items():
                (temporary / name).write_bytes(content)
            write_model_weights(temporary, named_tensors(network), shard_bytes)
    except (OSError, SafetensorError) as error:
        raise ModelError(write_error_message(folder, error)) from None


def load_network(folder: str | Path) -> LoadedNetwork:
    """Load a model folder, or the best model of a run folder; the network is in evaluation mode."""
    folder = resolve_model_folder(folder)
    config = read_config(folder)
    network = build_meta(config.model)  # without initialization, since all tensors are replaced
    path, tensors = read_model_weights(folder)
    check_tensors(network, tensors, f"{path}:")
    assign_tensors(network, tensors)
    return LoadedNetwork(network.eval(), config, folder)


def check_tensors(network: Network, tensors: dict[str, Tensor], where: str) -> None:
    """Raise `ModelError`, beginning with `where`, if tensors are missing, superfluous or of another shape or type."""
    expected, types = named_tensors(network), {tensor.dtype for tensor in tensors.values()}
    for name, tensor in expected.items():
        if name not in tensors:
            raise ModelError(f"{where} has no tensor {name}, which {CONFIG_FILE} requires.")
        if tensors[name].shape != tensor.shape:
            raise ModelError(
                f"{where} has {name} of shape {shape_text(tensors[name])}, but {CONFIG_FILE} requires "
                f"{shape_text(tensor)}."
            )
    surplus = next((name for name in tensors if name not in expected), None)
    if surplus is not None:
        raise ModelError(f"{where} has a tensor {surplus}, which {CONFIG_FILE} does not describe.")
    if len(types) > 1 or not types <= FLOATS:
        names = ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in types))
        raise ModelError(f"{where} has tensors of the types {names}; all should have one float type of 16 to 64 bits.")


def _saved_settings(config: Config) -> dict[str, Any]:
    """Return the settings that inference needs, with the lengths that the network was trained on."""
    tables = {"model", "tokens", "decoding"} if config.model.translates else {"model", "tokens"}
    saved = config.model_dump(mode="json", include=tables)
    names = {"context_length"} if config.model.generates else set[str]()
    if config.model.translates:
        names = {"trained_tokens", "trained_sentences"}
    lengths = config.data.model_dump(mode="json", include=names, exclude_none=True)
    return {**saved, "data": lengths} if lengths else saved


def model_card(name: str, network: nn.Module, config: Config, origin: str = "") -> str:
    """Return the text of a model folder's `README.md`."""
    model = config.model
    parameters = sum(parameter.numel() for parameter in network.parameters())
    table = model.model_dump(mode="json", exclude_none=True)
    if model.translates:
        table["decoding"] = config.decoding.model_dump(mode="json")
    lines = [
        f"# {name}",
        "",
        f"{model.family[0].upper()}{model.family[1:]} with {parameters:,} parameters: {model.layers} layers, "
        f"width {model.width}, {_layer_kind(model)}, vocabulary {model.vocab_size:,}. {origin}".rstrip(),
        "",
        f"Made with regard {__version__}. In Python, `regard.load` reads this folder; "
        "in a terminal, `regard model` shows its parts.",
        "",
        "## Settings",
        "",
        "| setting | value |",
        "|---|---|",
        *(f"| {key} | {_value(value)} |" for key, value in table.items()),
    ]
    return "\n".join(lines) + "\n"


def _layer_kind(model: ModelConfig) -> str:
    return f"{model.cell} cells" if isinstance(model, RecurrentConfig) else f"{model.heads} heads"


def _value(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_value(inner)}" for key, inner in value.items())
    return str(value).lower() if isinstance(value, bool) else str(value)


def write_model_weights(folder: Path, tensors: Mapping[str, Tensor], shard_bytes: int = MAX_SHARD_BYTES) -> None:
    """Write tensors to `model.safetensors`; if they are larger than `shard_bytes`, to several files and an index."""
    shards: list[dict[str, Tensor]] = [{}]
    free = shard_bytes
    for name, tensor in tensors.items():
        if shards[-1] and tensor.nbytes > free:
            shards.append({})
            free = shard_bytes
        shards[-1][name] = tensor.contiguous()
        free -= tensor.nbytes
    if len(shards) == 1:
        save_file(shards[0], folder / WEIGHTS_FILE, {"format": "pt"})
        return
    files = [f"model-{number:05d}-of-{len(shards):05d}.safetensors" for number in range(1, len(shards) + 1)]
    for file, shard in zip(files, shards, strict=True):
        save_file(shard, folder / file, {"format": "pt"})
    index = {
        "metadata": {"total_size": sum(tensor.nbytes for tensor in tensors.values())},
        "weight_map": {name: file for file, shard in zip(files, shards, strict=True) for name in shard},
    }
    (folder / WEIGHTS_INDEX_FILE).write_text(json.dumps(index, indent=2) + "\n", "utf-8")


def read_model_weights(folder: Path) -> tuple[Path, dict[str, Tensor]]:
    """Return the tensors of a model folder by name, from one file or several, and the file or index they are from."""
    return read_weight_files(folder, read_tensors)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file, by name."""
    try:
        check_regular_file(path)
        return load_file(path)
    except FileNotFoundError:
        raise missing_file(path) from None
    except OSError as error:
        raise unreadable_file(path, error) from None
    except (SafetensorError, KeyError, ValueError) as error:
        raise ModelError(f"{path}: is damaged ({error}); copy the folder again.") from None


def named_tensors(network: nn.Module) -> dict[str, Tensor]:
    """Return the tensors of a network that are saved, by name."""
    named: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in network.state_dict(keep_vars=True).items():
        named.setdefault(id(tensor), (name, tensor))
    return {name: tensor.detach() for name, tensor in named.values()}


def assign_tensors(network: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Replace the tensors of a network by others with the names of `named_tensors`; shared tensors stay shared."""
    assigned: dict[int, Tensor] = {}
    own = network.state_dict(keep_vars=True)
    for name, tensor in own.items():
        if id(tensor) not in assigned:
            assigned[id(tensor)] = nn.Parameter(tensors[name]) if isinstance(tensor, nn.Parameter) else tensors[name]
    network.load_state_dict({name: assigned[id(tensor)] for name, tensor in own.items()}, assign=True)


def shape_text(tensor: Tensor) -> str:
    """Return the shape of a tensor as text.

    >>> shape_text(torch.zeros(3, 4))
    '3×4'
    """
    return "×".join(str(size) for size in tensor.shape) or "()"
