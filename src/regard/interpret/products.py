"""One element of a matrix product as its list of multiplied terms, to check a number by hand.

A product is addressed by the point that holds its result: q is x · W_q, scores are q · kᵀ, logits are states · W.
"""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from regard.errors import InputError
from regard.interpret.addresses import Address
from regard.interpret.forward_pass import ForwardPass
from regard.interpret.matrices import matrices_of


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
    point = trace.points[address.point]
    before = address.point.removesuffix(f".{point.point}")  # decoder.0.attention
    sublayer = before.removesuffix("_residual")
    match point.part, point.point:
        case (("attention" | "cross_attention"), ("q" | "k" | "v") as letter) if point.layer is not None:
            left = f"{before}.input"
            if point.part == "cross_attention" and letter != "q":
                left = "encoder.states"
            return _projection(trace, left, before, letter, address.head)
        case (("attention" | "cross_attention"), "scores") if point.axes[-1] != "mixture" and point.layer is not None:
            q, k = trace.activation(f"{before}.q")[address.head], trace.activation(f"{before}.k")[address.head]
            return _Factors(f"{before}.q[{address.head}]", f"{before}.k[{address.head}]ᵀ", q, k.mT)
        case (("attention" | "cross_attention"), "head_outputs") if (
            trace.points[f"{before}.weights"].axes[-1] != "mixture"
        ):
            weights, v = (
                trace.activation(f"{before}.weights")[address.head],
                trace.activation(f"{before}.v")[address.head],
            )
            labels = trace.labels(trace.points[f"{before}.weights"].axes[-1])
            return _Factors(
                f"{before}.weights[{address.head}]", f"{before}.v[{address.head}]", weights, v, labels=labels
            )
        case (("attention_residual" | "cross_attention_residual"), "added"):
            return _projection(trace, f"{sublayer}.concatenation", sublayer, "o")
        case "feed_forward_residual", "added":
            return _projection(trace, f"{sublayer}.hidden", sublayer, "2")
        case "feed_forward", "inner":
            return _projection(trace, f"{before}.input", before, "1")
        case _, "logits" if point.stack == "head":
            left = f"{before}.hidden" if f"{before}.hidden" in trace.points else "encoder.states"
            return _projection(trace, "pooling.vector" if point.axes == ("label",) else left, "head", "")
        case "", "logits":
            return _projection(trace, "decoder.states", "output", "")
    products = "q, k, v, scores, head_outputs, added, inner and logits"
    raise InputError(f"{address}: is not a matrix product; {products} are.")


def _projection(trace: ForwardPass, left: str, where: str, suffix: str, head: int | None = None) -> _Factors:
    """x · W + b, by the names of x and W."""
    matrices = matrices_of(trace.model.network)
    ending = f"_{suffix}" if suffix else ""
    weight, bias = matrices[f"{where}.W{ending}"], matrices.get(f"{where}.b{ending}")
    w, b = weight.take().detach(), None if bias is None else bias.take().detach()
    if head is not None:
        w, b = w[head], None if b is None else b[head]
    x = trace.activation(left)
    x = x if x.dim() > 1 else x[None]
    return _Factors(left, f"{weight.name}{'' if head is None else f'[{head}]'}", x, w, b)
