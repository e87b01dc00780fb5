"""Equivalent weights: the same network in tensors that other implementations can hold.

Tensors are named as in our networks. The functions return new mappings and do not change their arguments.

H heads · D width of a head's values · E width of its queries and keys · C model width
"""

import math
import re
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.config import LearnedPositionsConfig, NoPositionsConfig, SinusoidalPositionsConfig, TransformerConfig
from regard.interop.exporters import MAX_POSITIONS
from regard.models.assembly import build_meta
from regard.nn import sinusoidal_table

Tensors = Mapping[str, Tensor]

WIDTH_IS_LAST = re.compile(  # (…, C)
    r".*\.(query_key_value|query|key_value|inner)\.weight"
    r"|.*\.embedding\.(weight|positions\.weight|segments)|output\.weight"
)
WIDTH_IS_FIRST = re.compile(r".*(attention|feed_forward)\.output\.(weight|bias)|.*\.norm\.(weight|bias)")  # (C, …)


def equalize_head_widths(tensors: Tensors, model: TransformerConfig) -> dict[str, Tensor]:
    """Give queries, keys and values of a head the same width, and scale the scores by its square root.

    Queries and keys are padded with zeros, which do not change their products, and so are values, whose padding the
    output projection ignores; a different scale of the scores is multiplied into the queries.
    """
    key_width = model.key_width or model.head_width
    width = equal_head_width(model)
    scale = math.sqrt(width / key_width) if model.scale_scores else math.sqrt(width)
    changed = dict(tensors)
    if key_width == model.head_width and scale == 1:
        return changed

    def pad(part: Tensor, factor: float = 1.0) -> Tensor:
        heads = part.unflatten(0, (model.heads, -1)) * factor  # (H, D or E, …)
        missing = width - heads.size(1)
        return F.pad(heads, (0, 0, 0, missing) if heads.dim() == 3 else (0, missing)).flatten(0, 1)

    keys, values = model.heads * key_width, model.width
    for name, tensor in tensors.items():
        if re.search(r"\.query_key_value\.(weight|bias)$", name):
            query, key, value = tensor.split([keys, keys, values])
            changed[name] = torch.cat([pad(query, scale), pad(key), pad(value)])
        elif re.search(r"\.cross_attention\.query\.(weight|bias)$", name):
            changed[name] = pad(tensor, scale)
        elif re.search(r"\.key_value\.(weight|bias)$", name):
            key, value = tensor.split([keys, values])
            changed[name] = torch.cat([pad(key), pad(value)])
        elif name.endswith("attention.output.weight"):
            changed[name] = pad(tensor.mT).mT.contiguous()  # (C, H·D)
        elif re.search(r"\.attention\.positions\.(keys|values)$", name):  # relative positions (R, D or E)
            changed[name] = F.pad(tensor, (0, width - tensor.size(-1)))
    return changed


def equal_head_width(model: TransformerConfig) -> int:
    """Return the width of a head that holds queries, keys and values."""
    return max(model.key_width or 0, model.head_width)


def permute_width(tensors: Tensors, order: Tensor) -> dict[str, Tensor]:
    """Permute the axis of the model width in all tensors, which does not change the network's function."""
    changed = dict(tensors)
    for name, tensor in tensors.items():
        if WIDTH_IS_LAST.fullmatch(name):
            changed[name] = tensor[..., order]
        elif WIDTH_IS_FIRST.fullmatch(name):
            changed[name] = tensor[order]
    return changed


def add_zero_biases(tensors: Tensors) -> dict[str, Tensor]:
    """Add zero biases to the linear layers that have none."""
    biases = {
        f"{name.removesuffix('.weight')}.bias": weight.new_zeros(len(weight))
        for name, weight in tensors.items()
        if name.endswith(".weight") and ".embedding." not in name
    }
    return {**biases, **tensors}


def add_norm_parameters(tensors: Tensors, model: TransformerConfig) -> dict[str, Tensor]:
    """Add gains of one and biases of zero to norms that have neither, for formats that require them."""
    if model.norm_affine:
        return dict(tensors)
    expected = build_meta(model.model_copy(update={"norm_affine": True})).state_dict()  # type: ignore[arg-type]
    added = {
        name: torch.ones(meta.shape) if name.endswith(".weight") else torch.zeros(meta.shape)
        for name, meta in expected.items()
        if name not in tensors
    }
    return {**tensors, **added}


def widen_embeddings(tensors: Tensors, model: TransformerConfig) -> dict[str, Tensor]:
    """Pad embeddings to the model width, for formats that add positions to them.

    Zeros stand where the positions are concatenated, and `position_table` has zeros where the embeddings are, so that
    their sum is the concatenation. Scaled embeddings are multiplied by the square root of the wider width there.
    """
    missing = model.width - model.embedding_width
    if not missing:
        return dict(tensors)
    factor = math.sqrt(model.embedding_width / model.width) if model.scale_embeddings else 1.0
    return {
        name: F.pad(tensor, (0, missing)) * factor if name.endswith(".embedding.weight") else tensor
        for name, tensor in tensors.items()
    }


def position_table(tensors: Tensors, stack: str, model: TransformerConfig) -> Tensor:
    """Return what a stack adds to its embeddings at each position: learned, sinusoidal or zero."""
    match model.positions:
        case LearnedPositionsConfig():
            table = tensors[f"{stack}.embedding.positions.weight"]
            return F.pad(table, (model.width - table.size(1), 0))  # concatenated after the embedding
        case SinusoidalPositionsConfig(layout=layout) as positions:
            width = positions.vector_width(model.width)
            table = sinusoidal_table(MAX_POSITIONS, width, halves=layout == "halves").float()
            return F.pad(table, (model.width - width, 0))
        case NoPositionsConfig():
            return torch.zeros(MAX_POSITIONS, model.width)
        case other:
            raise TypeError(f"{other.kind} positions are not added to embeddings")
