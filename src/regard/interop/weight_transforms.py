"""The same network in other tensors: what one of our settings asks for, said in weights that any Transformer has.

Tensors are named as in our networks. The functions give new mappings and leave what they were given as it is.

H heads · D width of a head's values · E of its queries and keys · C model width
"""

import math
import re
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.config import LearnedPositionsConfig, NoPositionsConfig, SinusoidalPositionsConfig, TransformerConfig
from regard.interop.ctranslate2_support import MAX_POSITIONS
from regard.nn import sinusoidal_table

Tensors = Mapping[str, Tensor]

WIDTH_IS_LAST = re.compile(  # (…, C)
    r".*\.(query_key_value|query|key_value|inner)\.weight"
    r"|.*\.embedding\.(weight|positions\.weight|segments)|output\.weight"
)
WIDTH_IS_FIRST = re.compile(r".*(attention|feed_forward)\.output\.(weight|bias)|.*\.norm\.(weight|bias)")  # (C, …)


def equalize_head_widths(tensors: Tensors, model: TransformerConfig) -> dict[str, Tensor]:
    """Heads whose queries, keys and values are all equally wide, and whose scores are divided by the root of that.

    Queries and keys are filled up with zeros, which add nothing to their products, and so are values, whose further
    outputs no one reads; that another number divides the scores is put into the queries.
    """
    ours = model.key_width or model.head_width
    width = equal_head_width(model)
    factor = math.sqrt(width / ours) if model.scale_scores else math.sqrt(width)
    changed = dict(tensors)
    if ours == model.head_width and factor == 1:
        return changed

    def filled(part: Tensor, times: float = 1.0) -> Tensor:
        heads = part.unflatten(0, (model.heads, -1)) * times  # (H, D or E, …)
        missing = width - heads.size(1)
        return F.pad(heads, (0, 0, 0, missing) if heads.dim() == 3 else (0, missing)).flatten(0, 1)

    keys, values = model.heads * ours, model.width
    for name, tensor in tensors.items():
        if re.search(r"\.query_key_value\.(weight|bias)$", name):
            query, key, value = tensor.split([keys, keys, values])
            changed[name] = torch.cat([filled(query, factor), filled(key), filled(value)])
        elif re.search(r"\.cross_attention\.query\.(weight|bias)$", name):
            changed[name] = filled(tensor, factor)
        elif re.search(r"\.key_value\.(weight|bias)$", name):
            key, value = tensor.split([keys, values])
            changed[name] = torch.cat([filled(key), filled(value)])
        elif name.endswith("attention.output.weight"):
            changed[name] = filled(tensor.mT).mT.contiguous()  # (C, H·D)
        elif re.search(r"\.attention\.positions\.(keys|values)$", name):  # (R, D or E), of relative positions
            changed[name] = F.pad(tensor, (0, width - tensor.size(-1)))
    return changed


def equal_head_width(model: TransformerConfig) -> int:
    """How wide heads must be to hold queries, keys and values alike."""
    return max(model.key_width or 0, model.head_width)


def permute_width(tensors: Tensors, order: Tensor) -> dict[str, Tensor]:
    """The model width's axes in another order, everywhere: norms and sums do not care which axis is which."""
    changed = dict(tensors)
    for name, tensor in tensors.items():
        if WIDTH_IS_LAST.fullmatch(name):
            changed[name] = tensor[..., order]
        elif WIDTH_IS_FIRST.fullmatch(name):
            changed[name] = tensor[order]
    return changed


def add_zero_biases(tensors: Tensors) -> dict[str, Tensor]:
    """Zeros for the biases that linear layers have in other networks, and ours have not."""
    biases = {
        f"{name.removesuffix('.weight')}.bias": weight.new_zeros(len(weight))
        for name, weight in tensors.items()
        if name.endswith(".weight") and ".embedding." not in name
    }
    return {**biases, **tensors}


def position_table(tensors: Tensors, stack: str, model: TransformerConfig) -> Tensor:
    """What a stack adds to its embeddings at each position, whether it was learned, is computed, or is nothing."""
    match model.positions:
        case LearnedPositionsConfig():
            return tensors[f"{stack}.embedding.positions.weight"]
        case SinusoidalPositionsConfig(layout=layout):
            return sinusoidal_table(MAX_POSITIONS, model.width, halves=layout == "halves").float()
        case NoPositionsConfig():
            return torch.zeros(MAX_POSITIONS, model.width)
        case other:
            raise TypeError(f"{other.kind} positions are not added to embeddings")
