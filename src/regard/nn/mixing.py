"""Layers mixed into one vector for each token (Peters et al. 2018, equation 1). B batch · T tokens · C width"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from regard.nn.taps import Tap


class LayerMixing(nn.Module):
    """γ Σ_j s_j h_j: a scale, and weights that a softmax makes of one learned scalar per layer.

    At first all layers weigh the same. Each task learns which of them it needs.
    """

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.scalars = nn.Parameter(torch.zeros(layers))
        self.scale = nn.Parameter(torch.ones(1))  # γ
        self.weights = Tap()  # s
        self.mixed = Tap()

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        weights = self.weights(self.scalars.softmax(0))
        mixed = weights[0] * layers[0]
        for weight, layer in zip(weights[1:], layers[1:], strict=True):
            mixed = mixed + weight * layer
        return self.mixed(self.scale * mixed)  # (B, T, C), as each layer
