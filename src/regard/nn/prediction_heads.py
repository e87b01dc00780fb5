"""What an encoder's vectors are read out for: a hidden token, or a label. C model width · V vocabulary · L labels"""

import torch
from torch import Tensor, nn

from regard.nn.embedding import OutputProjection
from regard.nn.functional import Dropout
from regard.nn.taps import Tap


class MaskedLMHead(nn.Module):
    """Which token is hidden: a dense layer and a norm of its own before the projection (Devlin et al. 2019)."""

    def __init__(self, dense: nn.Linear, activation: nn.Module, norm: nn.Module, output: OutputProjection) -> None:
        super().__init__()
        self.dense = dense
        self.activation = activation
        self.norm = norm
        self.output = output

    def forward(self, hidden: Tensor) -> Tensor:
        return self.output(self.norm(self.activation(self.dense(hidden))))  # (…, C) -> (…, V)


class TokenClassificationHead(nn.Module):
    """Which label fits a token."""

    def __init__(self, width: int, labels: int, dropout: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.dense = nn.Linear(width, labels)
        self.logits = Tap()

    def forward(self, hidden: Tensor) -> Tensor:
        return self.logits(self.dense(self.dropout(hidden)))  # (…, C) -> (…, L)


class TextClassificationHead(TokenClassificationHead):
    """Which label fits a whole text: the same, on one vector for all of its tokens."""


class BidirectionalLMHead(nn.Module):
    """One projection to the vocabulary, used by both directions."""

    def __init__(self, output: OutputProjection) -> None:
        super().__init__()
        self.output = output

    def forward(self, hidden: Tensor) -> Tensor:
        return self.output(hidden.unflatten(-1, (2, -1)))  # (…, C) -> (…, 2, C/2) -> (…, 2, V)


class MeanPooling(nn.Module):
    """The mean over the real tokens."""

    def forward(self, states: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is None:
            return states.mean(1)
        weight = mask[..., None].to(states.dtype)  # (B, S, 1)
        return (states * weight).sum(1) / weight.sum(1).clamp(min=1)


class FirstTokenPooling(nn.Module):
    """The first real token, where an encoder such as BERT gathers the meaning of the whole."""

    def forward(self, states: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is None:
            return states[:, 0]
        return states[torch.arange(len(states), device=states.device), mask.int().argmax(1)]


class DensePooling(FirstTokenPooling):
    """The first real token through a dense layer and tanh (BERT's pooler)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)

    def forward(self, states: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.dense(super().forward(states, mask)).tanh()
