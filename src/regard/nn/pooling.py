"""One vector for a whole text, from the vectors of its tokens. B batch · S tokens · C width"""

import torch
from torch import Tensor, nn


class MeanPooling(nn.Module):
    """The mean over the real tokens."""

    def forward(self, states: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is None:
            return states.mean(1)
        weight = mask[..., None].to(states.dtype)  # (B, S, 1)
        return (states * weight).sum(1) / weight.sum(1).clamp(min=1)


class FirstPooling(nn.Module):
    """The first real token, where an encoder such as BERT gathers the meaning of the whole."""

    def forward(self, states: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is None:
            return states[:, 0]
        return states[torch.arange(len(states), device=states.device), mask.int().argmax(1)]


class DensePooling(FirstPooling):
    """The first real token through a dense layer and tanh (BERT's pooler)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)

    def forward(self, states: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.dense(super().forward(states, mask)).tanh()
