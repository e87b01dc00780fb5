"""What one output depends on: source words, modules and attention heads.

Words: source and target words are aligned by the cross-attention head that best agrees with erasure. Each source token
is left out in turn, and the loss in log-probability of each target token is its cost (`erasure`). The agreement of a
head is the mean, over target tokens, of the cosine between its weights and the costs; negative costs count as zero, and
the end of the source is left out of both. The weights of the head with the highest agreement are summed over the tokens
of a source word and averaged over the tokens of a target word. Attention weights alone do not show what the output
depends on, so the costs are part of the result.

Modules: the norms of their gradients. The loss is the mean of −log p over the decoded or forced output; for an encoder,
over the labels, tags or tokens that its head predicts, or that the user named.

Heads: the entropy of a head's weights and the cost of switching it off need not agree: a head with low entropy may have
no effect on the output, and one with high entropy may be needed.

T target tokens · S source tokens
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
from regard.interpret.tokens import WordSpan

HEAD_SELECTION = "the head whose weights agree best, by mean cosine, with the cost of leaving out each source token"
MAX_BATCH_TOKENS = 4096  # of source and target, in one batch of erasure


@dataclass(frozen=True)
class HeadAgreement:
    """Agreement between the weights of a head and the costs of erasure, from 0 to 1."""

    point: str
    head: int
    agreement: float


@dataclass(frozen=True)
class Alignment:
    """The words of both sides, with attention weights and erasure costs for each pair."""

    source: list[WordSpan]
    target: list[WordSpan]
    chosen: HeadAgreement
    heads: list[HeadAgreement]
    weights: Tensor  # (target words, source words), of the chosen head
    costs: Tensor  # (target words, source words): sum over the tokens of both

    @property
    def pairs(self) -> list[tuple[int, int, float]]:
        """For each target word that is not special: its index, that of its source word, and the attention weight."""
        candidates = [n for n, word in enumerate(self.source) if not word.special]
        pairs = []
        for n, word in enumerate(self.target):
            if not word.special and candidates:
                best = max(candidates, key=lambda m: float(self.weights[n, m]))
                pairs.append((n, best, float(self.weights[n, best])))
        return pairs

    def as_dict(self) -> dict[str, JsonValue]:
        """Return the alignment with its method and pairs, for JSON."""
        return {
            "method": HEAD_SELECTION,
            "chosen": vars(self.chosen),
            "heads": [vars(head) for head in self.heads],
            "source": [word.text for word in self.source],
            "target": [word.text for word in self.target],
            "pairs": [{"target": t, "source": s, "weight": weight} for t, s, weight in self.pairs],
            "weights": self.weights.tolist(),
            "costs": self.costs.tolist(),
        }


def align(trace: ForwardPass) -> Alignment:
    """Align the source and the target of a trace; InputError if the network has no cross-attention."""
    names = [
        point.name for point in trace.points.values() if point.part == "cross_attention" and point.point == "weights"
    ]
    if not names or trace.source is None or trace.target is None:
        raise InputError("This network has no cross-attention, so there is nothing to align.")
    costs = erasure(trace)  # (T, S)
    heads = [
        HeadAgreement(name, head, _agreement(weights.float().cpu(), costs))
        for name in names
        for head, weights in enumerate(trace.activation(name))
    ]
    chosen = max(heads, key=lambda head: head.agreement)
    weights = trace.activation(chosen.point)[chosen.head].float().cpu()
    source, target = trace.source.words, trace.target.words
    return Alignment(
        source, target, chosen, heads, _merge_weights(weights, target, source), _sum_costs(costs, target, source)
    )


def _agreement(weights: Tensor, costs: Tensor) -> float:
    """Mean cosine between the rows of weights and costs (T, S), without the end of the source."""
    return float(torch.cosine_similarity(weights[:, :-1], costs[:, :-1].clamp(min=0), dim=-1).mean())


def _merge_weights(weights: Tensor, target: list[WordSpan], source: list[WordSpan]) -> Tensor:
    """Sum over the tokens of a source word, average over the tokens of a target word."""
    by_source = torch.stack([weights[:, list(word.tokens)].sum(1) for word in source], dim=1)
    return torch.stack([by_source[list(word.tokens)].mean(0) for word in target])


def _sum_costs(costs: Tensor, target: list[WordSpan], source: list[WordSpan]) -> Tensor:
    """Sum over the tokens of both words, since log-probabilities of a word's tokens add up."""
    by_source = torch.stack([costs[:, list(word.tokens)].sum(1) for word in source], dim=1)
    return torch.stack([by_source[list(word.tokens)].sum(0) for word in target])


@torch.no_grad()
def erasure(trace: ForwardPass) -> Tensor:
    """Return the cost (T, S) of leaving out each source token for each target token.

        cost[t, j] = log p(y_t | x, y_<t) − log p(y_t | x without x_j, y_<t)

    The end of the source is never left out, so its column is zero. In a parse, the other tokens keep their positions.
    """
    decoded, network = trace.decoded, trace.model.network
    if decoded.source_ids is None or decoded.input_ids is None:
        raise InputError("Erasure needs a source whose tokens can be left out, and this network does not translate.")
    device = next(network.parameters()).device
    source = torch.tensor([decoded.source_ids], device=device)
    target_input = torch.tensor([decoded.input_ids], device=device)
    features = trace.recording.features
    targets = torch.tensor(decoded.target_ids, device=device)[:, None]  # (T, 1)
    complete = trace.recording.logits().log_softmax(-1).gather(1, targets)[:, 0]  # (T,)
    length = source.size(1)
    costs = torch.zeros(len(complete), length)
    batch_size = max(1, MAX_BATCH_TOKENS // (length + target_input.size(1)))
    for erased in torch.arange(length - 1, device=device).split(batch_size):
        rows = len(erased)
        mask = torch.ones(rows, length, dtype=torch.bool, device=device)
        mask[torch.arange(rows), erased] = False
        batch_features = {name: values.expand(rows, -1) for name, values in features.items()}
        memory = network.encode(source.expand(rows, -1), mask, batch_features or None)
        logits = network.logits(network.decode(target_input.expand(rows, -1), memory)).float().log_softmax(-1)
        without = logits.gather(2, targets.expand(rows, -1, -1))[..., 0]  # (rows, T)
        costs[:, erased.cpu()] = (complete - without).mT.cpu()
    return costs


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
