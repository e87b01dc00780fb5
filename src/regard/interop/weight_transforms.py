"""Equivalent weights: the same network in arrays that other implementations can hold. Torch-free.

Arrays are named as the tensors of our networks. The functions return new mappings and do not change their arguments.

H heads · D width of a head's values · E width of its queries and keys · C model width
"""

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from regard.config import LearnedPositionsConfig, NoPositionsConfig, SinusoidalPositionsConfig, TransformerConfig
from regard.interop.exporters import MAX_POSITIONS

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]

WIDTH_IS_LAST = re.compile(  # (…, C)
    r".*\.(query_key_value|query|key_value|inner)\.weight"
    r"|.*\.embedding\.(weight|positions\.weight|segments)|output\.weight"
)
WIDTH_IS_FIRST = re.compile(r".*(attention|feed_forward)\.output\.(weight|bias)|.*\.norm\.(weight|bias)")  # (C, …)
SUBLAYER_OUTPUT = re.compile(r"(.*\.(?:attention|cross_attention|feed_forward))\.(?:output|router)\.weight")
STACK_EMBEDDING = re.compile(r"(encoder|decoder)\.embedding\.weight")


def equalize_head_widths(arrays: Arrays, model: TransformerConfig) -> dict[str, Array]:
    """Give queries, keys and values of a head the same width, and scale the scores by its square root.

    Queries and keys are padded with zeros, which do not change their products, and so are values, whose padding the
    output projection ignores; a different scale of the scores is multiplied into the queries.
    """
    key_width = model.key_width or model.head_width
    width = equal_head_width(model)
    scale = math.sqrt(width / key_width) if model.scale_scores else math.sqrt(width)
    changed = dict(arrays)
    if key_width == model.head_width and scale == 1:
        return changed

    def pad(part: Array, factor: float = 1.0) -> Array:
        heads = part.reshape(model.heads, -1, *part.shape[1:]) * factor  # (H, D or E, …)
        return _pad_axis(heads, 1, after=width - heads.shape[1]).reshape(-1, *part.shape[1:])

    keys = model.heads * key_width
    for name, array in arrays.items():
        if re.search(r"\.query_key_value\.(weight|bias)$", name):
            query, key, value = np.split(array, [keys, 2 * keys])
            changed[name] = np.concatenate([pad(query, scale), pad(key), pad(value)])
        elif re.search(r"\.cross_attention\.query\.(weight|bias)$", name):
            changed[name] = pad(array, scale)
        elif re.search(r"\.key_value\.(weight|bias)$", name):
            key, value = np.split(array, [keys])
            changed[name] = np.concatenate([pad(key), pad(value)])
        elif name.endswith("attention.output.weight"):
            changed[name] = np.ascontiguousarray(pad(array.T).T)  # (C, H·D)
        elif re.search(r"\.attention\.positions\.(keys|values)$", name):  # relative positions (R, D or E)
            changed[name] = _pad_axis(array, -1, after=width - array.shape[-1])
    return changed


def equal_head_width(model: TransformerConfig) -> int:
    """Return the width of a head that holds queries, keys and values."""
    return max(model.key_width or 0, model.head_width)


