"""All heads of a network beside each other: how focused each is, and what it costs the output to switch it off.

The two need not go together, which is the point: a head may look sharply at a word and change nothing, or look
everywhere and be needed.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from torch import Tensor

from regard.interpret.ablation import Change, changed
from regard.interpret.predicted import OUTPUT, Predicted

if TYPE_CHECKING:
    from regard.interpret.trace import Trace


@dataclass(frozen=True)
class Head:
    """One head of one attention."""

    stack: str
    layer: int | None
    part: str
    head: int
    entropy: float  # the mean over queries of the entropy of its weights, in nats: 0 looks at one token
    cost: float | None = None  # by how much log p(output) falls without it; None where nothing is predicted
    other: str | None = None  # what an encoder's head tells without it, where that is something else

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"name": str(self.change), **asdict(self)}

    @property
    def change(self) -> Change:
        """What switches it off."""
        return Change(self.stack, self.layer, self.part, None if self.layer is None else self.head)


def heads(trace: "Trace") -> list[Head]:
    """Every head, in the order in which a sentence meets them; each costs one pass over the output."""
    return list(_heads(trace))


def _heads(trace: "Trace") -> Iterator[Head]:
    about = trace.predicted
    before = None if about is None else trace.recording.logits()
    for point in [point for point in trace.points.values() if point.point == "weights"]:
        for number, weights in enumerate(trace.whole(point.name)):
            entropy = float(-(weights * weights.clamp(min=1e-30).log()).sum(-1).mean())
            one = Head(point.stack, point.layer, point.part, number, entropy)
            yield one if about is None or before is None else _priced(trace, one, about, before)


def _priced(trace: "Trace", one: Head, about: Predicted, before: Tensor) -> Head:
    """A head with what it costs to switch it off; `before` are the logits with it."""
    with changed(trace, [one.change]):
        after = trace.recording.again().logits()
    cost = float((about.log_probabilities(before) - about.log_probabilities(after)).sum())
    return replace(one, cost=cost, other=None if about.kind == OUTPUT else _other(trace, about, before, after))


def _other(trace: "Trace", about: Predicted, before: Tensor, after: Tensor) -> str | None:
    """What is told differently: the label, or the tokens whose tag or guess is another."""
    old, new = (about.distributions(logits).argmax(-1).tolist() for logits in (before, after))
    names = about.names(new, trace)
    moved = [n for n in range(len(new)) if new[n] != old[n]]
    return "  ".join(" ".join(filter(None, (about.at[n], names[n]))) for n in moved) or None
