"""Counts for a network: parameters, floating-point operations, memory for training.

FLOPs count a multiplication and an addition as two, in matrix products only, as is customary; the backward pass costs
twice the forward pass. For an encoder-decoder, "per token" means one source token and one target token.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.models.network import Network
from regard.nn import CrossAttention, OutputProjection, Stack
from regard.nn.experts import MixtureOfExperts
from regard.nn.multihead import MultiHeadAttention
from regard.nn.prediction_heads import BidirectionalLMHead, PoolingLayer, TextClassificationHead
from regard.nn.recurrent import SourceAttention
from regard.nn.recurrent_stack import BidirectionalStack, RecurrentStack

BYTES_PER_FLOAT = 4  # float32
ONCE_PER_TEXT = PoolingLayer | TextClassificationHead  # not counted per token


@dataclass(frozen=True)
class ModelPart:
    """All modules of one kind."""

    name: str
    count: int
    parameters: int  # of all of them; 0 if they are shared with an earlier part
    flops: int  # of all of them, per token, forward
    active_parameters: int  # that a token uses: without experts that are not chosen


@dataclass(frozen=True)
class ModelSummary:
    """The parts of a network in the order of the computation, and their totals."""

    parts: list[ModelPart]
    length: int

    @property
    def parameters(self) -> int:
        """Number of parameters, shared ones counted once."""
        return sum(part.parameters for part in self.parts)

    @property
    def active_parameters(self) -> int:
        """Number of parameters that a token uses: fewer than all in a mixture of experts."""
        return sum(part.active_parameters for part in self.parts)

    @property
    def forward_flops(self) -> int:
        """FLOPs per token of a forward pass."""
        return sum(part.flops for part in self.parts)

    @property
    def training_flops(self) -> int:
        """FLOPs per token of a forward and a backward pass."""
        return 3 * self.forward_flops

    @property
    def memory(self) -> dict[str, int]:
        """Bytes that training in float32 with Adam needs, without activations."""
        weights = BYTES_PER_FLOAT * self.parameters
        return {"weights": weights, "gradients": weights, "optimizer": 2 * weights}

    def as_dict(self) -> dict[str, Any]:
        """Return everything, for JSON."""
        return {
            "parameters": self.parameters,
            "active_parameters": self.active_parameters,
            "length": self.length,
            "forward_flops_per_token": self.forward_flops,
            "training_flops_per_token": self.training_flops,
            "memory_bytes": self.memory,
            "parts": [asdict(part) for part in self.parts],
        }


def summarize(network: Network, length: int = 32) -> ModelSummary:
    """Count the parts of a network for sequences of `length` tokens.

    >>> from regard.config import load_config
    >>> from regard.models.assembly import build_meta
    >>> summarize(build_meta(load_config("paper-base").model), length=32).parameters
    63045632
    """
    counted: set[int] = set()  # a shared matrix is counted where it comes first
    parts: list[ModelPart] = []
    for name, module in network.named_children():
        for kind, modules in _parts(module):
            parameters = sum(_new_parameters(part, counted) for part in modules)
            per_token = not isinstance(module, ONCE_PER_TEXT)
            flops = sum(_flops(part, length) for part in modules) if per_token else 0
            idle = sum(weight.numel() for part in modules for expert in _idle(part) for weight in expert.parameters())
            parts.append(ModelPart(f"{name} {kind}".strip(), len(modules), parameters, flops, parameters - idle))
    return ModelSummary([part for part in parts if part.parameters or part.flops], length)


def _parts(module: nn.Module) -> list[tuple[str, list[nn.Module]]]:
    if isinstance(module, Stack | RecurrentStack | BidirectionalStack):
        return module.parts
    return [("", [module])]


def _new_parameters(module: nn.Module, counted: set[int]) -> int:
    new = {id(parameter): parameter.numel() for parameter in module.parameters() if id(parameter) not in counted}
    counted.update(new)
    return sum(new.values())


def _idle(module: nn.Module) -> list[nn.Module]:
    """Return the experts of a mixture that a token does not use; they are equally large."""
    return module.idle_experts if isinstance(module, MixtureOfExperts) else []


def _flops(module: nn.Module, length: int) -> int:
    """Return the FLOPs per token: two for each entry of each matrix, and those of attention with `length` keys."""
    attention = sum(
        part.flops(length) for part in module.modules() if isinstance(part, MultiHeadAttention | SourceAttention)
    )
    return _matrix_flops(module.modules()) + attention


def _matrix_flops(modules: Iterable[nn.Module]) -> int:
    """Return two for each entry of each matrix that is multiplied by the vector of a token."""
    modules = list(modules)
    idle = {id(part) for module in modules for expert in _idle(module) for part in expert.modules()}
    kinds = nn.Linear | OutputProjection | nn.RNNBase | BidirectionalLMHead  # the last applies its projection twice
    used = [part for part in modules if isinstance(part, kinds) and id(part) not in idle]
    weights = [weight for part in used for weight in part.parameters()]
    return sum(2 * weight.numel() for weight in weights if weight.dim() == 2)


class FlopCounter:
    """FLOPs of training on a batch, padding not counted."""

    def __init__(self, network: Network, *, exclude: nn.Module | None = None) -> None:
        """`exclude` is a module of the network that training does not use."""
        attentions = [(name, part) for name, part in network.named_modules() if isinstance(part, MultiHeadAttention)]
        cross = [part for _, part in attentions if isinstance(part, CrossAttention)]
        encoder = dict(network.named_children()).get("encoder") if network.encodes else None
        encoder_flops = _matrix_flops(encoder.modules()) if encoder is not None else 0
        recurrent = [part for part in network.modules() if isinstance(part, SourceAttention)]
        keys = [key for part in recurrent if isinstance(key := getattr(part.score, "key", None), nn.Linear)]
        memory_flops = _matrix_flops([*(part.key_value for part in cross), *keys])
        excluded = _matrix_flops(exclude.modules()) if exclude is not None else 0
        self._per_source_token = encoder_flops + memory_flops
        self._per_target_token = _matrix_flops(network.modules()) - encoder_flops - memory_flops - excluded
        self._encoder = [part for name, part in attentions if encoder is not None and name.startswith("encoder.")]
        self._cross = cross
        self._recurrent = recurrent
        self._decoder = [part for _, part in attentions if part not in self._encoder and part not in cross]

    def training_flops(self, targets: Tensor, sources: Tensor | None = None) -> float:
        """Return the FLOPs of forward and backward pass for sequences of these lengths (B,)."""
        target_tokens, targets = float(targets.sum()), targets.double()
        flops = target_tokens * self._per_target_token
        flops += target_tokens * _attention_flops(self._decoder, _mean_keys(targets, targets))
        if sources is not None:
            source_tokens, sources = float(sources.sum()), sources.double()
            flops += source_tokens * self._per_source_token
            flops += source_tokens * _attention_flops(self._encoder, _mean_keys(sources, sources))
            cross_keys = _mean_keys(sources, targets)
            flops += target_tokens * _attention_flops(self._cross, cross_keys)
            flops += target_tokens * sum(part.flops(cross_keys) for part in self._recurrent)
        return 3 * flops


def _attention_flops(attentions: Iterable[MultiHeadAttention], keys: int) -> int:
    return sum(part.flops(keys) for part in attentions)


def _mean_keys(keys: Tensor, queries: Tensor) -> int:
    """Return the mean number of keys per query, for sequences with these numbers of keys and queries."""
    return int(torch.round((keys * queries).sum() / queries.sum()))
