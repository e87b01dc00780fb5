"""One layer of a Transformer: sub-layers, each with residual connection, dropout and normalization (§3.1, §5.4).

C model width · F hidden units
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from torch import Tensor, nn
from torch.nn import functional as F

from regard.nn.cache import LayerCache
from regard.nn.exposed import (
    ExposedModule,
    Matrix,
    MatrixProduct,
    Point,
    bias_name,
    linear_matrices,
    points_of,
    tap_point,
    under,
)
from regard.nn.functional import Dropout
from regard.nn.layout import Layout
from regard.nn.multihead import CrossAttention, SelfAttention
from regard.nn.taps import Tap

Sublayer = Callable[[Tensor], Tensor]


class _FeedForwardBase(ExposedModule):
    """What the feed-forward layers share: an inner projection, hidden units and an output projection."""

    inner: nn.Linear
    hidden: Tap
    output: nn.Linear

    @property
    def output_product(self) -> MatrixProduct:
        """The factors of what the layer returns."""
        return MatrixProduct("hidden", "W_2", bias_name(self.output, "2"))

    def points(self) -> Iterator[Point]:
        axes = ("token", "unit")
        product = MatrixProduct("input", "W_1", bias_name(self.inner, "1"))
        yield Point("input", axes, "x: input of the inner projection", self.inner, "input")
        yield Point("inner", axes, "x · W_1 + b_1, before the activation", self.inner, product=product)
        yield tap_point("hidden", self.hidden)

    def matrices(self) -> Iterator[Matrix]:
        yield from linear_matrices(self.inner, "1")
        yield from linear_matrices(self.output, "2")


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
    """SwiGLU(x) = (swish(x W) ⊙ x V) W_2, without biases (Shazeer 2020)."""

    def __init__(self, width: int, hidden: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.inner = nn.Linear(width, 2 * hidden, bias=False)  # W and V
        self.hidden = Tap("token", "unit", description="hidden units after the activation")
        self.dropout = Dropout(dropout)
        self.output = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, value = self.inner(x).chunk(2, dim=-1)  # (…, F) each
        return self.output(self.dropout(self.hidden(F.silu(gate) * value)))


class Residual(ExposedModule):
    """Residual connection, dropout and normalization around a sub-layer; `connected=False` drops the connection."""

    def __init__(self, norm: nn.Module, dropout: float, connected: bool = True) -> None:
        super().__init__()
        self.norm = norm
        self.dropout = Dropout(dropout)
        self.connected = connected
        self.added = Tap("token", "unit", description="output of the sub-layer")
        self.sum = Tap("token", "unit", description="x + Sublayer(x)" if connected else "Sublayer(x)")
        self.normed = Tap("token", "unit", description="output of the normalization")

    def _add(self, x: Tensor, y: Tensor) -> Tensor:
        y = self.dropout(self.added(y))
        return self.sum(x + y if self.connected else y)

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        raise NotImplementedError

    def points(self) -> Iterator[Point]:
        yield tap_point("added", self.added)
        yield tap_point("sum", self.sum)
        yield from points_of(self.norm)
        yield tap_point("normed", self.normed)


class PostNorm(Residual):
    """LayerNorm(x + Sublayer(x)): the paper's order."""

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        return self.normed(self.norm(self._add(x, sublayer(x))))


class PreNorm(Residual):
    """x + Sublayer(LayerNorm(x)): the residual stream is never normalized, and training needs no warm-up."""

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        return self._add(x, sublayer(self.normed(self.norm(x))))


class Block(ExposedModule):
    """Self-attention, then cross-attention if there is a memory, then feed-forward.

    Layers of encoders, decoders and language models differ only in the arguments.
    """

    def __init__(
        self,
        attention: SelfAttention,
        cross_attention: CrossAttention | None,
        feed_forward: nn.Module | None,
        residual: Callable[[], Residual],
    ) -> None:
        super().__init__()
        self.attention = attention
        self.attention_residual = residual()
        self.cross_attention = cross_attention
        self.cross_attention_residual = residual() if cross_attention is not None else None
        self.feed_forward = feed_forward
        self.feed_forward_residual = residual() if feed_forward is not None else None

    def forward(
        self,
        x: Tensor,
        layout: Layout,
        memory: Tensor | None = None,
        cross_layout: Layout | None = None,
        cache: LayerCache | None = None,
    ) -> Tensor:
        """x (…, C) -> (…, C); `memory` (…, C) and `cross_layout` are for cross-attention."""
        own, cross = (cache.own, cache.cross) if cache is not None else (None, None)
        x = self.attention_residual(x, lambda x: self.attention(x, layout, own))
        if self.cross_attention_residual is not None:
            attend = self.cross_attention
            x = self.cross_attention_residual(x, lambda x: attend(x, memory, cross_layout, cross))  # type: ignore[misc]
        if self.feed_forward_residual is not None:
            x = self.feed_forward_residual(x, self.feed_forward)
        return x

    @property
    def last_norm(self) -> nn.Module:
        """The norm of the last sub-layer."""
        return (self.feed_forward_residual or self.cross_attention_residual or self.attention_residual).norm

    def points(self) -> Iterator[Point]:
        products = {
            f"{name}_residual.added": product.under(name)
            for name, child in self.named_children()
            if isinstance(product := getattr(child, "output_product", None), MatrixProduct)
        }
        for name, child in self.named_children():
            for point in under(name, points_of(child)):
                yield replace(point, product=products[point.name]) if point.name in products else point
