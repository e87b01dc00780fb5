"""The model folder: `config.json`, `model.safetensors`, `tokenizer.json` and a model card, `README.md`.

It is self-contained and can be moved; nothing in it is executable. It is written whole or not at all: a folder under
a temporary name takes its own name only when everything is on disk.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from regard.config import Config, ModelConfig, RecurrentConfig
from regard.errors import ModelError
from regard.files import atomic_folder, write_error_message
from regard.models.assembly import build_meta
from regard.models.folder_files import (
    CARD_FILE,
    CONFIG_FILE,
    FORMAT_VERSION,
    WEIGHTS_FILE,
    read_config,
    resolve_model_folder,
)
from regard.models.network import Network
from regard.models.weights import assign_tensors, named_tensors, read_tensors, shape_text
from regard.version import __version__

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
) -> None:
    """Write a model folder. `origin` is a sentence for the model card; `extra_files` such as the tokenizer, by name."""
    folder = Path(folder)
    if folder.exists():
        raise ModelError(f"{folder}: already exists; choose another name or remove it first.")
    network = getattr(network, "_orig_mod", network)  # what torch.compile wraps
    check_tensors(build_meta(config.model), named_tensors(network), f"{folder}: cannot hold this network, which")
    for name in extra_files or {}:
        if Path(name).name != name or name in (CONFIG_FILE, WEIGHTS_FILE, CARD_FILE):
            raise ModelError(f"{folder}: cannot hold an extra file {name!r}; choose another name.")
    info = {"format": FORMAT_VERSION, "regard": __version__, **_kept(config)}
    tensors = {name: tensor.contiguous() for name, tensor in named_tensors(network).items()}
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with atomic_folder(folder) as temporary:
            (temporary / CONFIG_FILE).write_text(json.dumps(info, indent=2, ensure_ascii=False) + "\n", "utf-8")
            (temporary / CARD_FILE).write_text(model_card(folder.name, network, config, origin), "utf-8")
            for name, content in (extra_files or {}).items():
                (temporary / name).write_bytes(content)
            save_file(tensors, temporary / WEIGHTS_FILE, {"format": "pt"})
    except (OSError, SafetensorError) as error:
        raise ModelError(write_error_message(folder, error)) from None


def load(folder: str | Path) -> LoadedNetwork:
    """Read a model folder, or the best of a run's; the network is ready for inference."""
    folder = resolve_model_folder(folder)
    config = read_config(folder)
    network = build_meta(config.model)  # no time is spent on first values that are replaced at once
    tensors = read_tensors(folder / WEIGHTS_FILE)
    check_tensors(network, tensors, f"{folder / WEIGHTS_FILE}:")
    assign_tensors(network, tensors)
    return LoadedNetwork(network.eval(), config, folder)


def check_tensors(network: Network, given: dict[str, Tensor], who: str) -> None:
    """Complain about the first tensor that is missing, of another shape or type, or one too many."""
    wanted, types = named_tensors(network), {tensor.dtype for tensor in given.values()}
    for name, tensor in wanted.items():
        if name not in given:
            raise ModelError(f"{who} has no tensor {name}, which {CONFIG_FILE} asks for.")
        if given[name].shape != tensor.shape:
            raise ModelError(
                f"{who} has {name} of shape {shape_text(given[name])}, but {CONFIG_FILE} asks for {shape_text(tensor)}."
            )
    surplus = next((name for name in given if name not in wanted), None)
    if surplus is not None:
        raise ModelError(f"{who} has a tensor {surplus}, which {CONFIG_FILE} does not ask for.")
    if len(types) > 1 or not types <= FLOATS:
        found = ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in types))
        raise ModelError(f"{who} has numbers of the types {found}; all should be of one float type of 16 to 64 bits.")


def _kept(config: Config) -> dict[str, Any]:
    """What a network needs to be used; of a language model, also how many tokens it was trained to see at once."""
    found = config.model_dump(mode="json", include={"model", "tokens"})
    if config.model.generates and config.data.context_length is not None:
        found["data"] = {"context_length": config.data.context_length}
    return found


def model_card(name: str, network: nn.Module, config: Config, origin: str = "") -> str:
    """The text of a model folder's `README.md`."""
    model = config.model
    parameters = sum(parameter.numel() for parameter in network.parameters())
    table = model.model_dump(mode="json", exclude_none=True)
    lines = [
        f"# {name}",
        "",
        f"{model.family[0].upper()}{model.family[1:]} with {parameters:,} parameters: {model.layers} layers, "
        f"width {model.width}, {_kind_of_layer(model)}, vocabulary {model.vocab_size:,}. {origin}".rstrip(),
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


def _kind_of_layer(model: ModelConfig) -> str:
    return f"{model.cell} cells" if isinstance(model, RecurrentConfig) else f"{model.heads} heads"


def _value(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_value(inner)}" for key, inner in value.items())
    return str(value).lower() if isinstance(value, bool) else str(value)
