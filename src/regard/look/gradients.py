"""How strongly each part of a network is pulled: the norm of the gradient of −log p(output), part by part."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from regard.errors import InputError

if TYPE_CHECKING:
    from regard.look.trace import Trace


@dataclass(frozen=True)
class PartGradient:
    """One part: the norm of its gradient, and that over the norm of its parameters."""

    part: str
    parameters: int
    norm: float
    relative: float


@dataclass(frozen=True)
class Gradients:
    """Of the mean loss of the steps; a matrix that several parts share is counted where it is met first."""

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
    """The gradient of the mean of −log p over the steps of a trace; the network's own gradients are not touched."""
    written, network = trace.written, trace.subject.network
    if written.read is None:
        raise InputError("This network predicts no tokens, so its output has no loss, and no gradient.")
    device = next(network.parameters()).device
    parts = dict(_parts(network))
    wanted = [parameter for parameters in parts.values() for parameter in parameters]
    with torch.enable_grad():
        memory = None
        if written.source is not None:
            source = torch.tensor([written.source], device=device)
            memory = network.encode(source, facts=trace.recording.facts or None)
        hidden = network.decode(torch.tensor([written.read], device=device), memory)
        logits = network.logits(hidden)[0].float()
        loss = nn.functional.cross_entropy(logits, torch.tensor(written.follows, device=device))
        found = iter(torch.autograd.grad(loss, wanted, allow_unused=True))
    rows = []
    for part, parameters in parts.items():
        pulled = [gradient for gradient in (next(found) for _ in parameters) if gradient is not None]
        norm, size = _norm(pulled), _norm(parameters)
        rows.append(PartGradient(part, sum(p.numel() for p in parameters), norm, norm / size if size else 0.0))
    return Gradients(float(loss.detach()), rows)


def _parts(network: nn.Module) -> Iterator[tuple[str, list[Tensor]]]:
    """Parameters by part: each sub-layer with its norm, the embeddings, the output."""
    seen: set[int] = set()
    found: dict[str, list[Tensor]] = {}
    for name, parameter in network.named_parameters(remove_duplicate=False):
        if id(parameter) in seen or not parameter.requires_grad:
            continue
        seen.add(id(parameter))
        stack, *rest = name.split(".")
        if rest[0] == "layers":
            part = f"{stack}.{rest[1]}.{rest[2].removesuffix('_residual')}"
        else:
            part = f"{stack}.{rest[0]}" if len(rest) > 1 or stack != "output" else stack
        found.setdefault(part.replace(".kernel", ""), []).append(parameter)
    yield from found.items()


def _norm(tensors: list[Tensor]) -> float:
    return math.sqrt(sum(float(tensor.detach().float().square().sum()) for tensor in tensors))
