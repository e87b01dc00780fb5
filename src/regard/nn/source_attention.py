"""Attention as recurrent translators have it: one look at the encoder's states for each step of the decoder.

    α_tj = softmax_j score(s_t, h_j),   c_t = Σ_j α_tj h_j,   out_t = tanh(W [c_t ; s_t])

with one of three scores: additive, vᵀ tanh(W s + U h) (Bahdanau et al. 2015), dot, sᵀ h, or general, sᵀ W h (Luong et
al. 2015). The state that looks is the one that has read the last token, and what it saw joins it on the way to the
prediction (Luong §3.1), so that all steps of a target look at once. Bahdanau et al. let the state before look, and feed
what it saw to the next step.

B sentences · K rows of the target for each · T target length · S source length · C width
"""

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.nn.layout import checked
from regard.nn.taps import Tap


class Score(nn.Module, ABC):
    """How well a state of the decoder and one of the encoder go together."""

    def keys(self, memory: Tensor) -> Tensor:
        """What the encoder's states (B, S, C) give to every score, computed once."""
        return memory

    @abstractmethod
    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """(B, T, C) and (B, S, C) -> (B, T, S)"""


class DotScore(Score):
    """sᵀ h"""

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        return queries @ keys.mT


class GeneralScore(Score):
    """sᵀ W h"""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.key = nn.Linear(width, width, bias=False)

    def keys(self, memory: Tensor) -> Tensor:
        return self.key(memory)

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        return queries @ keys.mT


class AdditiveScore(Score):
    """vᵀ tanh(W s + U h)"""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.v = nn.Parameter(torch.empty(width).uniform_(-1, 1) * math.sqrt(3 / width))

    def keys(self, memory: Tensor) -> Tensor:
        return self.key(memory)

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        together = self.query(queries)[:, :, None] + keys[:, None]  # (B, T, S, C)
        return F.linear(together.tanh(), self.v[None]).squeeze(-1)


class SourceAttention(nn.Module):
    """Every state of the decoder takes with it what it finds in the encoder's."""

    def __init__(self, width: int, score: Score) -> None:
        super().__init__()
        self.width = width
        self.score = score
        self.scores = Tap()
        self.weights = Tap()
        self.context = Tap()
        self.output = nn.Linear(2 * width, width, bias=False)

    def forward(self, states: Tensor, memory: Tensor, real: Tensor | None, keys: Tensor | None = None) -> Tensor:
        """states (B·K, T, C), memory (B, S, C), real (B, S) -> (B·K, T, C).

        Several rows of the target may look at one sentence of the memory: to the score, they are steps of one. `keys`
        are those of the memory, where they have been computed before. What passes the taps is (B, 1, K·T, S).
        """
        real = checked(real, memory.shape[:2])
        queries = states.unflatten(0, (len(memory), -1)).flatten(1, 2)  # (B, K·T, C)
        scores = self.scores(self.score(queries, self.score.keys(memory) if keys is None else keys)[:, None])
        if real is not None:
            scores = scores.masked_fill(~real[:, None, None], -math.inf)
        weights = self.weights(scores.softmax(-1))  # (B, 1, K·T, S)
        context = self.context(weights[:, 0] @ memory).reshape(states.shape)
        return self.output(torch.cat([context, states], dim=-1)).tanh()

    def flops(self, keys: int) -> int:
        """Of one step's scores and its context, its matrices not counted."""
        return 2 * 2 * self.width * keys
