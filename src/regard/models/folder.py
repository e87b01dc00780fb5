"""The model folder: `config.json`, `model.safetensors`, `tokenizer.json` and a model card, `README.md`.

It is self-contained and can be moved; nothing in it is executable. It is written completely or not at all. Tensors are
saved by name; a shared matrix appears once, under its first name. The metadata of a file of weights has a checksum,
which is verified on load. Weights of more than 5 GB are in several files, as Hugging Face writes them:
`model-00001-of-00002.safetensors` and so on, and `model.safetensors.index.json`.

The folder of an adapter has its matrices only, and names the folder of its base model: see `adapter_files`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from regard.config import Config, ModelConfig, RecurrentConfig
from regard.data.tokenizer_file import MAX_TOKENIZER_BYTES
from regard.errors import ModelError
from regard.files import atomic_folder, check_regular_file, write_error_message
from regard.models.adapter_files import (
    ADAPTER_FILE,
    ADAPTER_WEIGHTS_FILE,
    WHOLE_PARTS,
    Adapter,
    adapter_base,
    check_lora_shapes,
    read_adapter,
    weights_checksum,
)
from regard.models.assembly import build_meta
from regard.models.folder_files import (
    CARD_FILE,
    CHECKSUM_KEY,
    CONFIG_FILE,
    FORMAT_VERSION,
    NO_CHECKSUM,
    WEIGHTS_FILE,
    WEIGHTS_INDEX_FILE,
    check_checksum,
    missing_file,
    read_config,
    read_file,
    read_weight_files,
    resolve_model_folder,
    unreadable_file,
    write_checksum,
)
from regard.models.network import Network
from regard.nn.lora import add_lora, linear_layers, merge_lora, merged_weight
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
    shard_bytes: int | None = None,
) -> None:
    """Write a model folder.

    Args:
        folder: path of the new folder.
        network: the network, whose tensors must be those that `config.model` describes.
        config: its settings.
        origin: text for the model card.
        extra_files: further files, such as the tokenizer, by name.
        replace: replace an existing folder; otherwise it is an error.
        shard_bytes: size above which the weights are divided among several files; 5 GB by default.
    """
    folder = Path(folder)
    if folder.exists() and not replace:
        raise ModelError(f"{folder}: already exists; choose another name or remove it first.")
    network = getattr(network, "_orig_mod", network)  # unwrap torch.compile
    adapter = network.adapter
    expected = build_meta(config.model) if adapter is None else _adapted_meta(config, adapter)
    check_tensors(expected, named_tensors(network), f"{folder}: cannot hold this network, which")
    reserved = (CONFIG_FILE, WEIGHTS_FILE, WEIGHTS_INDEX_FILE, CARD_FILE, ADAPTER_FILE, ADAPTER_WEIGHTS_FILE)
    for name in extra_files or {}:
        if Path(name).name != name or name in reserved:
            raise ModelError(f"{folder}: cannot hold an extra file {name!r}; choose another name.")
    info = {"format": FORMAT_VERSION, "regard": __version__, **_saved_settings(config)}
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with atomic_folder(folder, replace=replace) as temporary:
            (temporary / CONFIG_FILE).write_text(json.dumps(info, indent=2, ensure_ascii=False) + "\n", "utf-8")
            (temporary / CARD_FILE).write_text(model_card(folder.name, network, config, origin), "utf-8")
            for name, content in (extra_files or {}).items():
                (temporary / name).write_bytes(content)
            if adapter is None:
                write_model_weights(temporary, named_tensors(network), shard_bytes)
            else:
                (temporary / ADAPTER_FILE).write_text(adapter.to_json(), "utf-8")
                save_tensors(_contiguous(trained_tensors(network)), temporary / ADAPTER_WEIGHTS_FILE)
    except (OSError, SafetensorError) as error:
        raise ModelError(write_error_message(folder, error)) from None


class SharedWeights:
    """Weights of models that are loaded together: a base model and its adapters use the same tensors."""

    def __init__(self) -> None:
        self._networks: WeakValueDictionary[str, Network] = WeakValueDictionary()

    def find(self, checksum: str) -> dict[str, Tensor]:
        """Return the tensors of a loaded network with this base, by name; none if there is no such network."""
        network = self._networks.get(checksum)
        if network is None:
            return {}
        adapter = network.adapter
        return {
            name: part for name, part in _named_tensors(network).items() if adapter is None or not adapter.owns(name)
        }

    def add(self, checksum: str, network: Network) -> None:
        """Share the weights of a network while it is in memory."""
        self._networks.setdefault(checksum, network)


def load_network(folder: str | Path, shared: SharedWeights | None = None) -> LoadedNetwork:
    """Load a model folder, or the best model of a run folder; the network is in evaluation mode.

    An adapter is loaded with its base model. With `shared`, models with equal base weights use the same tensors.
    """
    folder = resolve_model_folder(folder)
    config, adapter = read_config(folder), read_adapter(folder)
    # without initialization, since all tensors are replaced
    network = build_meta(config.model) if adapter is None else _adapted_meta(config, adapter, folder)
    checksum = adapter.sha256 if adapter is not None else "" if shared is None else weights_checksum(folder)
    path, tensors = folder, {} if shared is None else shared.find(checksum)
    if adapter is None:
        if not named_tensors(network).keys() <= tensors.keys():
            path, tensors = read_model_weights(folder)
    else:
        path, own = _read_adapter_weights(folder)
        tensors = _base_tensors(adapter, tensors or read_model_weights(adapter_base(folder, adapter))[1])
        dtype = next(iter(tensors.values())).dtype
        tensors |= {name: tensor.to(dtype) for name, tensor in own.items()}
    check_tensors(network, tensors, f"{path}:")
    assign_tensors(network, tensors)
    if shared is not None:
        shared.add(checksum, network)
    return LoadedNetwork(network.eval(), config, folder)


def load_merged(folder: str | Path) -> LoadedNetwork:
    """Load a model folder; the matrices of an adapter are added to those of its base model."""
    loaded = load_network(folder)
    if loaded.network.adapter is not None:
        merge_lora(loaded.network)
        loaded.network.adapter = None
    return loaded


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
    tables |= {"languages"} if config.languages.codes else set()
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


def write_model_weights(folder: Path, tensors: Mapping[str, Tensor], shard_bytes: int | None = None) -> None:
    """Write tensors to `model.safetensors`; if they are larger than `shard_bytes`, to several files and an index."""
    shards: list[dict[str, Tensor]] = [{}]
    limit = free = MAX_SHARD_BYTES if shard_bytes is None else shard_bytes
    for name, tensor in tensors.items():
        if shards[-1] and tensor.nbytes > free:
            shards.append({})
            free = limit
        shards[-1][name] = tensor.contiguous()
        free -= tensor.nbytes
    if len(shards) == 1:
        save_tensors(shards[0], folder / WEIGHTS_FILE)
        return
    files = [f"model-{number:05d}-of-{len(shards):05d}.safetensors" for number in range(1, len(shards) + 1)]
    for file, shard in zip(files, shards, strict=True):
        save_tensors(shard, folder / file)
    index = {
        "metadata": {"total_size": sum(tensor.nbytes for tensor in tensors.values())},
        "weight_map": {name: file for file, shard in zip(files, shards, strict=True) for name in shard},
    }
    (folder / WEIGHTS_INDEX_FILE).write_text(json.dumps(index, indent=2) + "\n", "utf-8")


def save_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Write a file of weights with a checksum."""
    save_file(tensors, path, {"format": "pt", CHECKSUM_KEY: NO_CHECKSUM})
    write_checksum(path)


