"""Numbers by their address: of a point, a head, a step, a learned matrix, or a part of any, in pieces of bounded size.

Rows are those of the last axis but one, columns of the last; what has a name, such as a token, brings it along.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.config.errors import did_you_mean
from regard.errors import InputError
from regard.interpret.address import Address
from regard.interpret.matrices import matrices_of
from regard.interpret.numbers import Numbers, Span, spans
from regard.interpret.points import Point

if TYPE_CHECKING:
    from regard.interpret.trace import Trace


def numbers_at(trace: "Trace", at: Address, rows: Span | None, columns: Span | None, most: int) -> Numbers:
    """The numbers of a point; at a step, its row, and the keys and values that it could look at."""
    point = trace.point(at.point)
    values, axes = _at_step(trace, trace.recording(point), point, at), point.axes
    if at.head is not None:
        values, axes = _head(values, axes, at), axes[1:]
    return _part(trace, str(at), point.what, axes, values, rows, columns, most, at.step)


def weights_at(trace: "Trace", at: Address, rows: Span | None, columns: Span | None, most: int) -> Numbers:
    """The numbers of a learned matrix, laid so that x · W reads as it is written."""
    known = matrices_of(trace.subject.network)
    if at.point not in known:
        raise InputError(
            f"There is no matrix {at.point!r}{did_you_mean(at.point, known)}; the outline lists all of them."
        )
    values, axes = known[at.point].take().detach(), known[at.point].axes
    if at.head is not None:
        values, axes = _head(values, axes, at), axes[1:]
    return _part(trace, str(at), "learned", axes, values, rows, columns, most)


def _at_step(trace: "Trace", values: Tensor, point: Point, at: Address) -> Tensor:
    if at.step is None:
        return values
    count = len(trace.read)
    if not any(axis.startswith("target") for axis in point.axes) and point.stack != "decoder":
        raise InputError(f"{at}: the encoder reads the source once, before the first step; leave the step out.")
    if at.step >= count:
        raise InputError(f"{at}: there is no step {at.step}; the steps are 0 to {count - 1}.")
    for number, axis in enumerate(point.axes):
        if axis == "target":
            values = values.narrow(number, at.step, 1)
        elif axis == "target_key":
            values = values.narrow(number, 0, at.step + 1)
    return values


def _part(
    trace: "Trace",
    address: str,
    what: str,
    axes: tuple[str, ...],
    values: Tensor,
    rows: Span | None,
    columns: Span | None,
    most: int,
    step: int | None = None,
) -> Numbers:
    shape = tuple(values.shape)
    parts = spans(address, axes, shape, rows, columns, most)
    piece = values[tuple(slice(*span) for span in parts)]
    labels = tuple(_labels(trace, axis, span, step) for axis, span in zip(axes, parts, strict=True))
    return Numbers(address, what, axes, shape, parts, labels, _as_array(piece))


def _labels(trace: "Trace", axis: str, span: Span, step: int | None) -> list[str] | None:
    start, stop = span
    if axis == "vocabulary":
        return trace.subject.target.ids_to_tokens(range(start, stop))
    if axis == "target" and step is not None:
        start, stop = step, step + 1
    labels = trace.labels(axis)
    return None if labels is None else labels[start:stop]


def _as_array(piece: Tensor) -> NDArray[np.floating[Any]]:
    """Numbers that numpy knows: it has none of 16 bits with the range of 32."""
    found = piece.detach().cpu()
    return found.float().numpy() if found.dtype == torch.bfloat16 else found.numpy()


def _head(values: Tensor, axes: tuple[str, ...], at: Address) -> Tensor:
    if axes[0] != "head":
        raise InputError(f"{at}: has no heads; its axes are {', '.join(axes)}.")
    if at.head is None or at.head >= len(values):
        raise InputError(f"{at}: there is no head {at.head}; the heads are 0 to {len(values) - 1}.")
    return values[at.head]
