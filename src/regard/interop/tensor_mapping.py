"""Their tensors and ours as a table that reads both ways: rightwards to export, leftwards to import.

A row says which of our tensors is made of which of theirs, and how the numbers lie in them. Our fused projections are
their separate ones, one under the other; GPT-2 keeps its matrices the other way round.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class TensorLayout:
    """How one tensor of ours lies in theirs: there and back."""

    to_regard: Callable[[Sequence[Tensor]], Tensor]
    to_huggingface: Callable[[Tensor, int], Sequence[Tensor]]  # into so many parts


SAME = TensorLayout(lambda parts: parts[0], lambda whole, _: [whole])
TRANSPOSED = TensorLayout(lambda parts: parts[0].mT.contiguous(), lambda whole, _: [whole.mT.contiguous()])
STACKED = TensorLayout(lambda parts: torch.cat(list(parts)), lambda whole, count: whole.chunk(count))
SINGLE_ROW = TensorLayout(lambda parts: parts[0].squeeze(0), lambda whole, _: [whole[None]])


@dataclass(frozen=True)
class TensorMapping:
    """One tensor of ours and what it is made of."""

    ours: str
    theirs: tuple[str, ...]
    layout: TensorLayout = SAME


def map_module(ours: str, *theirs: str, weight: TensorLayout | None = None) -> list[TensorMapping]:
    """The rows of a linear layer or a norm: its weight and its bias. Several of theirs are stacked in ours.

    >>> [row.ours for row in map_module("decoder.norm", "transformer.ln_f")]
    ['decoder.norm.weight', 'decoder.norm.bias']
    """
    form = STACKED if len(theirs) > 1 else SAME
    return [
        TensorMapping(f"{ours}.weight", tuple(f"{name}.weight" for name in theirs), weight or form),
        TensorMapping(f"{ours}.bias", tuple(f"{name}.bias" for name in theirs), form),
    ]


def with_prefixes(rows: Iterable[TensorMapping], ours: str, theirs: str) -> list[TensorMapping]:
    """The rows of a layer, under the names of one layer in particular.

    >>> with_prefixes(map_module("attention.output", "attn.c_proj"), "decoder.layers.0.", "transformer.h.0.")[1].theirs
    ('transformer.h.0.attn.c_proj.bias',)
    """
    return [TensorMapping(ours + row.ours, tuple(theirs + name for name in row.theirs), row.layout) for row in rows]


def to_regard(rows: Iterable[TensorMapping], theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our tensors, made of theirs."""
    return {row.ours: row.layout.to_regard([theirs[name] for name in row.theirs]) for row in rows}


def to_huggingface(rows: Iterable[TensorMapping], ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Their tensors, made of ours.

    >>> rows = map_module("fused", "q", "k", "v")
    >>> theirs = to_huggingface(rows, {"fused.weight": torch.zeros(6, 2), "fused.bias": torch.zeros(6)})
    >>> theirs["k.weight"].shape, theirs["k.bias"].shape
    (torch.Size([2, 2]), torch.Size([2]))
    """
    return {
        name: tensor
        for row in rows
        for name, tensor in zip(row.theirs, row.layout.to_huggingface(ours[row.ours], len(row.theirs)), strict=True)
    }
