"""An attention kernel with a sink: each head has a learned logit besides those of the keys, whose weight goes nowhere.

    weight(i, j) = exp(score(i, j)) / (exp(s_h) + Σ over k of exp(score(i, k)))

With softmax, the weights of a head sum to one even if no token is relevant, and trained heads put the rest on the first
token (Xiao et al. 2024). Here the sink takes it. The sinks of gpt-oss are learned in the same way.

B batch · H heads · T queries · S keys · D width of a query or key · E width of a value
"""

import math
from collections.abc import Callable
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from regard.config import AttentionConfig, TransformerConfig
from regard.errors import ConfigError
from regard.nn import AttentionKernel, FullAttention
from regard.nn.attention import Mix
from regard.nn.functional import grouped_matmul
from regard.nn.layout import Layout


class SinkAttention(FullAttention):
    """Full attention with a learned sink per head; it has the taps of full attention, so that traces show it."""

    def __init__(self, heads: int, scale: float, dropout: float = 0.0) -> None:
        super().__init__(scale, dropout)
        self.sink = nn.Parameter(torch.zeros(heads))

    def forward(
        self,
        q: Tensor,  # (B, H, T, D)
        k: Tensor,  # (B, H or fewer, S, D)
        v: Tensor,  # (B, H or fewer, S, E)
        layout: Layout,
        bias: Tensor | None = None,
        mix: Mix | None = None,
    ) -> Tensor:
        """Return the outputs of the heads (B, H, T, E)."""
        scores = self.scores(grouped_matmul(q, k.mT))  # (B, H, T, S)
        scaled = self.scaled(scores * self.scale if bias is None else scores * self.scale + bias)
        allowed = layout.mask.allowed
        masked = self.masked(scaled if allowed is None else scaled.masked_fill(~allowed, -math.inf))
        sink = self.sink.to(q.dtype)[:, None, None].expand(*masked.shape[:-1], 1)
        weights = self.weights(torch.cat([masked, sink], -1).softmax(-1)[..., :-1])  # rows sum to less than one
        weights = nn.functional.dropout(weights, self.dropout, self.training)
        out = grouped_matmul(weights, v)
        return out if mix is None else out + mix(weights)


class SinkAttentionConfig(AttentionConfig):
    """Settings of the kernel; it has none of its own."""

    kind: Literal["sink"] = "sink"
    builder: ClassVar[str] = "regard_plugin_example.attention:build"


def build(config: SinkAttentionConfig, model: TransformerConfig, *, encoder: bool) -> Callable[[], AttentionKernel]:
    """Return a function that makes the kernel of one layer, each with its own sinks."""
    if model.attention_soft_cap is not None:
        raise ConfigError("model.attention = 'sink' does not cap scores; leave out model.attention_soft_cap.")
    scale = 1 / math.sqrt(model.key_width or model.head_width) if model.scale_scores else 1.0
    return lambda: SinkAttention(model.heads, scale, model.attention_dropout)
