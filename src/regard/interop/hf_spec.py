"""A network of ours in the terms of one of Hugging Face's classes, before anything is written."""

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
HF_ACTIVATIONS: dict[str, Activation] = {  # theirs -> ours; the first of several that mean the same is the one to write
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
    """A folder of theirs in our terms, before anything is written."""

    model: ModelConfig
    tokens: SpecialTokensConfig
    rows: list[TensorMapping]
    weights: HFWeights
    tokenizers: ImportedTokenizers
    nothing: str  # a pattern of names that hold nothing a network learned, such as masks
    no_place: dict[str, str]  # how names begin that have no place here -> why
    notes: list[str] = field(default_factory=list)


def read_activation(settings: HFConfig, name: str, default: str) -> Activation:
    """Our name for the activation that a setting asks for."""
    value = settings.get(name, default)
    if not isinstance(value, str) or value not in HF_ACTIVATIONS:
        raise settings.wrong(name, f"is no activation that regard computes; it computes {', '.join(HF_ACTIVATIONS)}")
    return HF_ACTIVATIONS[value]


def token_or_default(number: int | None, usual: int, what: str, notes: list[str]) -> int:
    """A special token's id; the usual one, with a note, where the folder does not tell."""
    if number is None:
        notes.append(f"The folder does not tell which token is {what}; {usual} is taken for it.")
        return usual
    return number


def same_tensor(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors hold the same numbers."""
    return one is other or (one.dtype == other.dtype and torch.equal(one, other))


@dataclass(frozen=True)
class HFSpec:
    """What a folder of theirs is made of."""

    settings: dict[str, Any]  # config.json
    tensors: dict[str, Tensor]
    before: tuple[int, ...]  # the ids that stand before a text
    after: tuple[int, ...]  # and after it
    special: dict[str, int]  # the ids of special tokens, under the names that tokenizer_config.json has for them
    tokenizer: dict[str, Any]  # what else it says
    generation: dict[str, Any] | None = None  # generation_config.json
    files: dict[str, Any] = field(default_factory=dict)  # others of JSON, by path
    notes: tuple[str, ...] = ()


def first_reason(hindrances: dict[str, bool]) -> str | None:
    """The first reason of those that hold."""
    return next((reason for reason, holds in hindrances.items() if holds), None)


def common_reasons(model: TransformerConfig, name: str) -> dict[str, bool]:
    """Reasons why a class of theirs cannot hold a network, and whether they hold; those common to all classes."""
    added = isinstance(model.positions, SinusoidalPositionsConfig | LearnedPositionsConfig | NoPositionsConfig)
    looks_ahead = isinstance(model, EncoderDecoderConfig | DecoderOnlyConfig) and not model.causal_mask
    return {
        f"{name} has layer norms, and this network {_OTHER_NORMS.get(model.norm)}": model.norm != "layer",
        f"{name} has feed-forward layers, and this network has none": model.feed_forward == 0,
        f"{name} has no gates, and this network's activation is swiglu": model.activation == "swiglu",
        f"{name} has residual connections, and this network has none": not model.residual,
        f"{name} cannot look ahead, and this network's decoder does": looks_ahead,
        f"{name} adds positions to embeddings, and this network's are {model.positions.kind}": not added,
        f"{name} has full attention, and this network's is {model.attention.kind}": model.attention.kind != "full",
        f"{name} has no keys that are wider than values, as this network's are": (model.key_width or 0)
        > model.head_width,
    }


_OTHER_NORMS = {"rms": "has RMS norms", "none": "has none"}


def hf_activation(model: TransformerConfig) -> str:
    """Their name for a network's activation."""
    return next(theirs for theirs, ours in HF_ACTIVATIONS.items() if ours == model.activation)


def suppressed_token_ids(config: Config) -> list[list[int]]:
    """Tokens that are not text, as `bad_words_ids` lists them; none that is the end as well."""
    tokens = config.tokens
    return [[number] for number in sorted({tokens.pad, tokens.start} - {tokens.end})]
