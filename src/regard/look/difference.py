"""What a change inside makes of the output: decoded again, changed, and the original output read again, changed."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch

from regard.errors import InputError
from regard.look.ablation import Change, changed
from regard.look.recording import Recording
from regard.look.written import write

if TYPE_CHECKING:
    from regard.look.trace import Trace


@dataclass(frozen=True)
class StepChange:
    """One step of the original output, read again by the changed network."""

    token: str
    before: float  # its log-probability
    after: float
    divergence: float  # KL(before ‖ after) of the whole distribution, in nats


@dataclass(frozen=True)
class Difference:
    """What a change made of the output, and of the probability of the output that was."""

    changes: list[str]
    before: str
    after: str
    tokens: list[str]  # of the new output, its end included
    first: int | None  # the first step at which the outputs differ; None: they do not
    steps: list[StepChange]

    @property
    def same(self) -> bool:
        """Whether the output is what it was."""
        return self.first is None

    @property
    def cost(self) -> float:
        """By how much the log-probability of the original output fell."""
        return sum(step.before - step.after for step in self.steps)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "same": self.same, "cost": self.cost}


def compare(trace: "Trace", changes: Sequence[Change]) -> Difference:
    """Decode as the trace did, but changed; and read the trace's own output again, changed."""
    if not changes:
        raise InputError("Nothing is to be changed: name a head, a sub-layer or a layer, as in decoder.1.attention[0].")
    written = trace.written
    if written.read is None:
        raise InputError("This network writes nothing, so there is no output to compare; look at its vectors instead.")
    before = trace.recording.logits().log_softmax(-1)
    with changed(trace, changes):
        again = written if trace.forced is not None else write(trace.subject, trace.text, trace.wish, None, trace.parse)
        after = Recording(trace.subject.network, written.source, written.read, written.facts).logits().log_softmax(-1)
    index = before.new_tensor(written.follows, dtype=torch.long)[:, None]
    divergence = (before.exp() * (before - after)).nansum(-1)
    pieces = trace.subject.target.pieces(written.follows)
    rows = zip(
        pieces,
        before.gather(1, index)[:, 0].tolist(),
        after.gather(1, index)[:, 0].tolist(),
        divergence.clamp(min=0).tolist(),
        strict=True,
    )
    return Difference(
        [str(change) for change in changes],
        trace.output,
        trace.subject.target.decode(again.follows[trace.prompted :]),
        trace.subject.target.pieces(again.follows),
        _first_difference(written.follows, again.follows),
        [StepChange(*row) for row in rows],
    )


def _first_difference(before: Sequence[int], after: Sequence[int]) -> int | None:
    if list(before) == list(after):
        return None
    pairs = enumerate(zip(before, after, strict=False))
    return next((n for n, (old, new) in pairs if old != new), min(len(before), len(after)))
