"""A module that is unknown to `interpret` appears in traces through its own taps and declarations."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from family import FAMILY, TOLERANCE
from regard.interpret import Intervention, Trace, look
from regard.nn.taps import (
    ExposedModule,
    Matrix,
    MatrixProduct,
    Point,
    Tap,
    linear_matrices,
    points_of,
    tap_point,
    under,
)
from traces import TEXT, make_traced_model

GATE = "encoder.0.feed_forward.gate"


class ToyGatedLayer(nn.Module):
    """Feed-forward layer with a gate; it declares nothing but its tap."""

    def __init__(self, feed_forward: nn.Module, width: int) -> None:
        super().__init__()
        self.feed_forward = feed_forward
        self.projection = nn.Linear(width, width).double()
        self.gate = Tap("token", "unit", description="σ(x · W + b): gate of the feed-forward layer")

    def forward(self, x: Tensor) -> Tensor:
        gated: Tensor = self.gate(self.projection(x).sigmoid()) * self.feed_forward(x)
        return gated


class ToyLinearLayer(ExposedModule):
    """Feed-forward layer without a hidden layer; it declares the factors of its output."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.projection = nn.Linear(width, width).double()
        self.input = Tap("token", "unit", description="x")
        self.projected = Tap("token", "unit", description="x · W_p + b_p")

    def forward(self, x: Tensor) -> Tensor:
        projected: Tensor = self.projected(self.projection(self.input(x)))
        return projected

    def points(self) -> Iterator[Point]:
        yield tap_point("input", self.input)
        yield tap_point("projected", self.projected, MatrixProduct("input", "W_p", "b_p"))

    def matrices(self) -> Iterator[Matrix]:
        return linear_matrices(self.projection, "p")


def trace_with(feed_forward: type[ToyGatedLayer] | type[ToyLinearLayer]) -> Trace:
    model = make_traced_model(FAMILY["encoder-decoder"])
    block = model.network.get_submodule("encoder.layers.0")
    width = model.config.model.width
    torch.manual_seed(1)
    if feed_forward is ToyGatedLayer:
        block.feed_forward = ToyGatedLayer(block.get_submodule("feed_forward"), width)
    else:
        block.feed_forward = ToyLinearLayer(width)
    return look(model, TEXT, target="w6 w8")


def test_tap_of_an_unknown_module_is_a_point() -> None:
    trace = trace_with(ToyGatedLayer)
    point = trace.points[GATE]
    assert (point.axes, point.description) == (("source", "unit"), "σ(x · W + b): gate of the feed-forward layer")
    assert (point.stack, point.layer, point.part, point.point) == ("encoder", 0, "feed_forward", "gate")
    fields = next(fields for fields in trace.outline()["points"] if fields["name"] == GATE)
    assert fields["axes"] == ["source", "unit"]
    assert trace.tensor(f"{GATE}", rows=(1, 2)).labels[0] == ["w9"]


def test_activation_and_matrices_of_an_unknown_module_agree() -> None:
    trace = trace_with(ToyGatedLayer)
    names = {matrix["name"] for matrix in trace.outline()["matrices"]}
    assert {"encoder.0.feed_forward.projection.W", "encoder.0.feed_forward.projection.b"} <= names
    weight, bias = (
        torch.from_numpy(trace.weight(f"encoder.0.feed_forward.projection.{name}").values) for name in ("W", "b")
    )
    x = trace.activation("encoder.0.attention_residual.normed")
    torch.testing.assert_close(trace.activation(GATE), (x @ weight + bias).sigmoid(), atol=TOLERANCE, rtol=0)


def test_declared_product_has_terms() -> None:
    trace = trace_with(ToyLinearLayer)
    product = trace.product("encoder.0.feed_forward.projected", 2, 3)
    assert (product.left, product.right) == ("encoder.0.feed_forward.input", "encoder.0.feed_forward.W_p")
    assert product.bias is not None
    total = sum(x * w for x, w in product.terms) + product.bias
    assert abs(total - product.value) < TOLERANCE


def test_unknown_module_can_be_switched_off() -> None:
    trace = trace_with(ToyGatedLayer)
    result = trace.intervene(Intervention.parse("encoder.0.feed_forward"))
    assert result.cost != 0
    assert "encoder.0.feed_forward" in trace.as_html()


def test_points_are_named_relative_to_the_module() -> None:
    names = [point.name for point in under("layer", points_of(ToyGatedLayer(nn.Identity(), 4)))]
    assert names == ["layer.gate"]
