"""What an encoder's head tells of a text: its label, a tag for each token, or which token could stand at each place.

Probabilities are the network's own, as everywhere in a trace: also of tokens that are not text, which `regard fill`
rules out. Where two directions read, a token is guessed twice: from all that is before it, and from all that is after.

S tokens · L labels · V vocabulary
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from regard.config import EncoderConfig
from regard.interpret.matrices import DIRECTIONS
from regard.interpret.steps import TOP, Candidate

if TYPE_CHECKING:
    from regard.interpret.trace import Trace

Told = list[Candidate]  # labels, or tokens of the vocabulary, the most probable first


@dataclass(frozen=True)
class Reading:
    """What is told of one token, or of the whole text."""

    place: int | None  # of the token in the source; None: the text
    token: str | None
    direction: str | None  # forwards, backwards; None: all of the text was seen
    probability: float | None  # of the token that stands there, where tokens are guessed
    candidates: Told

    @property
    def best(self) -> Candidate:
        """The most probable."""
        return self.candidates[0]


@dataclass(frozen=True)
class Readings:
    """All that a head tells; `kind` is what it is for: classes, tags or tokens."""

    kind: str
    found: list[Reading]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"kind": self.kind, "readings": [asdict(reading) for reading in self.found]}


def readings(trace: "Trace") -> Readings | None:
    """What the head of a trace's network tells; None where it has none."""
    model = trace.subject.config.model
    if not isinstance(model, EncoderConfig) or model.head.kind == "none":
        return None
    if model.head.kind == "classes":
        row = trace.whole("head.probabilities")  # (L,)
        return Readings("classes", [Reading(None, None, None, None, _best(trace, row, "label", len(row)))])
    if "head.probabilities" not in trace.points:
        return Readings("tokens", list(_both_ways(trace)))
    axis = trace.points["head.probabilities"].axes[-1]
    return Readings(model.head.kind, list(_at_each(trace, axis)))


def _at_each(trace: "Trace", axis: str) -> Iterator[Reading]:
    tokens, ids = trace.labels("source") or [], trace.written.source or []
    for place, row in enumerate(trace.whole("head.probabilities")):  # (S, V) or (S, L)
        there = float(row[ids[place]]) if axis == "vocabulary" else None
        yield Reading(place, tokens[place], None, there, _best(trace, row, axis))


def _both_ways(trace: "Trace") -> Iterator[Reading]:
    """A token is guessed at the one before it, and at the one after it; the first and the last only once."""
    tokens, ids = trace.labels("source") or [], trace.written.source or []
    rows = {part: trace.whole(f"head.{part}.probabilities") for part in DIRECTIONS}  # (S, V) each
    for place, token in enumerate(tokens):
        for part, seen in zip(DIRECTIONS, (place - 1, place + 1), strict=True):
            if 0 <= seen < len(tokens):
                row = rows[part][seen]
                yield Reading(place, token, part, float(row[ids[place]]), _best(trace, row, "vocabulary"))


def _best(trace: "Trace", row: Tensor, axis: str, most: int = TOP) -> Told:
    top = row.topk(min(most, len(row)))
    ids = top.indices.tolist()
    labels = trace.labels(axis) or []
    names = trace.subject.target.ids_to_tokens(ids) if axis == "vocabulary" else [labels[n] for n in ids]
    return [Candidate(*one) for one in zip(ids, names, top.values.tolist(), strict=True)]
