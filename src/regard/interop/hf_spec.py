"""Intermediate forms of a conversion: tensor tables, the plan of an import, and the contents of an exported folder.

The tables map the tensors of a Hugging Face model to ours, in both directions. An entry gives the name of one of our
tensors, the names of the Hugging Face tensors it consists of, and their layout: our fused projections are separate ones
there, and GPT-2 stores its matrices transposed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from regard.config import (
    Config,
    DecoderOnlyConfig,
    EncoderDecoderConfig,
    LanguagesConfig,
    LearnedPositionsConfig,
    ModelConfig,
    NoPositionsConfig,
    SinusoidalPositionsConfig,
    SpecialTokensConfig,
    TransformerConfig,
)
from regard.interop.exporters import missing_parts
from regard.interop.hf_folder import HFConfig, HFWeights
from regard.interop.hf_tokenizers import ImportedTokenizers
from regard.interop.weight_transforms import Array
from regard.registry import Activation

HF_ACTIVATIONS: dict[str, Activation] = {  # Hugging Face name -> ours; exports use the first of several names
    "relu": "relu",
    "relu2": "relu2",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "gelu_python_tanh": "gelu-tanh",
    "gelu_fast": "gelu-tanh",
    "gelu_accurate": "gelu-tanh",
    "swish": "swish",
    "silu": "swish",
}


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


def to_tensors(arrays: Mapping[str, Array]) -> dict[str, Tensor]:
    """Return the arrays of `weight_transforms` as tensors."""
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


@dataclass(frozen=True)
class ImportPlan:
    """A Hugging Face folder as one of our models, before anything is written."""

    model: ModelConfig
    tokens: SpecialTokensConfig
    mappings: list[TensorMapping]
    weights: HFWeights
    tokenizers: ImportedTokenizers
    ignored: str
    """A pattern of names of tensors that are not learned, such as masks."""
    unsupported: dict[str, str]
    """Prefixes of tensors that our network does not have, and why."""
    notes: list[str] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    """Other files of the model folder, such as the chat template."""
    languages: LanguagesConfig = field(default_factory=LanguagesConfig)
    """The language tokens of a multilingual translator."""


def read_activation(config: HFConfig, name: str, default: str) -> Activation:
    """Return our name of an activation function."""
    value = config.get(name, default)
    if not isinstance(value, str) or value not in HF_ACTIVATIONS:
        raise config.error(name, f"is not an activation that regard supports; it supports {', '.join(HF_ACTIVATIONS)}")
    return HF_ACTIVATIONS[value]


def token_or_default(token_id: int | None, default: int, description: str, notes: list[str]) -> int:
    """Return the id of a special token; the default, with a note, if the folder does not define it."""
    if token_id is None:
        notes.append(f"The folder does not define {description}; id {default} is used.")
        return default
    return token_id


def same_tensor(first: Tensor, second: Tensor) -> bool:
    """Return whether two tensors have the same type and values."""
    return first is second or (first.dtype == second.dtype and torch.equal(first, second))


def is_output_tied(
    config: HFConfig, weights: HFWeights, notes: list[str], embedding: str, output: str, *, default: bool
) -> bool:
    """Return whether the output projection is the embedding matrix: by the config, unless the tensors differ."""
    tied, tensors = config.flag("tie_word_embeddings", default), weights.tensors
    if output not in tensors:
        if not tied:
            notes.append(f"The folder has no output projection ({output}); the embedding matrix is used.")
        return True
    matrix = tensors.setdefault(embedding, tensors[output]) if tied else None  # it may be stored under the output only
    if matrix is None or not same_tensor(matrix, tensors[output]):
        return False
    del tensors[output]
    return True


@dataclass(frozen=True)
class HFSpec:
    """The contents of a Hugging Face folder."""

    config: dict[str, Any]
    """`config.json`"""
    tensors: dict[str, Tensor]
    prefix_ids: tuple[int, ...]
    """The ids before a text."""
    suffix_ids: tuple[int, ...]
    """The ids after a text."""
    special_tokens: dict[str, int]
    """The ids of special tokens by their names in `tokenizer_config.json`."""
    tokenizer_config: dict[str, Any]
    """Other settings of `tokenizer_config.json`."""
    generation_config: dict[str, Any] | None = None
    """`generation_config.json`"""
    files: dict[str, Any] = field(default_factory=dict)
    """Other JSON files by path."""
    notes: tuple[str, ...] = ()


def first_reason(reasons: dict[str, bool]) -> str | None:
    """Return the first reason that applies."""
    return next((reason for reason, applies in reasons.items() if applies), None)


def common_reasons(model: TransformerConfig, name: str) -> dict[str, bool]:
    """Return reasons why no Hugging Face class can hold a network, and whether they apply; `name` is the class."""
    is_added = isinstance(model.positions, SinusoidalPositionsConfig | LearnedPositionsConfig | NoPositionsConfig)
    lacks_mask = isinstance(model, EncoderDecoderConfig | DecoderOnlyConfig) and not model.causal_mask
    other_norm = {"rms": "has RMS norms", "none": "has none"}.get(model.norm)
    return {
        **missing_parts(model, name),
        f"{name} has layer norms, and this network {other_norm}": model.norm != "layer",
        f"{name} has feed-forward layers, and this network has none": model.feed_forward == 0,
        f"{name} has no gates, and this network's activation is {model.activation}": model.activation.endswith(
            ("glu", "glu-tanh")
        ),
        f"{name} does not normalize queries and keys, and this network does": model.qk_norm,
        f"{name} does not cap its logits, and this network does": getattr(model, "logit_soft_cap", None) is not None,
        f"{name} has residual connections, and this network has none": not model.residual,
        f"{name} has a causal mask, and this network's decoder has none": lacks_mask,
        f"{name} adds positions to embeddings, and this network's are {model.positions.kind}": not is_added,
        f"{name} has full attention, and this network's is {model.attention.kind}": model.attention.kind != "full",
        f"{name} has no keys that are wider than values, as this network has": (
            (model.key_width or 0) > model.head_width
        ),
        f"{name} has heads of width / heads units, and this network's have {model.head_width}": (
            model.head_width * model.heads != model.width
        ),
    }


def hf_activation(model: TransformerConfig) -> str:
    """Return the Hugging Face name of a network's activation."""
    return next(hf_name for hf_name, name in HF_ACTIVATIONS.items() if name == model.activation)


def suppressed_token_ids(config: Config) -> list[list[int]]:
    """Return padding and start tokens as `bad_words_ids`, except one that is the end token."""
    tokens = config.tokens
    return [[token_id] for token_id in sorted({tokens.pad, tokens.start} - {*tokens.ends})]
