"""The tensors of a network by name. A shared matrix appears once, under its first name."""

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from regard.config import TransformerConfig
from regard.errors import ModelError
from regard.models.folder_files import missing_file


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file, by name."""
    try:
        return load_file(path)
    except FileNotFoundError:
        raise missing_file(path) from None
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror or error}).") from None
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


def repeat_kv_heads(tensors: Mapping[str, Tensor], model: TransformerConfig) -> dict[str, Tensor]:
    """Return the tensors of the same network with `kv_heads = heads`: rows of shared heads are repeated.

    For formats without grouped-query attention; the result computes the same function.
    """
    kv_heads = model.kv_heads or model.heads
    repeated = dict(tensors)
    if kv_heads == model.heads:
        return repeated
    key_rows, value_rows = kv_heads * (model.key_width or model.head_width), kv_heads * model.head_width

    def repeat(part: Tensor) -> Tensor:
        return part.unflatten(0, (kv_heads, -1)).repeat_interleave(model.heads // kv_heads, 0).flatten(0, 1)

    for name, tensor in tensors.items():
        if re.search(r"\.(query_key_value|key_value)\.(weight|bias)$", name):
            query, key, value = tensor.split([len(tensor) - key_rows - value_rows, key_rows, value_rows])
            repeated[name] = torch.cat([query, repeat(key), repeat(value)])
        elif re.search(r"\.kernel\.(keys|values)\.weight$", name) and tensor.dim() == 3:  # Linformer, one per KV head
            repeated[name] = tensor.repeat_interleave(model.heads // kv_heads, 0)
    return repeated


def shape_text(tensor: Tensor) -> str:
    """Return the shape of a tensor as text.

    >>> shape_text(torch.zeros(3, 4))
    '3×4'
    """
    return "×".join(str(size) for size in tensor.shape) or "()"
