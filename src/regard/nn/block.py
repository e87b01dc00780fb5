"""One layer of a stack: sub-layers, each wrapped in a residual connection, dropout and normalisation (§3.1, §5.4)."""

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F

from regard.nn.cache import LayerCache
from regard.nn.functional import Dropout
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


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, or another activation in place of max(0, ·)."""

    def __init__(self, width: int, hidden: int, activation: nn.Module | None = None, dropout: float = 0.0) -> None:
        super().__init__()
        self.inner = nn.Linear(width, hidden)
        self.activation = activation or nn.ReLU()
        self.hidden = Tap()
        self.dropout = Dropout(dropout)
        self.output = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.hidden(self.activation(self.inner(x)))  # (…, F)
        return self.output(self.dropout(hidden))


class GatedFeedForward(nn.Module):
    """SwiGLU(x) = (swish(x W) ⊙ x V) W_2, without biases (Shazeer 2020)."""

    def __init__(self, width: int, hidden: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.inner = nn.Linear(width, 2 * hidden, bias=False)  # the gate, then what it lets through
        self.hidden = Tap()
        self.dropout = Dropout(dropout)
        self.output = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, value = self.inner(x).chunk(2, dim=-1)  # (…, F) each
        return self.output(self.dropout(self.hidden(F.silu(gate) * value)))