def repeat_kv_heads(arrays: Arrays, model: TransformerConfig) -> dict[str, Array]:
    """Return the arrays of the same network with `kv_heads = heads`: rows of shared heads are repeated.

    For formats without grouped-query attention; the result computes the same function.
    """
    kv_heads = model.kv_heads or model.heads
    repeated = dict(arrays)
    if kv_heads == model.heads:
        return repeated
    key_rows, value_rows = kv_heads * (model.key_width or model.head_width), kv_heads * model.head_width

    def repeat(part: Array) -> Array:
        heads = part.reshape(kv_heads, -1, *part.shape[1:])
        return np.repeat(heads, model.heads // kv_heads, axis=0).reshape(-1, *part.shape[1:])

    for name, array in arrays.items():
        if re.search(r"\.(query_key_value|key_value)\.(weight|bias)$", name):
            query, key, value = np.split(array, [len(array) - key_rows - value_rows, len(array) - value_rows])
            repeated[name] = np.concatenate([query, repeat(key), repeat(value)])
        elif re.search(r"\.kernel\.(keys|values)\.weight$", name) and array.ndim == 3:  # Linformer, one per KV head
            repeated[name] = np.repeat(array, model.heads // kv_heads, axis=0)
    return repeated


def interleave(rows: Array, heads: int) -> Array:
    """Return rows (H·D, …) whose rotated pairs are D/2 apart with these next to each other.

    >>> interleave(np.arange(8), 2).tolist()
    [0, 2, 1, 3, 4, 6, 5, 7]
    """
    return rows.reshape(heads, 2, -1, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def separate(rows: Array, heads: int) -> Array:
    """Return rows (H·D, …) whose rotated pairs are next to each other with these D/2 apart.

    >>> separate(interleave(np.arange(24), 2), 2).tolist() == list(range(24))
    True
    """
    return rows.reshape(heads, -1, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def permute_width(arrays: Arrays, order: npt.NDArray[np.int64]) -> dict[str, Array]:
    """Permute the axis of the model width in all arrays, which does not change the network's function."""
    changed = dict(arrays)
    for name, array in arrays.items():
        if WIDTH_IS_LAST.fullmatch(name):
            changed[name] = array[..., order]
        elif WIDTH_IS_FIRST.fullmatch(name):
            changed[name] = array[order]
    return changed


def add_zero_biases(arrays: Arrays) -> dict[str, Array]:
    """Add zero biases to the linear layers that have none."""
    biases = {
        f"{name.removesuffix('.weight')}.bias": np.zeros(len(weight), weight.dtype)
        for name, weight in arrays.items()
        if name.endswith(".weight") and ".embedding." not in name
    }
    return {**biases, **arrays}


def add_norm_parameters(arrays: Arrays, model: TransformerConfig) -> dict[str, Array]:
    """Add gains of one and biases of zero to norms that have neither, for formats that require them."""
    if model.norm_affine:
        return dict(arrays)
    norms = [f"{match[1]}_residual.norm" for name in arrays if (match := SUBLAYER_OUTPUT.fullmatch(name))]
    for stack in [match[1] for name in arrays if (match := STACK_EMBEDDING.fullmatch(name))]:
        norms += [f"{stack}.embedding.norm"] * model.embedding_norm + [f"{stack}.norm"] * (model.norm_order == "pre")
    added = {f"{norm}.weight": np.ones(model.width, np.float32) for norm in norms}
    if model.norm == "layer":
        added |= {f"{norm}.bias": np.zeros(model.width, np.float32) for norm in norms}
    return {**arrays, **added}


def widen_embeddings(arrays: Arrays, model: TransformerConfig) -> dict[str, Array]:
    """Pad embeddings to the model width, for formats that add positions to them.

    Zeros stand where the positions are concatenated, and `position_table` has zeros where the embeddings are, so that
    their sum is the concatenation. Scaled embeddings are multiplied by the square root of the wider width there.
    """
    missing = model.width - model.embedding_width
    if not missing:
        return dict(arrays)
    factor = math.sqrt(model.embedding_width / model.width) if model.scale_embeddings else 1.0
    return {
        name: _pad_axis(array, -1, after=missing) * factor if name.endswith(".embedding.weight") else array
        for name, array in arrays.items()
    }


def position_table(arrays: Arrays, stack: str, model: TransformerConfig) -> Array:
    """Return what a stack adds to its embeddings at each position: learned, sinusoidal or zero."""
    match model.positions:
        case LearnedPositionsConfig():
            table = arrays[f"{stack}.embedding.positions.weight"]
            return _pad_axis(table, -1, before=model.width - table.shape[1])  # concatenated after the embedding
        case SinusoidalPositionsConfig(layout=layout) as positions:
            width = positions.vector_width(model.width)
            table = sinusoidal_array(MAX_POSITIONS, width, halves=layout == "halves").astype(np.float32)
            return _pad_axis(table, -1, before=model.width - width)
        case NoPositionsConfig():
            return np.zeros((MAX_POSITIONS, model.width), np.float32)
        case other:
            raise TypeError(f"{other.kind} positions are not added to embeddings")


def sinusoidal_array(length: int, width: int, halves: bool = False) -> Array:
    """Return `regard.nn.sinusoidal_table` as an array (length, width), in double precision.

    >>> sinusoidal_array(2, 4).round(2)
    array([[0.  , 1.  , 0.  , 1.  ],
           [0.84, 0.54, 0.01, 1.  ]])
    """
    angle = np.arange(length)[:, None] * np.exp(-math.log(10_000) * np.arange(0, width, 2) / width)
    parts = [np.sin(angle), np.cos(angle)]  # (length, ⌈width / 2⌉) each
    table = np.concatenate(parts, axis=1) if halves else np.stack(parts, axis=2).reshape(length, -1)
    return table[:, :width]


def _pad_axis(array: Array, axis: int, before: int = 0, after: int = 0) -> Array:
    padding = [(0, 0)] * array.ndim
    padding[axis] = (before, after)
    return np.pad(array, padding)
