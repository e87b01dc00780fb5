"""One element of a matrix product as its list of multiplied terms, to check a number by hand.

A product is addressed by the point that holds its result: q is x · W_q, scores are q · kᵀ, logits are states · W.
"""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from regard.errors import InputError
from regard.interpret.addresses import Address
from regard.interpret.forward_pass import ForwardPass


@dataclass(frozen=True)
class ProductTerms:
    """left · right + bias = sum; `value` is the activation, which positions may have changed afterwards."""

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

    def as_dict(self) -> dict[str, Any]:
        """Return all fields, for JSON."""
        return {
            "address": self.address,
            "row": self.row,
            "column": self.column,
            "left": self.left,
            "right": self.right,
            "labels": self.labels,
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
