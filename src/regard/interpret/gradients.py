"""How strongly each part of a network is pulled: the norm of the gradient of −log p(output), part by part.

The output is what was written or forced; of an encoder, the label, tags or tokens that its head tells, or was given.
"""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from regard.errors import InputError

if TYPE_CHECKING:
    from regard.interpret.trace import Trace


@dataclass(frozen=True)
class PartGradient:
    """One part: the norm of its gradient, and that over the norm of its parameters."""

    part: str
    parameters: int
    norm: float
    relative: float


@dataclass(frozen=True)
class Gradients:
    """Of the mean loss of all predictions; a matrix that several parts share is counted where it is met first."""

    loss: float
    parts: list[PartGradient]

    @property
    def norm(self) -> float:
        """Of all parts together."""
        return math.sqrt(sum(part.norm**2 for part in self.parts))

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"loss": self.loss, "norm": self.norm, "parts": [asdict(part) for part in self.parts]}


def gradients(trace: "Trace") -> Gradients:
    """The gradient of the mean of −log p over what a trace is about; the network's own gradients are not touched."""
    about = trace.predicted
    if about is None:
        raise InputError("This network predicts nothing, so it has no loss, and no gradient.")
    parts = dict(_parts(trace.subject.network))
    wanted = [parameter for parameters in parts.values() for parameter in parameters]
    with torch.enable_grad():
        loss = -about.log_probabilities(trace.recording.again().differentiable_logits()).mean()
        found = iter(torch.autograd.grad(loss, wanted, allow_unused=True))
    rows = []
    for part, parameters in parts.items():
        pulled = [gradient for gradient in (next(found) for _ in parameters) if gradient is not None]
        norm, size = _norm(pulled), _norm(parameters)
        rows.append(PartGradient(part, sum(p.numel() for p in parameters), norm, norm / size if size else 0.0))
    return Gradients(float(loss.detach()), rows)


def _parts(network: nn.Module) -> Iterator[tuple[str, list[Tensor]]]:
    """Parameters by part: each sub-layer with its norm, the embeddings, the output, the head."""
    seen: set[int] = set()
    found: dict[str, list[Tensor]] = {}
    for name, parameter in network.named_parameters(remove_duplicate=False):
        if id(parameter) in seen or not parameter.requires_grad:
            continue
        seen.add(id(parameter))
        found.setdefault(_part(name), []).append(parameter)
    yield from found.items()


def _part(name: str) -> str:
    """The part that a parameter is of, named as in addresses."""
    match name.split("."):
        case [stack, "layers", layer, "kernel", *_]:
            return f"{stack}.{layer}"
        case [stack, "layers", layer, part, *_]:
            return f"{stack}.{layer}.{part.removesuffix('_residual')}"
        case [stack, ("forwards" | "backwards") as direction, layer, *_]:
            return f"{stack}.{layer}.{direction}"
        case [("output" | "head" | "pooling") as part, *_]:
            return part
        case ["mixing", *_]:
            return "encoder.mixing"
        case [stack, part, *_]:
            return f"{stack}.{part}"
    return name


def _norm(tensors: list[Tensor]) -> float:
    return math.sqrt(sum(float(tensor.detach().float().square().sum()) for tensor in tensors))
