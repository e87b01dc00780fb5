"""What a change inside makes of the output: decoded again, changed, and the original output read again, changed."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from regard.errors import InputError
from regard.interpret.ablation import Change, changed
from regard.interpret.predicted import OUTPUT, Predicted
from regard.interpret.written import write

if TYPE_CHECKING:
    from regard.interpret.trace import Trace


@dataclass(frozen=True)
class StepChange:
    """One prediction of the original output, made again by the changed network."""

    token: str  # or label
    before: float  # its log-probability
    after: float
    divergence: float  # KL(before ‖ after) of the whole distribution, in nats
    at: str | None = None  # of an encoder: the token that it is told of; None: the text


@dataclass(frozen=True)
class Difference:
    """What a change made of the output, and of the probability of the output that was.

    The output of an encoder is what its head takes for most probable: a label, tags, or tokens, those of two directions
    apart.
    """

    kind: str  # output, classes, tags, tokens
    changes: list[str]
    before: str
    after: str
    tokens: list[str]  # or labels: of the new output, its end included
    first: int | None  # the first step at which the outputs differ; None: they do not
    steps: list[StepChange]

    @property
    def same(self) -> bool:
        """Whether the output is what it was."""
        return self.first is None

    @property
    def cost(self) -> float:
        """By how much the log-probability of the original output, or of what was given, fell."""
        return sum(step.before - step.after for step in self.steps)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "same": self.same, "cost": self.cost}


def compare(trace: "Trace", changes: Sequence[Change]) -> Difference:
    """Decode or read as the trace did, but changed; and price the trace's own output again, changed."""
    if not changes:
        raise InputError("Nothing is to be changed: name a head, a sub-layer or a layer, as in decoder.1.attention[0].")
    about = trace.predicted
    if about is None:
        raise InputError("This network writes nothing, so there is no output to compare; look at its vectors instead.")
    logits = trace.recording.logits()
    with changed(trace, changes):
        changed_logits = trace.recording.again().logits()
        new = _output(trace, about, changed_logits, again=True)
    old = _output(trace, about, logits)
    return Difference(
        about.kind,
        [str(change) for change in changes],
        about.text(old[trace.prompted :], trace),
        about.text(new[trace.prompted :], trace),
        about.names(new, trace),
        _first_difference(old, new),
        _steps(trace, about, logits, changed_logits),
    )


def _output(trace: "Trace", about: Predicted, logits: Tensor, *, again: bool = False) -> list[int]:
    """What is written, perhaps by decoding again; or what an encoder's head takes for most probable."""
    if about.kind != OUTPUT:
        told: list[int] = about.distributions(logits).argmax(-1).tolist()
        return told
    if again and trace.forced is None:
        return write(trace.subject, trace.text, trace.wish, None, trace.parse).follows
    return trace.written.follows


def _steps(trace: "Trace", about: Predicted, logits: Tensor, changed_logits: Tensor) -> list[StepChange]:
    before, after = about.distributions(logits), about.distributions(changed_logits)  # (N, V)
    divergence = (before.exp() * (before - after)).nansum(-1)
    rows = zip(
        about.names(about.ids, trace),
        about.log_probabilities(logits).tolist(),
        about.log_probabilities(changed_logits).tolist(),
        divergence.clamp(min=0).tolist(),
        about.at,
        strict=True,
    )
    return [StepChange(*row) for row in rows]


def _first_difference(before: Sequence[int], after: Sequence[int]) -> int | None:
    if list(before) == list(after):
        return None
    pairs = enumerate(zip(before, after, strict=False))
    return next((n for n, (old, new) in pairs if old != new), min(len(before), len(after)))
