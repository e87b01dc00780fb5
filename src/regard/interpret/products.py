"""One cell of a matrix product as its multiply-add list: what a learner checks by hand.

Each product is named by the point that holds its result: q is x · W_q, scores are q · kᵀ, the logits are states · W.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from regard.errors import InputError
from regard.interpret.address import Address
from regard.interpret.matrices import matrices_of

if TYPE_CHECKING:
    from regard.interpret.trace import Trace


@dataclass(frozen=True)
class Product:
    """left · right + bias = sum; `value` is what stands in the trace, which positions may have changed."""

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
        """For JSON."""
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


def product(trace: "Trace", at: Address, row: int, column: int) -> Product:
    """The terms of one cell of a point; a step is not needed, for a row is one."""
    result = trace.whole(at.point)
    point = trace.points[at.point]
    if point.heads:
        if at.head is None or at.head >= len(result):
            raise InputError(f"{at}: say which head, 0 to {len(result) - 1}, as in {at.point}[0].")
        result = result[at.head]
    result = result if result.dim() > 1 else result[None]  # what is told of a whole text is one row
    factors = _factors(trace, at)
    rows, columns = result.shape
    if not (0 <= row < rows and 0 <= column < columns):
        raise InputError(f"{at}: has {rows} rows and {columns} columns, counted from 0; there is no {row}, {column}.")
    x, w = factors.x[row], factors.w[:, column]
    bias = None if factors.bias is None else float(factors.bias[column])
    terms = list(zip(x.tolist(), w.tolist(), strict=True))
    total = float(x @ w) + (bias or 0.0)
    return Product(
        str(at),
        row,
        column,
        factors.left,
        factors.right,
        factors.labels,
        terms,
        bias,
        total,
        float(result[row, column]),
    )


def _factors(trace: "Trace", at: Address) -> _Factors:
    point = trace.points[at.point]
    before = at.point.removesuffix(f".{point.point}")  # decoder.0.attention
    sublayer = before.removesuffix("_residual")
    match point.part, point.point:
        case (("attention" | "cross_attention"), ("q" | "k" | "v") as letter) if point.layer is not None:
            left = f"{before}.input"
            if point.part == "cross_attention" and letter != "q":
                left = "encoder.states"
            return _projection(trace, left, before, letter, at.head)
        case (("attention" | "cross_attention"), "scores") if point.axes[-1] != "mixture" and point.layer is not None:
            q, k = trace.whole(f"{before}.q")[at.head], trace.whole(f"{before}.k")[at.head]
            return _Factors(f"{before}.q[{at.head}]", f"{before}.k[{at.head}]ᵀ", q, k.mT)
        case (("attention" | "cross_attention"), "head_outputs") if (
            trace.points[f"{before}.weights"].axes[-1] != "mixture"
        ):
            weights, v = trace.whole(f"{before}.weights")[at.head], trace.whole(f"{before}.v")[at.head]
            labels = trace.labels(trace.points[f"{before}.weights"].axes[-1])
            return _Factors(f"{before}.weights[{at.head}]", f"{before}.v[{at.head}]", weights, v, labels=labels)
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
    raise InputError(f"{at}: is not one matrix product, which has a list of terms; {products} are.")


def _projection(trace: "Trace", left: str, where: str, suffix: str, head: int | None = None) -> _Factors:
    """x · W + b, by the names of x and W."""
    known = matrices_of(trace.subject.network)
    ending = f"_{suffix}" if suffix else ""
    weight, bias = known[f"{where}.W{ending}"], known.get(f"{where}.b{ending}")
    of_head: Sequence[Tensor | None] = [None if one is None else one.take().detach() for one in (weight, bias)]
    if head is not None:
        of_head = [None if one is None else one[head] for one in of_head]
    w, b = of_head
    assert w is not None
    x = trace.whole(left)
    x = x if x.dim() > 1 else x[None]
    return _Factors(left, f"{weight.name}{'' if head is None else f'[{head}]'}", x, w, b)
