"""ALiBi (Press et al. 2022): attention with linear biases, which lower a score in proportion to the distance.

B batch · H heads · T queries · S keys · D head width
"""

import math
from typing import cast

from torch import Tensor

from regard.nn.layout import Layout
from regard.nn.positions import Positions


class AlibiPositions(Positions):
    """−slope · |distance| on each scaled score; every head has a slope of its own, and nothing is learned.

    The paper is about decoders, where all keys are before the query. In an encoder the bias is the same on both sides.
    """

    biases = True

    def __init__(self, heads: int = 0) -> None:
        super().__init__()
        self.slopes = alibi_slopes(heads)

    def for_layer(self, heads: int, key_width: int, value_width: int, scale: float) -> Positions:
        return AlibiPositions(heads)

    def bias(self, q: Tensor, layout: Layout) -> Tensor:
        key = f"alibi {q.dtype}"
        if key not in layout.memo:  # the same in all layers
            slope = q.new_tensor(self.slopes)[:, None, None]  # (H, 1, 1)
            layout.memo[key] = -slope * layout.distance.abs()  # (B, H, T, S)
        return cast(Tensor, layout.memo[key])


def alibi_slopes(heads: int) -> list[float]:
    """Return the slopes 2^(−8/H), 2^(−16/H), …, 2^(−8) for a power of two.

    Other numbers of heads take the slopes of the next lower power of two, then every other slope of the sequence that
    is twice as long, which lie between them.

    >>> alibi_slopes(8)
    [0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625]
    >>> [round(slope, 4) for slope in alibi_slopes(6)]
    [0.25, 0.0625, 0.0156, 0.0039, 0.5, 0.125]
    """
    if heads == 0:
        return []
    power = 2 ** int(math.log2(heads))
    return [*_geometric_slopes(power), *_geometric_slopes(2 * power)[0::2]][:heads]


def _geometric_slopes(heads: int) -> list[float]:
    return [2 ** (-8 * (head + 1) / heads) for head in range(heads)]
