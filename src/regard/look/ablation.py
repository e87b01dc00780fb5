"""Decoding again with something changed inside: heads or sub-layers off, or attention that is told where to look.

A change is a hook on a tap, so that the real search runs with the real network, less what was changed. It shows what
attention weights cannot: what the output would have been without.

B rows · H heads · T queries · S keys
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.config.complaint import nearest
from regard.errors import InputError
from regard.look.hooks import Seen, hooked
from regard.look.points import Point
from regard.look.recording import Recording
from regard.look.written import write

if TYPE_CHECKING:
    from regard.look.trace import Trace

_WRITTEN = re.compile(r"(?P<place>[a-z_0-9.]+?)(?:\[(?P<head>\d{1,6})\])?(?:=(?P<to>even|\d{1,6}))?")


@dataclass(frozen=True)
class Change:
    """What to change: a head, all heads of an attention, a sub-layer, or all sub-layers of a layer.

    Without `to` it is off: what it would have added is zero. With it, the weights of its attention are replaced: `even`
    shares them evenly among the keys that may be looked at, a number puts all on one key.
    """

    stack: str  # encoder, decoder
    layer: int | None  # None: of a recurrent decoder's attention, which is not in a layer
    part: str | None = None  # attention, cross_attention, feed_forward; None: all of them
    head: int | None = None
    to: str | int | None = None

    @classmethod
    def parse(cls, written: str) -> "Change":
        """The change that is written so: `decoder.1.cross_attention[2]`, `encoder.0`, `decoder.0.attention[1]=even`.

        >>> Change.parse("decoder.1.cross_attention[2]")
        Change(stack='decoder', layer=1, part='cross_attention', head=2, to=None)
        """
        match = _WRITTEN.fullmatch(written)
        if match is None:
            raise InputError(
                f"{written!r} names nothing to change; write it like decoder.1.cross_attention[2], "
                "decoder.1.feed_forward or encoder.0, with =even or =KEY behind it to replace weights instead."
            )
        stack, *rest = match["place"].split(".")
        layer = int(rest.pop(0)) if rest and rest[0].isdigit() else None
        to = match["to"]
        return cls(
            stack,
            layer,
            ".".join(rest) or None,
            None if match["head"] is None else int(match["head"]),
            int(to) if to is not None and to.isdigit() else to,
        )

    def __str__(self) -> str:
        place = ".".join(str(one) for one in (self.stack, self.layer, self.part) if one is not None)
        head = "" if self.head is None else f"[{self.head}]"
        return f"{place}{head}{'' if self.to is None else f'={self.to}'}"


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


@contextmanager
def changed(trace: "Trace", changes: Sequence[Change]) -> Iterator[None]:
    """While it lasts, the network is changed for this thread, and for no other."""
    pairs = [pair for change in changes for pair in _hooks(trace, change)]
    with hooked([(point.module, see) for point, see in pairs]):
        yield


def _hooks(trace: "Trace", change: Change) -> list[tuple[Point, Seen]]:
    points = trace.points
    place = ".".join(str(one) for one in (change.stack, change.layer, change.part) if one is not None)
    parts = _parts(points)
    if change.part is None and change.to is None and change.head is None:
        found = [name for name in parts if change.layer is not None and name.startswith(f"{place}.")]
    else:
        found = [place] if place in parts else []
    if not found:
        raise InputError(
            f"There is no {place} that could be changed{nearest(place, parts)}; there are {_listed(parts)}."
        )
    if change.to is not None:
        return [(_weights(trace, place, change), _looking(change))]
    if change.head is None:
        return [(parts[name], _off) for name in found]
    outputs = points.get(f"{place}.head_outputs")
    if outputs is None:
        raise InputError(f"{place}: has no heads of its own; leave the head out to switch all of it off.")
    _check_head(trace, outputs, change)
    return [(outputs, _without(change.head))]


def _parts(points: dict[str, Point]) -> dict[str, Point]:
    """What can be switched off, each with the point that holds what it adds."""
    found = {}
    for point in points.values():
        if point.point == "added":
            found[f"{point.stack}.{point.layer}.{point.part.removesuffix('_residual')}"] = point
        elif point.point == "context":
            found[f"{point.stack}.{point.part}"] = point
    return found


def _weights(trace: "Trace", place: str, change: Change) -> Point:
    weights = trace.points.get(f"{place}.weights")
    if weights is None:
        raise InputError(f"{place}: has no attention weights to replace; switch it off instead.")
    _check_head(trace, weights, change)
    return weights


def _check_head(trace: "Trace", point: Point, change: Change) -> None:
    heads = len(trace.recording(point))
    if change.head is not None and change.head >= heads:
        raise InputError(f"{change}: there is no head {change.head}; the heads are 0 to {heads - 1}.")


def _off(_given: Tensor, output: Tensor) -> Tensor:
    return torch.zeros_like(output)


def _without(head: int) -> Seen:
    def see(_given: Tensor, output: Tensor) -> Tensor:  # (B, H, T, E)
        output = output.clone()
        output[:, head] = 0
        return output

    return see


def _looking(change: Change) -> Seen:
    def see(_given: Tensor, weights: Tensor) -> Tensor:  # (B, H, T, S)
        heads = slice(None) if change.head is None else slice(change.head, change.head + 1)
        told = weights.clone()
        part = weights[:, heads]
        if change.to == "even":
            seen = (part > 0).to(part.dtype)  # softmax gives a masked key exactly nothing
            told[:, heads] = seen / seen.sum(-1, keepdim=True).clamp(min=1)
            return told
        key = int(change.to or 0)
        if key >= weights.size(-1):
            return weights  # not there yet: a decoder looks at what it has written so far
        told[:, heads] = 0
        told[:, heads, :, key] = 1
        return told

    return see


def _first_difference(before: Sequence[int], after: Sequence[int]) -> int | None:
    if list(before) == list(after):
        return None
    pairs = enumerate(zip(before, after, strict=False))
    return next((n for n, (old, new) in pairs if old != new), min(len(before), len(after)))


def _listed(parts: dict[str, Point]) -> str:
    return ", ".join(parts) if parts else "none in this network"
