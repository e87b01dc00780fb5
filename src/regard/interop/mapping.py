"""Their tensors and ours as a table that reads both ways: rightwards to export, leftwards to import.

A row says which of our tensors is made of which of theirs, and how the numbers lie in them. Our fused projections are
their separate ones, one under the other; GPT-2 keeps its matrices the other way round.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Form:
    """How one tensor of ours lies in theirs: there and back."""

    to_ours: Callable[[Sequence[Tensor]], Tensor]
    to_theirs: Callable[[Tensor, int], Sequence[Tensor]]  # into so many parts


SAME = Form(lambda parts: parts[0], lambda whole, _: [whole])
TRANSPOSED = Form(lambda parts: parts[0].mT.contiguous(), lambda whole, _: [whole.mT.contiguous()])
STACKED = Form(lambda parts: torch.cat(list(parts)), lambda whole, count: whole.chunk(count))
ONE_ROW = Form(lambda parts: parts[0].squeeze(0), lambda whole, _: [whole[None]])


@dataclass(frozen=True)
class Row:
    """One tensor of ours and what it is made of."""

    ours: str
    theirs: tuple[str, ...]
    form: Form = SAME


def module(ours: str, *theirs: str, weight: Form | None = None) -> list[Row]:
    """The rows of a linear layer or a norm: its weight and its bias. Several of theirs are stacked in ours.

    >>> [row.ours for row in module("decoder.norm", "transformer.ln_f")]
    ['decoder.norm.weight', 'decoder.norm.bias']
    """
    form = STACKED if len(theirs) > 1 else SAME
    return [
        Row(f"{ours}.weight", tuple(f"{name}.weight" for name in theirs), weight or form),
        Row(f"{ours}.bias", tuple(f"{name}.bias" for name in theirs), form),
    ]


def under(rows: Iterable[Row], ours: str, theirs: str) -> list[Row]:
    """The rows of a layer, under the names of one layer in particular.

    >>> under(module("attention.output", "attn.c_proj"), "decoder.layers.0.", "transformer.h.0.")[1].theirs
    ('transformer.h.0.attn.c_proj.bias',)
    """
    return [Row(ours + row.ours, tuple(theirs + name for name in row.theirs), row.form) for row in rows]


def to_ours(rows: Iterable[Row], theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our tensors, made of theirs."""
    return {row.ours: row.form.to_ours([theirs[name] for name in row.theirs]) for row in rows}


def to_theirs(rows: Iterable[Row], ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Their tensors, made of ours.

    >>> rows = module("fused", "q", "k", "v")
    >>> theirs = to_theirs(rows, {"fused.weight": torch.zeros(6, 2), "fused.bias": torch.zeros(6)})
    >>> theirs["k.weight"].shape, theirs["k.bias"].shape
    (torch.Size([2, 2]), torch.Size([2]))
    """
    return {
        name: tensor
        for row in rows
        for name, tensor in zip(row.theirs, row.form.to_theirs(ours[row.ours], len(row.theirs)), strict=True)
    }
