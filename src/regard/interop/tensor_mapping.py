"""Tables that map the tensors of a Hugging Face model to ours, in both directions: import and export.

An entry gives the name of one of our tensors, the names of the Hugging Face tensors it consists of, and their layout:
our fused projections are separate ones there, and GPT-2 stores its matrices transposed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class TensorLayout:
    """How one of our tensors is stored in a Hugging Face model."""

    to_regard: Callable[[Sequence[Tensor]], Tensor]
    to_huggingface: Callable[[Tensor, int], Sequence[Tensor]]  # into this number of tensors


SAME = TensorLayout(lambda parts: parts[0], lambda whole, _: [whole])
TRANSPOSED = TensorLayout(lambda parts: parts[0].mT.contiguous(), lambda whole, _: [whole.mT.contiguous()])
STACKED = TensorLayout(lambda parts: torch.cat(list(parts)), lambda whole, count: whole.chunk(count))
SINGLE_ROW = TensorLayout(lambda parts: parts[0].squeeze(0), lambda whole, _: [whole[None]])


@dataclass(frozen=True)
class TensorMapping:
    """One of our tensors and the Hugging Face tensors it consists of."""

    name: str
    hf_names: tuple[str, ...]
    layout: TensorLayout = SAME


def map_module(name: str, *hf_names: str, weight: TensorLayout | None = None) -> list[TensorMapping]:
    """Return the entries of a linear layer or a norm: weight and bias. Several modules are stacked in ours.

    >>> [entry.name for entry in map_module("decoder.norm", "transformer.ln_f")]
    ['decoder.norm.weight', 'decoder.norm.bias']
    """
    layout = STACKED if len(hf_names) > 1 else SAME
    return [
        TensorMapping(f"{name}.weight", tuple(f"{hf_name}.weight" for hf_name in hf_names), weight or layout),
        TensorMapping(f"{name}.bias", tuple(f"{hf_name}.bias" for hf_name in hf_names), layout),
    ]


def with_prefixes(mappings: Iterable[TensorMapping], prefix: str, hf_prefix: str) -> list[TensorMapping]:
    """Return the entries of a layer with the prefixes of one particular layer.

    >>> layer = map_module("attention.output", "attn.c_proj")
    >>> with_prefixes(layer, "decoder.layers.0.", "transformer.h.0.")[1].hf_names
    ('transformer.h.0.attn.c_proj.bias',)
    """
    return [
        TensorMapping(prefix + entry.name, tuple(hf_prefix + hf_name for hf_name in entry.hf_names), entry.layout)
        for entry in mappings
    ]


def to_regard(mappings: Iterable[TensorMapping], hf_tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert Hugging Face tensors to ours."""
    return {
        entry.name: entry.layout.to_regard([hf_tensors[hf_name] for hf_name in entry.hf_names]) for entry in mappings
    }


def to_huggingface(mappings: Iterable[TensorMapping], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert our tensors to those of Hugging Face.

    >>> mappings = map_module("fused", "q", "k", "v")
    >>> hf_tensors = to_huggingface(mappings, {"fused.weight": torch.zeros(6, 2), "fused.bias": torch.zeros(6)})
    >>> hf_tensors["k.weight"].shape, hf_tensors["k.bias"].shape
    (torch.Size([2, 2]), torch.Size([2]))
    """
    return {
        hf_name: tensor
        for entry in mappings
        for hf_name, tensor in zip(
            entry.hf_names, entry.layout.to_huggingface(tensors[entry.name], len(entry.hf_names)), strict=True
        )
    }
