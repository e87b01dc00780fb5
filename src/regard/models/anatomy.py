"""The parts of a network, counted: parameters, floating-point operations per token, memory for training.

FLOPs count a multiplication and an addition as two, for matrix products only, as is the custom. A sentence of n tokens
is read by each stack, and for an encoder-decoder "per token" means one source token and one target token.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.models.network import Network
from regard.nn import CrossAttention, DensePooling, FirstTokenPooling, MeanPooling, OutputProjection, Stack
from regard.nn.bidirectional_stack import BidirectionalStack
from regard.nn.multihead import MultiHeadAttention
from regard.nn.prediction_heads import BidirectionalLMHead, TextClassificationHead
from regard.nn.recurrent_attention import SourceAttention
from regard.nn.recurrent_stack import RecurrentStack

BYTES = 4  # of a float32
ONCE = MeanPooling | FirstTokenPooling | DensePooling | TextClassificationHead  # for all tokens of a text


@dataclass(frozen=True)
class AnatomyPart:
    """One kind of part, with all its copies."""

    name: str
    count: int
    parameters: int  # of all copies; 0 where they are shared with a part above
    flops: int  # of all copies, per token, forward


@dataclass(frozen=True)
class Anatomy:
    """The parts of a network in the order in which a sentence meets them, and what the whole costs."""

    parts: list[AnatomyPart]
    length: int

    @property
    def parameters(self) -> int:
        return sum(part.parameters for part in self.parts)

    @property
    def forward_flops(self) -> int:
        return sum(part.flops for part in self.parts)

    @property
    def training_flops(self) -> int:
        """Forward once, and backward twice as much: towards the inputs, and towards the weights."""
        return 3 * self.forward_flops

    @property
    def memory(self) -> dict[str, int]:
        """Bytes that training in float32 with Adam needs, before any activation."""
        weights = BYTES * self.parameters
        return {"weights": weights, "gradients": weights, "optimizer": 2 * weights}

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {
            "parameters": self.parameters,
            "length": self.length,
            "forward_flops_per_token": self.forward_flops,
            "training_flops_per_token": self.training_flops,
            "memory_bytes": self.memory,
            "parts": [asdict(part) for part in self.parts],
        }


def anatomy(network: Network, length: int = 32) -> Anatomy:
    """Count a network's parts for sentences of `length` tokens.

    >>> from regard.config import resolve
    >>> from regard.models.assembly import build_meta
    >>> anatomy(build_meta(load_config("paper-base").model), length=32).parameters
    63045632
    """
    counted: set[int] = set()  # parameters seen: a shared matrix is counted where it is met first
    parts: list[AnatomyPart] = []
    for name, module in network.named_children():
        rows = _rows(module)
        for what, copies in rows:
            parameters = sum(_new_parameters(copy, counted) for copy in copies)
            per_token = not isinstance(module, ONCE)
            flops = sum(_flops(copy, length) for copy in copies) if per_token else 0
            parts.append(AnatomyPart(f"{name} {what}".strip(), len(copies), parameters, flops))
    return Anatomy([part for part in parts if part.parameters or part.flops], length)


def _rows(module: nn.Module) -> list[tuple[str, list[nn.Module]]]:
    match module:
        case Stack():
            return _stack(module)
        case RecurrentStack() | BidirectionalStack():
            return module.parts
        case _:
            return [("", [module])]


def _stack(stack: Stack) -> list[tuple[str, list[nn.Module]]]:
    """The parts of a stack: its embedding, then each kind of sub-layer over all layers, then the norms."""
    children = [dict(layer.named_children()) for layer in stack.layers]
    sublayers = [name for name in children[0] if not name.endswith("_residual")]
    norms = [part for layer in children for name, part in layer.items() if name.endswith("_residual")]
    final = [stack.norm] if stack.norm is not None else []
    return [
        ("embedding", [stack.embedding]),
        *((name.replace("_", "-"), [layer[name] for layer in children]) for name in sublayers),
        ("normalization", [*norms, *final]),
    ]


def _new_parameters(module: nn.Module, counted: set[int]) -> int:
    fresh = {id(parameter): parameter.numel() for parameter in module.parameters() if id(parameter) not in counted}
    counted.update(fresh)
    return sum(fresh.values())


def _flops(module: nn.Module, length: int) -> int:
    """Two for each entry of each matrix that a token's vector meets, and attention's own products with n keys."""
    total = 0
    for part in module.modules():
        match part:
            case nn.Linear() | OutputProjection():
                total += 2 * part.weight.numel()
            case nn.RNNBase():
                total += 2 * sum(weight.numel() for weight in part.parameters() if weight.dim() == 2)
            case BidirectionalLMHead():  # each token meets its projection twice
                total += 2 * part.output.weight.numel()
            case SourceAttention():
                total += part.flops(length)
            case MultiHeadAttention():
                total += part.flops(length)
    return total


class FlopCounter:
    """Counts a network's parts once, and then any batch quickly."""

    def __init__(self, network: Network, *, exclude: nn.Module | None = None) -> None:
        """`exclude`: a part of the network that is not used."""
        attentions = [(name, part) for name, part in network.named_modules() if isinstance(part, MultiHeadAttention)]
        cross = [part for _, part in attentions if isinstance(part, CrossAttention)]
        encoder = dict(network.named_children()).get("encoder") if network.encodes else None
        reading = _matrices(encoder.modules()) if encoder is not None else 0
        looking = [part for part in network.modules() if isinstance(part, SourceAttention)]
        keys = [key for part in looking if isinstance(key := getattr(part.score, "key", None), nn.Linear)]
        on_memory = _matrices([*(part.key_value for part in cross), *keys])
        self._per_source = reading + on_memory
        unused = _matrices(exclude.modules()) if exclude is not None else 0
        self._per_target = _matrices(network.modules()) - reading - on_memory - unused
        self._reading = [part for name, part in attentions if encoder is not None and name.startswith("encoder.")]
        self._crossing = cross
        self._looking = looking
        self._writing = [part for _, part in attentions if part not in self._reading and part not in cross]

    def training_flops(self, targets: Tensor, sources: Tensor | None = None) -> float:
        """Forward and backward for sentences of these lengths (B,)."""
        written, targets = float(targets.sum()), targets.double()
        flops = written * self._per_target + written * _attention(self._writing, _mean(targets, targets))
        if sources is not None:
            read, sources = float(sources.sum()), sources.double()
            flops += read * self._per_source + read * _attention(self._reading, _mean(sources, sources))
            met = _mean(sources, targets)
            flops += written * _attention(self._crossing, met)
            flops += written * sum(part.flops(met) for part in self._looking)
        return 3 * flops


def _matrices(parts: Iterable[nn.Module]) -> int:
    """Two for each entry of each matrix that a token's vector meets."""
    kinds = (
        nn.Linear | OutputProjection | nn.RNNBase | BidirectionalLMHead
    )  # the last uses its projection, counted already, again
    weights = [weight for part in parts if isinstance(part, kinds) for weight in part.parameters()]
    return sum(2 * weight.numel() for weight in weights if weight.dim() == 2)


def _attention(attentions: Iterable[MultiHeadAttention], keys: int) -> int:
    return sum(part.flops(keys) for part in attentions)


def _mean(keys: Tensor, weights: Tensor) -> int:
    """How many keys a query meets on average, where each sentence has as many queries as its weight."""
    return int(torch.round((keys * weights).sum() / weights.sum()))
