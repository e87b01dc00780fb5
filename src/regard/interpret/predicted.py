"""What a network predicts, prediction by prediction, and which of it a trace is about.

A decoder predicts each token that follows. An encoder's head predicts a label of the text, a tag for each token, or
tokens: what [MASK] hides, and where nothing is hidden what stands there; in both directions, where two read. A trace is
about the output that was written; of an encoder, about what it takes for most probable, or what it was given.

N predictions · V what there is to choose from: the vocabulary, or labels
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.interpret.matrices import DIRECTIONS
from regard.interpret.readings import Reading, Readings

if TYPE_CHECKING:
    from regard.interpret.trace import Trace

OUTPUT = "output"


@dataclass(frozen=True)
class Predicted:
    """Some rows of the logits, and in each the choice that the trace is about."""

    kind: str  # output, classes, tags, tokens
    rows: list[int]
    ids: list[int]
    at: list[str | None]  # the token that it is about, perhaps with a direction; None: the text, or what is written
    labels: list[str] | None  # names of the choices; None: they are tokens
    directions: list[str] = field(default_factory=list)  # of each prediction, where two directions read

    def distributions(self, logits: Tensor) -> Tensor:
        """The log-probabilities (N, V) of all choices."""
        return logits[self.rows].log_softmax(-1)

    def log_probabilities(self, logits: Tensor) -> Tensor:
        """The log-probabilities (N,) of the choices that the trace is about."""
        return self.distributions(logits).gather(1, torch.tensor(self.ids, device=logits.device)[:, None])[:, 0]

    def names(self, ids: Sequence[int], trace: "Trace") -> list[str]:
        """What choices are called."""
        return trace.subject.target.ids_to_tokens(ids) if self.labels is None else [self.labels[n] for n in ids]

    def text(self, ids: Sequence[int], trace: "Trace") -> str:
        """Choices as they are read; where two directions read, those of each by themselves."""
        if self.labels is not None:
            return " ".join(self.names(ids, trace))
        if not self.directions:
            return trace.subject.target.decode(ids)
        apart = {way: [id_ for id_, its in zip(ids, self.directions, strict=True) if its == way] for way in DIRECTIONS}
        return "; ".join(f"{way}: {trace.subject.target.decode(some)}" for way, some in apart.items())


def predicted(trace: "Trace") -> Predicted | None:
    """What the network of a trace predicts; None where it predicts nothing."""
    written = trace.written
    if written.read is not None:
        count = len(written.follows)
        return Predicted(OUTPUT, list(range(count)), written.follows, [None] * count, None)
    if trace.readings is None:
        return None
    found = _asked(trace, trace.readings)
    labels = None if trace.readings.kind == "tokens" else trace.labels("label")
    ids = written.told or [_chosen(trace, one) for one in found]
    at = [" ".join(filter(None, (one.token, one.direction))) or None for one in found]
    directions = [one.direction for one in found if one.direction is not None]
    return Predicted(trace.readings.kind, [_row(one) for one in found], ids, at, labels, directions)


def _asked(trace: "Trace", told: Readings) -> list[Reading]:
    """The readings that tell something of the text; start and end have labels too, and nobody asks for them."""
    if told.kind == "classes":
        return told.found
    if told.found[0].direction is not None:
        return sorted(told.found, key=lambda one: one.direction != "forwards")
    within = told.found[1:-1]
    return [one for one in within if _hidden(trace, one)] or within


def _chosen(trace: "Trace", one: Reading) -> int:
    """What is most probable; the token itself, where it was seen."""
    if one.probability is None or _hidden(trace, one):
        return one.best.id
    return (trace.written.source or [])[one.place or 0]


def _hidden(trace: "Trace", one: Reading) -> bool:
    return one.token is not None and (trace.written.source or [])[one.place or 0] == trace.subject.config.tokens.mask


def _row(one: Reading) -> int:
    """Where its prediction is: a token is guessed at the one before it, and at the one after it."""
    match one.place, one.direction:
        case None, _:
            return 0
        case place, "forwards":
            return 2 * (place - 1)
        case place, "backwards":
            return 2 * (place + 1) + 1
        case place, _:
            return place
