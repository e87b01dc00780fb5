"""Feed-forward layers (§3.3): two linear layers at every token with an activation between them, with or without gates.

C model width · F hidden units
"""

from collections.abc import Iterator

from torch import Tensor, nn
from torch.nn import functional as F

from regard.nn.functional import Dropout
from regard.nn.taps import ExposedModule, Matrix, MatrixProduct, Point, Tap, bias_name, linear_matrices, tap_point


class _FeedForwardBase(ExposedModule):
    """What the feed-forward layers share: an inner projection, hidden units and an output projection."""

    inner: nn.Linear
    hidden: Tap
    output: nn.Linear

    @property
    def output_product(self) -> MatrixProduct:
        """The factors of what the layer returns."""
        return MatrixProduct("hidden", "W_2", bias_name(self.output, "2"))

    @property
    def fused_projections(self) -> dict[str, list[int]]:
        """The linear layers that compute several projections at once, by name, with the width of each projection."""
        return {}

    def points(self) -> Iterator[Point]:
        axes = ("token", "unit")
        product = MatrixProduct("input", "W_1", bias_name(self.inner, "1"))
        yield Point("input", axes, "x: input of the inner projection", self.inner, "input")
        yield Point("inner", axes, "x · W_1 + b_1, before the activation", self.inner, product=product)
        yield tap_point("hidden", self.hidden)

    def matrices(self) -> Iterator[Matrix]:
        yield from linear_matrices(self.inner, "1")
        yield from linear_matrices(self.output, "2")


class SquaredReLU(nn.Module):
    """max(0, x)² (So et al. 2021)."""

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x).square()


class FeedForward(_FeedForwardBase):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2 at every token (§3.3), or another activation instead of max(0, ·)."""

    def __init__(self, width: int, hidden: int, activation: nn.Module | None = None, dropout: float = 0.0) -> None:
        super().__init__()
        self.inner = nn.Linear(width, hidden)
        self.activation = activation or nn.ReLU()
        self.hidden = Tap("token", "unit", description="hidden units after the activation")
        self.dropout = Dropout(dropout)
        self.output = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.hidden(self.activation(self.inner(x)))  # (…, F)
        return self.output(self.dropout(hidden))


class GatedFeedForward(_FeedForwardBase):
    """SwiGLU(x) = (swish(x W) ⊙ x V) W_2, or another activation of the gates, without biases (Shazeer 2020)."""

    def __init__(self, width: int, hidden: int, dropout: float = 0.0, activation: nn.Module | None = None) -> None:
        super().__init__()
        self.inner = nn.Linear(width, 2 * hidden, bias=False)  # W and V
        self.activation = activation or nn.SiLU()
        self.hidden = Tap("token", "unit", description="hidden units after the activation")
        self.dropout = Dropout(dropout)
        self.output = nn.Linear(hidden, width, bias=False)

    @property
    def fused_projections(self) -> dict[str, list[int]]:
        return {"inner": [self.output.in_features] * 2}

    def forward(self, x: Tensor) -> Tensor:
        gate, value = self.inner(x).chunk(2, dim=-1)  # (…, F) each
        return self.output(self.dropout(self.hidden(self.activation(gate) * value)))
