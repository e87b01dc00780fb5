"""Entropy of every attention head, and the cost of switching it off.

The two need not agree: a head with low entropy may have no effect on the output, and one with high entropy may be
needed.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from torch import Tensor

from regard.interpret.forward_pass import ForwardPass
from regard.interpret.interventions import Intervention, apply_interventions
from regard.interpret.predictions import OUTPUT, Predictions, predictions_of


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

    def as_dict(self) -> dict[str, Any]:
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
