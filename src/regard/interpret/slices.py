"""Read activations and learned matrices by address, in slices of bounded size with labels.

Rows are those of the last axis but one, columns those of the last.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.config.errors import did_you_mean
from regard.errors import InputError
from regard.interpret.addresses import Address
from regard.interpret.forward_pass import ForwardPass
from regard.nn.taps import Point

MAX_NUMBERS = 65_536  # in one slice
Range = tuple[int, int]  # start and stop


@dataclass(frozen=True)
class TensorSlice:
    """A slice of a tensor. `shape` is that of the whole tensor, `slices` the range of each axis that is here."""

    address: str
    description: str
    axes: tuple[str, ...]
    shape: tuple[int, ...]
    slices: tuple[Range, ...]
    labels: tuple[list[str] | None, ...]  # of each axis, for the sliced range; None if it is only numbered
    values: NDArray[np.floating[Any]]

    def as_dict(self) -> dict[str, Any]:
        """Return all fields, for JSON; −∞ (masked) becomes null, other non-finite numbers become text."""
        return {
            "address": self.address,
            "description": self.description,
            "axes": list(self.axes),
            "shape": list(self.shape),
            "slices": [list(span) for span in self.slices],
            "labels": list(self.labels),
            "values": json_numbers(self.values.tolist()),
        }


def json_numbers(value: Any) -> Any:
    """Replace non-finite numbers in nested lists: −∞ by None, NaN by "nan", ∞ by "inf".

    >>> json_numbers([1.5, -math.inf])
    [1.5, None]
    """
    if isinstance(value, list):
        return [json_numbers(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else None if value < 0 else "inf"
    return value


def activation_slice(
    trace: ForwardPass, address: Address, rows: Range | None, columns: Range | None, max_numbers: int = MAX_NUMBERS
) -> TensorSlice:
    """Return activations; at a step, the row of that step and the keys and values that it can attend to."""
    point = trace.point(address.point)
    values, axes = _select_step(trace, trace.recording(point), point, address), point.axes
    if address.head is not None:
        values, axes = _select_head(values, axes, address), axes[1:]
    return _slice(trace, str(address), point.description, axes, values, rows, columns, max_numbers, address.step)


def matrix_slice(
    trace: ForwardPass, address: Address, rows: Range | None, columns: Range | None, max_numbers: int = MAX_NUMBERS
) -> TensorSlice:
    """Return a learned matrix, laid out so that x · W is what the network computes."""
    matrices = trace.model.network.matrices()
    if address.point not in matrices:
        suggestion = did_you_mean(address.point, matrices)
        raise InputError(f"There is no matrix {address.point!r}{suggestion}; the outline lists all matrices.")
    values, axes = matrices[address.point].take().detach(), matrices[address.point].axes
    if address.head is not None:
        values, axes = _select_head(values, axes, address), axes[1:]
    return _slice(trace, str(address), "learned", axes, values, rows, columns, max_numbers)


def _select_step(trace: ForwardPass, values: Tensor, point: Point, address: Address) -> Tensor:
    if address.step is None:
        return values
    steps = len(trace.decoder_input)
    if not any(axis.startswith("target") for axis in point.axes) and point.stack != "decoder":
        raise InputError(f"{address}: the encoder runs once, before the first step; leave the step out.")
    if address.step >= steps:
        raise InputError(f"{address}: there is no step {address.step}; the steps are 0 to {steps - 1}.")
    for dim, axis in enumerate(point.axes):
        if axis == "target":
            values = values.narrow(dim, address.step, 1)
        elif axis == "target_key":
            values = values.narrow(dim, 0, address.step + 1)
    return values


def _select_head(values: Tensor, axes: tuple[str, ...], address: Address) -> Tensor:
    if axes[0] != "head":
        raise InputError(f"{address}: has no heads; its axes are {', '.join(axes)}.")
    if address.head is None or address.head >= len(values):
        raise InputError(f"{address}: there is no head {address.head}; the heads are 0 to {len(values) - 1}.")
    return values[address.head]


def _slice(
    trace: ForwardPass,
    address: str,
    description: str,
    axes: tuple[str, ...],
    values: Tensor,
    rows: Range | None,
    columns: Range | None,
    max_numbers: int,
    step: int | None = None,
) -> TensorSlice:
    shape = tuple(values.shape)
    ranges = _axis_ranges(address, axes, shape, rows, columns, max_numbers)
    part = values[tuple(slice(*span) for span in ranges)]
    labels = tuple(_axis_labels(trace, axis, span, step) for axis, span in zip(axes, ranges, strict=True))
    return TensorSlice(address, description, axes, shape, ranges, labels, _to_numpy(part))


def _axis_ranges(
    address: str,
    axes: Sequence[str],
    shape: Sequence[int],
    rows: Range | None,
    columns: Range | None,
    max_numbers: int,
) -> tuple[Range, ...]:
    """The range of each axis: all of it, or the requested rows and columns."""
    ranges = [(0, size) for size in shape]
    requested = {"columns": (len(shape) - 1, columns), "rows": (len(shape) - 2, rows)}
    if len(shape) == 1 and not axes[0].startswith(("unit", "vocabulary")):  # one number per token: rows
        requested = {"columns": (-1, columns), "rows": (0, rows)}
    for name, (axis, span) in requested.items():
        if span is None:
            continue
        if axis < 0:
            raise InputError(f"{address}: has no {name}; its axes are {', '.join(axes)}.")
        start, stop = span
        if not 0 <= start < stop <= shape[axis]:
            raise InputError(
                f"{address}: has {name} 0 to {shape[axis]}, which does not contain the range {start} to {stop}."
            )
        ranges[axis] = (start, stop)
    count = math.prod(stop - start for start, stop in ranges)
    if count > max_numbers:
        sizes = " × ".join(f"{stop - start}" for start, stop in ranges)
        raise InputError(
            f"{address}: has {sizes} = {count:,} numbers, more than the limit of {max_numbers:,}; "
            "request one head, one step, or fewer rows or columns."
        )
    return tuple(ranges)


def _axis_labels(trace: ForwardPass, axis: str, span: Range, step: int | None) -> list[str] | None:
    start, stop = span
    if axis == "vocabulary":
        return trace.model.target_tokenizer.ids_to_tokens(range(start, stop))
    if axis == "target" and step is not None:
        start, stop = step, step + 1
    labels = trace.labels(axis)
    return None if labels is None else labels[start:stop]


def _to_numpy(tensor: Tensor) -> NDArray[np.floating[Any]]:
    """Convert a tensor; NumPy has no bfloat16, so that becomes float32."""
    tensor = tensor.detach().cpu()
    return tensor.float().numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy()
