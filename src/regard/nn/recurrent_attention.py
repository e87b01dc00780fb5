"""Attention as recurrent translators have it: a look at the encoder's states for each step of the decoder.

    α_tj = softmax_j score(s, h_j),   c_t = Σ_j α_tj h_j

with one of three scores: additive, vᵀ tanh(W s + U h) (Bahdanau et al. 2015), dot, sᵀ h, or general, sᵀ W h (Luong et
al. 2015). Which state s looks, and where what it saw goes, is the other half of the matter. Bahdanau et al. let the
state before the step look, and give c_t to the cell (`attending.py`); the readout sees both and the token,

    out_t = tanh(W [c_t ; s_t ; y_t]).

Luong et al. let the state after the step look, out_t = tanh(W [c_t ; s_t]) (§3.1), so that all steps look at once.

B sentences · K rows of the target for each · T target length · S source length · C width
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.nn.layout import check_mask
from regard.nn.recurrent import RecurrentCell, RecurrentLayer, RecurrentState
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
    """A look at the encoder's states, and the readout of what was seen and of the `others` beside it."""

    def __init__(self, width: int, score: Score, others: int = 1) -> None:
        super().__init__()
        self.width = width
        self.score = score
        self.scores = Tap()
        self.weights = Tap()
        self.context = Tap()
        self.output = nn.Linear((1 + others) * width, width, bias=False)

    def look(self, queries: Tensor, memory: Tensor, mask: Tensor | None, keys: Tensor) -> Tensor:
        """queries (B, T, C), memory and its keys (B, S, C), real (B, S) -> contexts (B, T, C).

        What passes the taps of scores and weights is (B, 1, T, S).
        """
        scores = self.scores(self.score(queries, keys)[:, None])
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None, None], -math.inf)
        weights = self.weights(scores.softmax(-1))
        return self.context(weights[:, 0] @ memory)

    def readout(self, context: Tensor, *others: Tensor) -> Tensor:
        """Contexts and what stands beside them, each (…, C) -> (…, C)."""
        return self.output(torch.cat([context, *others], dim=-1)).tanh()

    def forward(self, states: Tensor, memory: Tensor, mask: Tensor | None, keys: Tensor | None = None) -> Tensor:
        """All steps look at once, each after it was made: states (B·K, T, C), memory (B, S, C) -> (B·K, T, C).

        Several rows of the target may look at one sentence of the memory: to the score, they are steps of one. `keys`
        are those of the memory, where they have been computed before.
        """
        mask = check_mask(mask, memory.shape[:2])
        queries = states.unflatten(0, (len(memory), -1)).flatten(1, 2)  # (B, K·T, C)
        context = self.look(queries, memory, mask, self.score.keys(memory) if keys is None else keys)
        return self.readout(context.reshape(states.shape), states)

    def flops(self, keys: int) -> int:
        """Of one step's scores and its context, its matrices not counted."""
        return 2 * 2 * self.width * keys


@dataclass(frozen=True)
class EncodedSource:
    """What a decoder can look at, and how it looks."""

    attention: SourceAttention
    memory: Tensor  # (B, S, W)
    mask: Tensor | None  # (B, S)
    keys: Tensor  # (B, S, W): what the memory gives to every score

    def select(self, rows: Tensor) -> "EncodedSource":
        """The source of these sentences, in this order."""
        mask = None if self.mask is None else self.mask.index_select(0, rows)
        return EncodedSource(self.attention, self.memory.index_select(0, rows), mask, self.keys.index_select(0, rows))

    def seen(self, states: Tensor) -> Tensor:
        """What the states (B·K, W) find there: the contexts (B·K, W)."""
        queries = states.unflatten(0, (len(self.memory), -1))  # (B, K, W)
        return self.attention.look(queries, self.memory, self.mask, self.keys).flatten(0, 1)


class AttendingLayer(RecurrentLayer):
    """Walks along sequences with an eye on the source; the weights for tokens and contexts stand side by side."""

    def __init__(self, cell: type[RecurrentCell], inputs: int, width: int) -> None:
        super().__init__(cell, inputs + width, width)
        self.inputs = inputs

    def walk(
        self, x: Tensor, lengths: Tensor | None, before: RecurrentState | None, source: EncodedSource
    ) -> tuple[Tensor, Tensor, RecurrentState]:
        """x (R, L, I) -> the state of each step and what it saw (R, L, W), and the state (R, W) after the last step.

        As in `forward`, `lengths` tells where sequences end; what stands past an end means nothing.
        """
        x_weight, h_weight, x_bias, h_bias = self.weights()
        from_x = F.linear(x, x_weight[:, : self.inputs], x_bias).unbind(1)  # L times (R, G·W)
        c_weight, cell = x_weight[:, self.inputs :], self.cells[0]
        state = before or tuple(x.new_zeros(len(x), self.width) for _ in range(self.remembers))
        states, contexts = [state], []
        for from_token in from_x:
            context = source.seen(state[0])
            from_input = from_token + F.linear(context, c_weight)
            state = cell(from_input, F.linear(state[0], h_weight, h_bias), state)
            states.append(state)
            contexts.append(context)
        shown = torch.stack([state[0] for state in states[1:]], dim=1)
        if lengths is not None:  # each sequence's own end
            rows = torch.arange(len(x), device=x.device)
            state = tuple(torch.stack(part)[lengths, rows] for part in zip(*states, strict=True))
        return shown, torch.stack(contexts, dim=1), state
