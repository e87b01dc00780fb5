"""A position scheme: each head subtracts a learned multiple of log(1 + distance) from its scores (Chi et al. 2022).

    score(i, j) − softplus(r_h) · log(1 + |i − j|)

B batch · H heads · T queries · S keys · D head width
"""

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from regard.config import PositionsConfig, TransformerConfig
from regard.nn import Positions
from regard.nn.layout import Layout


class LogDistancePositions(Positions):
    """Logarithmic distance penalty with one learned slope per head."""

    biases = True

    def __init__(self, heads: int = 0) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.zeros(heads)) if heads else None

    def for_layer(self, heads: int, key_width: int, value_width: int, scale: float) -> Positions:
        """Return the positions of one self-attention, with its own slopes."""
        return LogDistancePositions(heads)

    def bias(self, q: Tensor, layout: Layout) -> Tensor:
        """Return the bias (B, H, T, S) of the scaled scores."""
        assert self.slope is not None
        slope = nn.functional.softplus(self.slope).to(q.dtype)[:, None, None]  # (H, 1, 1)
        return -slope * layout.distance.abs().to(q.dtype).log1p()


class LogDistancePositionsConfig(PositionsConfig):
    """Settings of the scheme; it has none of its own."""

    kind: Literal["log-distance"] = "log-distance"
    extrapolates: ClassVar[bool] = True
    uses_distances: ClassVar[bool] = True
    builder: ClassVar[str] = "regard_plugin_example.positions:build"


def build(config: LogDistancePositionsConfig, model: TransformerConfig, *, encoder: bool) -> Positions:
    """Return the positions of one stack."""
    return LogDistancePositions()
