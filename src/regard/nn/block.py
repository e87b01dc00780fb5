"""One layer of a stack: sub-layers, each wrapped in a residual connection, dropout and normalisation (§3.1, §5.4)."""

from collections.abc import Callable

from torch import Tensor, nn

from regard.nn.cache import LayerCache
from regard.nn.dropout import Dropout
from regard.nn.layout import Layout
from regard.nn.multihead import CrossAttention, SelfAttention
from regard.nn.taps import Tap

Sublayer = Callable[[Tensor], Tensor]


class Residual(nn.Module):
    """The wrapping of a sub-layer. `connected=False` leaves the residual connection out."""

    def __init__(self, norm: nn.Module, dropout: float, connected: bool = True) -> None:
        super().__init__()
        self.norm = norm
        self.dropout = Dropout(dropout)
        self.connected = connected
        self.added = Tap()  # what the sub-layer gives
        self.sum = Tap()
        self.normed = Tap()

    def _add(self, x: Tensor, y: Tensor) -> Tensor:
        y = self.dropout(self.added(y))
        return self.sum(x + y if self.connected else y)

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        raise NotImplementedError


class PostNorm(Residual):
    """LayerNorm(x + Sublayer(x)): the paper's order."""

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        return self.normed(self.norm(self._add(x, sublayer(x))))


class PreNorm(Residual):
    """x + Sublayer(LayerNorm(x)): leaves a clean path through the sums, and trains without warm-up."""

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        return self._add(x, sublayer(self.normed(self.norm(x))))


class Block(nn.Module):
    """Self-attention, then cross-attention if there is a memory to look at, then feed-forward.

    An encoder's layer, a decoder's and a language model's differ only in what they are given.
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
        across: Layout | None = None,
        cache: LayerCache | None = None,
    ) -> Tensor:
        own, cross = (cache.own, cache.cross) if cache is not None else (None, None)
        x = self.attention_residual(x, lambda x: self.attention(x, layout, own))
        if self.cross_attention_residual is not None:
            attend = self.cross_attention
            x = self.cross_attention_residual(x, lambda x: attend(x, memory, across, cross))  # type: ignore[misc]
        if self.feed_forward_residual is not None:
            x = self.feed_forward_residual(x, self.feed_forward)
        return x

    @property
    def last_norm(self) -> nn.Module:
        """The norm of the last sub-layer."""
        return (self.feed_forward_residual or self.cross_attention_residual or self.attention_residual).norm