def read_model_weights(folder: Path) -> tuple[Path, dict[str, Tensor]]:
    """Return the tensors of a model folder by name, from one file or several, and the file or index they are from.

    Those of an adapter are merged with those of its base model.
    """
    adapter = read_adapter(folder)
    if adapter is None:
        return read_weight_files(folder, read_tensors)
    path, own = _read_adapter_weights(folder)
    tensors = _base_tensors(adapter, read_model_weights(adapter_base(folder, adapter))[1])
    dtype = next(iter(tensors.values())).dtype
    for name in adapter.modules:
        weight, lora_a, lora_b = (tensors.get(f"{name}.weight"), own.get(f"{name}.lora_a"), own.get(f"{name}.lora_b"))
        check_lora_shapes(
            path, name, *(None if part is None else tuple(part.shape) for part in (weight, lora_a, lora_b))
        )
        assert weight is not None
        assert lora_a is not None
        assert lora_b is not None
        tensors[f"{name}.weight"] = merged_weight(weight, lora_a, lora_b, adapter.scale)
    return path, tensors | {name: part.to(dtype) for name, part in own.items() if name.startswith(WHOLE_PARTS)}


def save_merged(folder: Path, out: Path) -> tuple[int, int]:
    """Write the complete model of an adapter; return the numbers of its parameters and of its adapted layers."""
    folder = resolve_model_folder(folder)
    adapter = read_adapter(folder)
    if adapter is None:
        raise ModelError(f"{folder}: is a complete model, not an adapter; there is nothing to merge.")
    loaded = load_merged(folder)
    written = (CARD_FILE, CONFIG_FILE, ADAPTER_FILE, ADAPTER_WEIGHTS_FILE)
    others = [path for path in sorted(folder.iterdir()) if path.is_file() and path.name not in written]
    files = {path.name: read_file(path, MAX_TOKENIZER_BYTES) for path in others}
    save(out, loaded.network, loaded.config, origin=f"{folder} merged with {adapter.base}.", extra_files=files)
    return sum(parameter.numel() for parameter in loaded.network.parameters()), len(adapter.modules)


