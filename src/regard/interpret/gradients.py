"""Gradient norm of each module for the loss of one output.

The loss is the mean of −log p over the decoded or forced output; for an encoder, over the labels, tags or tokens that
its head predicts, or that the user named.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import InputError
from regard.interpret.forward_pass import ForwardPass
from regard.interpret.predictions import predictions_of


@dataclass(frozen=True)
class ModuleGradient:
    """Gradient norm of one module, absolute and relative to the norm of its parameters."""

    module: str
    parameters: int
    grad_norm: float
    relative_grad_norm: float


@dataclass(frozen=True)
class GradientNorms:
    """The loss and the gradient norm of each module; shared parameters count for the first module that has them."""

    loss: float
    modules: list[ModuleGradient]

    @property
    def grad_norm(self) -> float:
        """Gradient norm of all modules together."""
        return math.sqrt(sum(module.grad_norm**2 for module in self.modules))

    def as_dict(self) -> dict[str, Any]:
        """Return all fields, for JSON."""
        return {
            "loss": self.loss,
            "grad_norm": self.grad_norm,
            "modules": [asdict(module) for module in self.modules],
        }


def gradient_norms(trace: ForwardPass) -> GradientNorms:
    """Compute the gradient norms of a trace's output; `Parameter.grad` is left unchanged."""
    predictions = predictions_of(trace)
    if predictions is None:
        raise InputError("This network predicts nothing, so it has no loss and no gradients.")
    modules = _parameters_by_module(trace.model.network)
    parameters = [parameter for group in modules.values() for parameter in group]
    with torch.enable_grad():
        loss = -predictions.log_probabilities(trace.recording.fresh().differentiable_logits()).mean()
        gradients = iter(torch.autograd.grad(loss, parameters, allow_unused=True))
    rows = []
    for name, group in modules.items():
        grad_norm = _norm([gradient for gradient in (next(gradients) for _ in group) if gradient is not None])
        weight_norm = _norm(group)
        relative = grad_norm / weight_norm if weight_norm else 0.0
        rows.append(ModuleGradient(name, sum(parameter.numel() for parameter in group), grad_norm, relative))
    return GradientNorms(float(loss.detach()), rows)


def _parameters_by_module(network: nn.Module) -> dict[str, list[Tensor]]:
    """Trainable parameters grouped by module: each sub-layer with its norm, embeddings, output, head."""
    seen: set[int] = set()
    groups: dict[str, list[Tensor]] = {}
    for name, parameter in network.named_parameters(remove_duplicate=False):
        if id(parameter) in seen or not parameter.requires_grad:
            continue
        seen.add(id(parameter))
        groups.setdefault(_module_address(name), []).append(parameter)
    return groups


def _module_address(name: str) -> str:
    """The address of the module that a parameter belongs to."""
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
