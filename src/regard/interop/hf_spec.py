"""Intermediate forms of a conversion: the plan of an import, and the contents of an exported Hugging Face folder."""

from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from regard.config import (
    Config,
    DecoderOnlyConfig,
    EncoderDecoderConfig,
    LearnedPositionsConfig,
    ModelConfig,
    NoPositionsConfig,
    SinusoidalPositionsConfig,
    SpecialTokensConfig,
    TransformerConfig,
)
from regard.interop.hf_folder import HFConfig, HFWeights
from regard.interop.hf_tokenizers import ImportedTokenizers
from regard.interop.tensor_mapping import TensorMapping

Activation = Literal["relu", "gelu", "gelu-tanh", "swish"]
HF_ACTIVATIONS: dict[str, Activation] = {  # Hugging Face name -> ours; exports use the first of several names
    "relu": "relu",
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
        f"{name} has layer norms, and this network {other_norm}": model.norm != "layer",
        f"{name} has feed-forward layers, and this network has none": model.feed_forward == 0,
        f"{name} has no gates, and this network's activation is swiglu": model.activation == "swiglu",
        f"{name} has residual connections, and this network has none": not model.residual,
        f"{name} has a causal mask, and this network's decoder has none": lacks_mask,
        f"{name} adds positions to embeddings, and this network's are {model.positions.kind}": not is_added,
        f"{name} has full attention, and this network's is {model.attention.kind}": model.attention.kind != "full",
        f"{name} has no keys that are wider than values, as this network has": (
            (model.key_width or 0) > model.head_width
        ),
    }


def hf_activation(model: TransformerConfig) -> str:
    """Return the Hugging Face name of a network's activation."""
    return next(hf_name for hf_name, name in HF_ACTIVATIONS.items() if name == model.activation)


def suppressed_token_ids(config: Config) -> list[list[int]]:
    """Return padding and start tokens as `bad_words_ids`, except one that is the end token."""
    tokens = config.tokens
    return [[token_id] for token_id in sorted({tokens.pad, tokens.start} - {tokens.end})]