def read_saved_weights(folder: Path) -> dict[str, Tensor]:
    """Return the tensors that a folder stores, by name: of an adapter, those without its base model."""
    return read_model_weights(folder)[1] if read_adapter(folder) is None else _read_adapter_weights(folder)[1]


def _read_adapter_weights(folder: Path) -> tuple[Path, dict[str, Tensor]]:
    path = folder / ADAPTER_WEIGHTS_FILE
    return path, read_tensors(path)


def _base_tensors(adapter: Adapter, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in tensors.items() if not adapter.owns(name)}


def _adapted_meta(config: Config, adapter: Adapter, folder: Path | None = None) -> Network:
    """Build the network of an adapter on the meta device."""
    network = build_meta(config.model)
    known = set(linear_layers(network))
    unknown = next((name for name in adapter.modules if name not in known), None)
    if unknown is not None:
        where = f"{folder / ADAPTER_FILE}: " if folder is not None else ""
        raise ModelError(
            f"{where}adapts the layer {unknown}, which the network does not have; use the adapter with its own base "
            "model, or copy the folder again."
        )
    add_lora(network, adapter.modules, adapter.rank, adapter.alpha)
    network.adapter = adapter
    return network


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file, by name."""
    try:
        check_regular_file(path)
        check_checksum(path)
        return load_file(path)
    except FileNotFoundError:
        raise missing_file(path) from None
    except OSError as error:
        raise unreadable_file(path, error) from None
    except (SafetensorError, KeyError, ValueError) as error:
        raise ModelError(f"{path}: is damaged ({error}); copy the folder again.") from None


def named_tensors(network: nn.Module) -> dict[str, Tensor]:
    """Return the tensors of a network that a complete model saves, by name."""
    return {name: tensor.detach() for name, tensor in _named_tensors(network).items()}


def trained_tensors(network: nn.Module) -> dict[str, Tensor]:
    """Return the tensors that a run saves, by name: all of them, or those of the adapter of a network with one."""
    adapter: Adapter | None = getattr(network, "adapter", None)
    return {name: tensor for name, tensor in named_tensors(network).items() if adapter is None or adapter.owns(name)}


def _named_tensors(network: nn.Module) -> dict[str, Tensor]:
    named: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in network.state_dict(keep_vars=True).items():
        named.setdefault(id(tensor), (name, tensor))
    return dict(named.values())


def _contiguous(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


def assign_tensors(network: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Replace the tensors of a network by others with the names of `named_tensors`; shared tensors stay shared."""
    assigned: dict[int, Tensor] = {}
    own = network.state_dict(keep_vars=True)
    for name, tensor in own.items():
        if id(tensor) not in assigned:
            new = tensors[name]
            wrap = isinstance(tensor, nn.Parameter) and not isinstance(new, nn.Parameter)  # a shared one stays shared
            assigned[id(tensor)] = nn.Parameter(new) if wrap else new
    network.load_state_dict({name: assigned[id(tensor)] for name, tensor in own.items()}, assign=True)


def shape_text(tensor: Tensor) -> str:
    """Return the shape of a tensor as text.

    >>> shape_text(torch.zeros(3, 4))
    '3×4'
    """
    return "×".join(str(size) for size in tensor.shape) or "()"
