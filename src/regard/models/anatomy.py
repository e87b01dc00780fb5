"""The parts of a network, counted: parameters, floating-point operations per token, memory for training.

FLOPs count a multiplication and an addition as two, for matrix products only, as is the custom. A sentence of n tokens
is read by each stack, and for an encoder-decoder "per token" means one source token and one target token.
"""

from dataclasses import asdict, dataclass
from typing import Any

from torch import nn

from regard.models.network import Network
from regard.nn import DensePooling, FirstPooling, MeanPooling, Output, Stack
from regard.nn.bidirectional_stack import BidirectionalStack
from regard.nn.multihead import MultiHeadAttention
from regard.nn.readout import TextReadout
from regard.nn.recurrent_stack import RecurrentStack
from regard.nn.source_attention import SourceAttention
from regard.nn.two_way_readout import TwoWayReadout

BYTES = 4  # of a float32
ONCE = MeanPooling | FirstPooling | DensePooling | TextReadout  # for all tokens of a text


@dataclass(frozen=True)
class Part:
    """One kind of part, with all its copies."""

    name: str
    copies: int
    parameters: int  # of all copies; 0 where they are shared with a part above
    flops: int  # of all copies, per token, forward


@dataclass(frozen=True)
class Anatomy:
    """The parts of a network in the order in which a sentence meets them, and what the whole costs."""

    parts: list[Part]
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
        return {"weights": weights, "gradients": weights, "optimiser": 2 * weights}

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
    >>> from regard.models.assembly import sketch
    >>> anatomy(sketch(load_config("paper-base").model), length=32).parameters
    63045632
    """
    counted: set[int] = set()  # parameters seen: a shared matrix is counted where it is met first
    parts: list[Part] = []
    for name, module in network.named_children():
        rows = _rows(module)
        for what, copies in rows:
            parameters = sum(_new_parameters(copy, counted) for copy in copies)
            per_token = not isinstance(module, ONCE)
            flops = sum(_flops(copy, length) for copy in copies) if per_token else 0
            parts.append(Part(f"{name} {what}".strip(), len(copies), parameters, flops))
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
        ("normalisation", [*norms, *final]),
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
            case nn.Linear() | Output():
                total += 2 * part.weight.numel()
            case nn.RNNBase():
                total += 2 * sum(weight.numel() for weight in part.parameters() if weight.dim() == 2)
            case TwoWayReadout():  # each token meets its projection twice
                total += 2 * part.output.weight.numel()
            case SourceAttention():
                total += part.flops(length)
            case MultiHeadAttention():
                total += part.flops(length)
    return total
