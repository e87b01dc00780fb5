"""What importing any of the three families comes to: our settings, the table of tensors, and what finds no place."""

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from regard.config import ModelConfig, SpecialTokensConfig
from regard.interop.mapping import Row
from regard.interop.source import TheirSettings, Weights
from regard.interop.tokenizers import Tokenizers

Activation = Literal["relu", "gelu", "gelu-tanh", "swish"]
ACTIVATIONS: dict[str, Activation] = {  # theirs -> ours; the first of several that mean the same is the one to write
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
class Plan:
    """A folder of theirs in our terms, before anything is written."""

    model: ModelConfig
    tokens: SpecialTokensConfig
    rows: list[Row]
    weights: Weights
    tokenizers: Tokenizers
    nothing: str  # a pattern of names that hold nothing a network learned, such as masks
    no_place: dict[str, str]  # how names begin that have no place here -> why
    notes: list[str] = field(default_factory=list)


def activation(settings: TheirSettings, name: str, default: str) -> Activation:
    """Our name for the activation that a setting asks for."""
    value = settings.get(name, default)
    if not isinstance(value, str) or value not in ACTIVATIONS:
        raise settings.wrong(name, f"is no activation that regard computes; it computes {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[value]


def token_or(number: int | None, usual: int, what: str, notes: list[str]) -> int:
    """A special token's id; the usual one, with a note, where the folder does not tell."""
    if number is None:
        notes.append(f"The folder does not tell which token is {what}; {usual} is taken for it.")
        return usual
    return number


def same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors hold the same numbers."""
    return one is other or (one.dtype == other.dtype and torch.equal(one, other))
