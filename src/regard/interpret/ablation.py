"""Decoding again with something changed inside: heads or sub-layers off, or attention that is told where to look.

A change is a hook on a tap, so that the real search runs with the real network, less what was changed. It shows what
attention weights cannot: what the output would have been without.

B rows · H heads · T queries
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from regard.config.errors import did_you_mean
from regard.errors import InputError
from regard.interpret.hooks import Seen, hooked
from regard.interpret.matrices import DIRECTIONS
from regard.interpret.points import Point
from regard.interpret.recurrence import pass_by, passed_by
from regard.interpret.told import To, Told, check_to, read_to, show_to

if TYPE_CHECKING:
    from regard.interpret.trace import Trace

SHOWN = 120  # characters of a change that a sentence repeats: one with many weights is long
_WRITTEN = re.compile(r"(?P<place>[a-z_0-9.]+?)(?:\[(?P<head>\d{1,6})\])?(?:=(?P<to>.+))?")


@dataclass(frozen=True)
class Change:
    """What to change: a head, all heads of an attention, a sub-layer, or all sub-layers of a layer.

    Without `to` it is off: what it would have added is zero, and a recurrent layer is passed by. With it, the weights
    of its attention are replaced: `even` shares them evenly among the keys that may be looked at, a number puts all on
    one key, and a tuple has a weight for each key.
    """

    stack: str  # encoder, decoder
    layer: int | None  # None: of a recurrent decoder's attention, which is not in a layer
    part: str | None = None  # attention, cross_attention, feed_forward; forwards, backwards; None: all of them
    head: int | None = None
    to: To | None = None

    @classmethod
    def parse(cls, written: str) -> "Change":
        """The change that is written so: `decoder.1.cross_attention[2]`, `encoder.0`, `decoder.0.attention[1]=even`.

        >>> Change.parse("decoder.1.cross_attention[2]")
        Change(stack='decoder', layer=1, part='cross_attention', head=2, to=None)
        >>> Change.parse("decoder.1.cross_attention[2]=0.5,0.25,0.25").to
        (0.5, 0.25, 0.25)
        """
        match = _WRITTEN.fullmatch(written)
        to = None if match is None or match["to"] is None else read_to(match["to"])
        if match is None or (match["to"] is not None and to is None):
            raise InputError(
                f"{_shortened(written)!r} names nothing to change; write it like decoder.1.cross_attention[2], "
                "decoder.1.feed_forward or encoder.0, with =even, =KEY or a weight for each key, as in =0.5,0.5,0, "
                "behind it to replace weights instead."
            )
        stack, *rest = match["place"].split(".")
        layer = int(rest.pop(0)) if rest and rest[0].isdigit() else None
        head = None if match["head"] is None else int(match["head"])
        return cls(stack, layer, ".".join(rest) or None, head, to)

    def __str__(self) -> str:
        head = "" if self.head is None else f"[{self.head}]"
        return f"{self.place}{head}{'' if self.to is None else f'={show_to(self.to)}'}"

    @property
    def place(self) -> str:
        """Where it is, whichever the head."""
        return ".".join(str(one) for one in (self.stack, self.layer, self.part) if one is not None)


@contextmanager
def changed(trace: "Trace", changes: Sequence[Change]) -> Iterator[None]:
    """While it lasts, the network is changed for this thread, and for no other."""
    pairs = [pair for change in changes for pair in _hooks(trace, change)]
    with hooked(pairs):
        yield


def _hooks(trace: "Trace", change: Change) -> list[tuple[nn.Module, Seen]]:
    points, place = trace.points, change.place
    parts = _parts(points)
    if change.part is None and change.to is None and change.head is None and change.layer is not None:
        found = [name for name in parts if name.startswith(f"{place}.")]
        passed = passed_by(trace.subject.network, change.stack, change.layer)
        if passed:
            return [(layer, pass_by) for layer in passed]
    else:
        found = [place] if place in parts else []
    if not found:
        raise InputError(
            f"There is no {place} that could be changed{did_you_mean(place, parts)}; there are {', '.join(parts)}."
        )
    if change.to is not None:
        return _told(trace, change, change.to)
    if change.head is None:
        return [(point.module, _off) for name in found for point in parts[name]]
    outputs = points.get(f"{place}.head_outputs")
    if outputs is None:
        raise InputError(f"{place}: has no heads of its own; leave the head out to switch all of it off.")
    _check_head(trace, outputs, change)
    return [(outputs.module, _without(change.head))]


def _parts(points: dict[str, Point]) -> dict[str, list[Point]]:
    """What can be switched off, each with the points that hold what it adds, or remembers."""
    found: dict[str, list[Point]] = {}
    for point in points.values():
        walks = point.layer is not None and point.part in DIRECTIONS
        if point.point in (("cell", "hidden") if walks else ("added", "context")):
            place = point.name.removesuffix(f".{point.point}").removesuffix("_residual")
            found.setdefault(place, []).append(point)
    return found


def _told(trace: "Trace", change: Change, to: To) -> list[tuple[nn.Module, Seen]]:
    told = Told(to, change.head)
    weights, masked = _weights(trace, change, to), trace.points.get(f"{change.place}.masked")
    return [*([] if masked is None else [(masked.module, told.note)]), (weights.module, told.replace)]


def _weights(trace: "Trace", change: Change, to: To) -> Point:
    weights = trace.points.get(f"{change.place}.weights")
    if weights is None:
        raise InputError(f"{change.place}: has no attention weights to replace; switch it off instead.")
    _check_head(trace, weights, change)
    check_to(_shortened(str(change)), to, trace.recording(weights).size(-1))
    return weights


def _check_head(trace: "Trace", point: Point, change: Change) -> None:
    heads = len(trace.recording(point))
    if change.head is not None and change.head >= heads:
        raise InputError(f"{change}: there is no head {change.head}; the heads are 0 to {heads - 1}.")


def _shortened(written: str) -> str:
    return written if len(written) <= SHOWN else f"{written[: SHOWN - 1]}…"


def _off(_given: Tensor, output: Tensor) -> Tensor:
    return torch.zeros_like(output)


def _without(head: int) -> Seen:
    def see(_given: Tensor, output: Tensor) -> Tensor:  # (B, H, T, E)
        output = output.clone()
        output[:, head] = 0
        return output

    return see
