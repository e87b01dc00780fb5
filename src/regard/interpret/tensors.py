"""Tensors of a trace by address: slices of bounded size, and elements of matrix products as lists of their terms.

An address is text that fits into a URL or a shell command:

decoder.1.cross_attention.weights          a point: stack, layer, part, point
decoder.1.cross_attention.weights[2]       one head of it
decoder.1.cross_attention.weights[2]@3     its value at decoding step 3
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from pydantic import JsonValue
from torch import Tensor

from regard.config.errors import did_you_mean
from regard.errors import InputError
from regard.interpret.forward_pass import ForwardPass
from regard.nn.taps import Point

MAX_NUMBERS = 65_536  # in one slice
Range = tuple[int, int]  # start and stop
_PATTERN = re.compile(r"(?P<point>[a-z_0-9.]+?)(?:\[(?P<head>\d{1,6})\])?(?:@(?P<step>\d{1,6}))?")


@dataclass(frozen=True)
class Address:
    """A point by name, with an optional head and an optional decoding step, both counted from 0."""

    point: str
    head: int | None = None
    step: int | None = None

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Parse the text form of an address.

        >>> Address.parse("decoder.1.cross_attention.weights[2]@3")
        Address(point='decoder.1.cross_attention.weights', head=2, step=3)
        """
        match = _PATTERN.fullmatch(text)
        if match is None:
            raise InputError(
                f"{text!r} is not an address; an address looks like decoder.1.cross_attention.weights[2]@3: "
                "a point, then optionally a head in brackets, then optionally a step after @."
            )
        head, step = (None if match[name] is None else int(match[name]) for name in ("head", "step"))
        return cls(match["point"], head, step)

    def __str__(self) -> str:
        head = "" if self.head is None else f"[{self.head}]"
        step = "" if self.step is None else f"@{self.step}"
        return f"{self.point}{head}{step}"


# --- slices -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TensorSlice:
    """A slice of a tensor. `shape` is that of the whole tensor, `slices` the range of each axis that is here."""

    address: str
    description: str
    axes: tuple[str, ...]
    shape: tuple[int, ...]
    slices: tuple[Range, ...]
    labels: tuple[list[str] | None, ...]  # of each axis, for the sliced range; None if it is only numbered
    values: NDArray[np.floating]

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the values, for `np.asarray`."""
        return np.array(self.values, dtype=dtype, copy=copy)

    def as_dict(self) -> dict[str, JsonValue]:
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
    kind = axes[0]
    if kind not in ("head", "expert"):
        raise InputError(f"{address}: has no heads; its axes are {', '.join(axes)}.")
    if address.head is None or address.head >= len(values):
        raise InputError(f"{address}: there is no {kind} {address.head}; the {kind}s are 0 to {len(values) - 1}.")
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


def _to_numpy(tensor: Tensor) -> NDArray[np.floating]:
    """Convert a tensor; NumPy has no bfloat16, so that becomes float32."""
    tensor = tensor.detach().cpu()
    return tensor.float().numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy()


# --- matrix products --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProductTerms:
    """One element of a matrix product, to check a number by hand: left · right + bias = sum.

    A product is addressed by the point that holds its result: q is x · W_q, scores are q · kᵀ, logits are states · W.
    `value` is the activation, which positions may have changed afterwards.
    """

    address: str
    row: int
    column: int
    left: str
    right: str
    labels: list[str] | None  # of the terms
    terms: list[tuple[float, float]]
    bias: float | None
    sum: float
    value: float

    def as_dict(self) -> dict[str, JsonValue]:
        """Return all fields, for JSON."""
        return {
            "address": self.address,
            "row": self.row,
            "column": self.column,
            "left": self.left,
            "right": self.right,
            "labels": None if self.labels is None else [*self.labels],
            "terms": [{"left": x, "right": w, "product": x * w} for x, w in self.terms],
            "bias": self.bias,
            "sum": self.sum,
            "value": self.value,
        }


@dataclass(frozen=True)
class _Factors:
    left: str
    right: str
    x: Tensor  # (rows, terms)
    w: Tensor  # (terms, columns)
    bias: Tensor | None = None  # (columns)
    labels: list[str] | None = None


def product_terms(trace: ForwardPass, address: Address, row: int, column: int) -> ProductTerms:
    """Return the terms of one element of a point; the step of an address is ignored, since a row is a step."""
    result = trace.activation(address.point)
    point = trace.points[address.point]
    if point.heads:
        if address.head is None or address.head >= len(result):
            raise InputError(f"{address}: name a head from 0 to {len(result) - 1}, as in {address.point}[0].")
        result = result[address.head]
    result = result if result.dim() > 1 else result[None]  # a prediction about the whole text is one row
    factors = _factors(trace, address)
    rows, columns = result.shape
    if not (0 <= row < rows and 0 <= column < columns):
        raise InputError(
            f"{address}: has {rows} rows and {columns} columns, counted from 0, so there is no element {row}, {column}."
        )
    x, w = factors.x[row], factors.w[:, column]
    bias = None if factors.bias is None else float(factors.bias[column])
    return ProductTerms(
        str(address),
        row,
        column,
        factors.left,
        factors.right,
        factors.labels,
        list(zip(x.tolist(), w.tolist(), strict=True)),
        bias,
        float(x @ w) + (bias or 0.0),
        float(result[row, column]),
    )


def _factors(trace: ForwardPass, address: Address) -> _Factors:
    """The factors that the point declares, for one head where they have heads."""
    product = trace.points[address.point].product
    if product is None:
        names = dict.fromkeys(point.point for point in trace.points.values() if point.product is not None)
        raise InputError(f"{address}: is not a matrix product; these points are: {', '.join(names)}.")
    left, x, axes = _factor(trace, product.left, address.head)
    right, w, _ = _factor(trace, product.right, address.head)
    x = x if x.dim() > 1 else x[None]  # the vector of a text
    bias = None if product.bias is None else _factor(trace, product.bias, address.head)[1]
    return _Factors(
        left,
        f"{right}ᵀ" if product.transposed else right,
        x,
        w.mT if product.transposed else w,
        bias,
        trace.labels(axes[-1]),
    )


def _factor(trace: ForwardPass, name: str, head: int | None) -> tuple[str, Tensor, tuple[str, ...]]:
    """Address, value and axes of a point or matrix, reduced to one head if it has heads."""
    if name in trace.points:
        value, axes = trace.activation(name), trace.points[name].axes
    else:
        matrix = trace.model.network.matrices()[name]
        value, axes = matrix.take().detach(), matrix.axes
    if axes[0] != "head" or head is None:
        return name, value, axes
    return f"{name}[{head}]", value[head], axes[1:]
