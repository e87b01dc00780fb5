"""All heads of a network beside each other: how focused each is, and what it costs the output to switch it off.

The two need not go together, which is the point: a head may look sharply at a word and change nothing, or look
everywhere and be needed.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch

from regard.look.ablation import Change, changed
from regard.look.recording import Recording

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
    cost: float | None  # by how much log p(output) falls without it; None where nothing is written

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
    for point in [point for point in trace.points.values() if point.point == "weights"]:
        for number, weights in enumerate(trace.whole(point.name)):
            entropy = float(-(weights * weights.clamp(min=1e-30).log()).sum(-1).mean())
            one = Head(point.stack, point.layer, point.part, number, entropy, None)
            yield Head(point.stack, point.layer, point.part, number, entropy, _cost(trace, one.change))


def _cost(trace: "Trace", change: Change) -> float | None:
    written = trace.written
    if written.read is None:
        return None
    with changed(trace, [change]):
        rows = Recording(trace.subject.network, written.source, written.read, written.facts).logits().log_softmax(-1)
    index = torch.tensor(written.follows, device=rows.device)[:, None]
    return trace.log_probability - float(rows.gather(1, index).sum())
