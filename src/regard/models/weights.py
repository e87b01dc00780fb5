"""The tensors of a network by name, out of it and into it; a shared matrix counts once, under its first name."""

from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from regard.errors import ModelError
from regard.models.folder_files import missing_file


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors in a safetensors file, by name."""
    try:
        return load_file(path)
    except FileNotFoundError:
        raise missing_file(path) from None
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror or error}).") from None
    except (SafetensorError, KeyError, ValueError) as error:
        raise ModelError(f"{path}: is damaged ({error}); copy the folder again.") from None


def named_tensors(network: nn.Module) -> dict[str, Tensor]:
    """What must be saved."""
    named: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in network.state_dict(keep_vars=True).items():
        named.setdefault(id(tensor), (name, tensor))
    return {name: tensor.detach() for name, tensor in named.values()}


def assign_tensors(network: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Put tensors, named as `tensors_of` names them, in the place of the network's own; what is shared stays shared."""
    filled: dict[int, Tensor] = {}
    own = network.state_dict(keep_vars=True)
    for name, tensor in own.items():
        if id(tensor) not in filled:
            filled[id(tensor)] = nn.Parameter(tensors[name]) if isinstance(tensor, nn.Parameter) else tensors[name]
    network.load_state_dict({name: filled[id(tensor)] for name, tensor in own.items()}, assign=True)


def shape_text(tensor: Tensor) -> str:
    """A tensor's shape, for a sentence.

    >>> import torch
    >>> shape_text(torch.zeros(3, 4))
    '3×4'
    """
    return "×".join(str(size) for size in tensor.shape) or "()"
