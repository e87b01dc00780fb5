"""All heads of a network beside each other: how focused each is, and what it costs the output to switch it off.

The two need not go together, which is the point: a head may look sharply at a word and change nothing, or look
everywhere and be needed.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from torch import Tensor

from regard.look.ablation import Change, changed
from regard.look.predicted import OUTPUT, Predicted

if TYPE_CHECKING:
    from regard.look.trace import Trace


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
    for point in [point for point in trace.points.values() if point.point == "weights"]:
        for number, weights in enumerate(trace.whole(point.name)):
            entropy = float(-(weights * weights.clamp(min=1e-30).log()).sum(-1).mean())
            one = Head(point.stack, point.layer, point.part, number, entropy)
            yield one if about is None else _priced(trace, one, about)


def _priced(trace: "Trace", one: Head, about: Predicted) -> Head:
    """A head with what it costs to switch it off."""
    with changed(trace, [one.change]):
        logits = trace.recording.again().logits()
    cost = trace.log_probability - float(about.log_probabilities(logits).sum())
    return replace(one, cost=cost, other=None if about.kind == OUTPUT else _other(trace, about, logits))


def _other(trace: "Trace", about: Predicted, logits: Tensor) -> str | None:
    """What is told differently: the label, or the tokens whose tag or guess is another."""
    told, before = (about.distributions(one).argmax(-1).tolist() for one in (logits, trace.recording.logits()))
    names = about.names(told, trace)
    moved = [n for n, (new, old) in enumerate(zip(told, before, strict=True)) if new != old]
    return "  ".join(" ".join(filter(None, (about.at[n], names[n]))) for n in moved) or None
