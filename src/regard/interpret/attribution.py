"""How much each part of a network contributes to one output: gradient norms of modules, and costs of attention heads.

The loss of the gradients is the mean of −log p over the decoded or forced output; for an encoder, over the labels, tags
or tokens that its head predicts, or that the user named. For a head, the entropy of its weights and the cost of
switching it off need not agree: a head with low entropy may have no effect on the output, and one with high entropy may
be needed.
"""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

import torch
from pydantic import JsonValue
from torch import Tensor, nn

from regard.errors import InputError
from regard.interpret.forward_pass import ForwardPass
from regard.interpret.interventions import Intervention, apply_interventions
from regard.interpret.predictions import OUTPUT, Predictions, predictions_of

# --- gradient norms ---------------------------------------------------------------------------------------------------


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

    def as_dict(self) -> dict[str, JsonValue]:
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


# --- head costs -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HeadCost:
    """One attention head."""

    stack: str
    layer: int | None
    part: str
    head: int
    entropy: float  # of its weights, mean over queries, in nats; 0 if each query attends to a single token
    cost: float | None = None  # by how much log p(output) falls without it; None if nothing is predicted
    prediction_without: str | None = None  # what an encoder's head predicts without it, if that differs

    def as_dict(self) -> dict[str, JsonValue]:
        """Return the name and all fields, for JSON."""
        return {"name": str(self.intervention), **asdict(self)}

    @property
    def intervention(self) -> Intervention:
        """The intervention that switches it off."""
        return Intervention(self.stack, self.layer, self.part, None if self.layer is None else self.head)


def head_costs(trace: ForwardPass) -> list[HeadCost]:
    """Return every head in the order of the network; each takes one forward pass."""
    return list(_head_costs(trace))


def _head_costs(trace: ForwardPass) -> Iterator[HeadCost]:
    predictions = predictions_of(trace)
    logits = None if predictions is None else trace.recording.logits()
    for point in [point for point in trace.points.values() if point.point == "weights"]:
        for number, weights in enumerate(trace.activation(point.name)):
            entropy = float(-(weights * weights.clamp(min=1e-30).log()).sum(-1).mean())
            head = HeadCost(point.stack, point.layer, point.part, number, entropy)
            yield head if predictions is None or logits is None else _with_cost(trace, head, predictions, logits)


def _with_cost(trace: ForwardPass, head: HeadCost, predictions: Predictions, logits: Tensor) -> HeadCost:
    """Return the head with the cost of switching it off; `logits` are those of the unchanged network."""
    with apply_interventions(trace, [head.intervention]):
        without = trace.recording.fresh().logits()
    cost = float((predictions.log_probabilities(logits) - predictions.log_probabilities(without)).sum())
    changed = None if predictions.kind == OUTPUT else _changed_predictions(predictions, logits, without)
    return replace(head, cost=cost, prediction_without=changed)


def _changed_predictions(predictions: Predictions, logits: Tensor, without: Tensor) -> str | None:
    """The new label, or the tokens whose tag or predicted token changed."""
    old, new = (predictions.distributions(x).argmax(-1).tolist() for x in (logits, without))
    names = predictions.names(new)
    changed = [n for n in range(len(new)) if new[n] != old[n]]
    return "  ".join(" ".join(filter(None, (predictions.source_tokens[n], names[n]))) for n in changed) or None
