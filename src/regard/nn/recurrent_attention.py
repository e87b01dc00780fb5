"""Attention of recurrent translators: at each step the decoder attends to the encoder's states.

    α_tj = softmax_j score(s, h_j),   c_t = Σ_j α_tj h_j

with one of three scores: additive, vᵀ tanh(W s + U h) (Bahdanau et al. 2015), dot, sᵀ h, or general, sᵀ W h (Luong et
al. 2015). The two papers also differ in the state s that attends and in the use of the context c_t:

- Bahdanau et al. (§3.1 and appendix A): the state before the step attends, and c_t is an input of the cell,
  s_t = cell([y_{t-1} ; c_t], s_{t-1}), out_t = tanh(W [c_t ; s_t ; y_{t-1}]). A step needs the one before it, so
  `AttendingLayer` goes step by step, in training too; only the tokens' part of all gates and the encoder's part of all
  scores are computed beforehand.
- Luong et al. (§3.1): the state after the step attends, out_t = tanh(W [c_t ; s_t]), so all steps attend at once.

B sentences · K target rows for each · R = B·K sequences · T target length · L steps · S source length · C, W width
G gates
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.nn.exposed import ExposedModule, Matrix
from regard.nn.layout import check_mask
from regard.nn.recurrent import RecurrentCell, RecurrentLayer, RecurrentState
from regard.nn.taps import Tap


class Score(nn.Module, ABC):
    """How well a state of the decoder matches a state of the encoder."""

    def keys(self, memory: Tensor) -> Tensor:
        """Return the encoder's part of all scores, from its states (B, S, C); computed once."""
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
        sums = self.query(queries)[:, :, None] + keys[:, None]  # (B, T, S, C)
        return F.linear(sums.tanh(), self.v[None]).squeeze(-1)


class SourceAttention(ExposedModule):
    """Attention to the encoder's states, and the layer that combines the context with `others` further vectors."""

    def __init__(self, width: int, score: Score, others: int = 1) -> None:
        super().__init__()
        self.width = width
        self.score = score
        axes = ("head", "token", "memory")
        self.scores = Tap(*axes, description="how well each state matches each source state")
        self.weights = Tap(*axes, description="softmax along each row: attention weights")
        self.context = Tap("token", "unit", description="weights · encoder states")
        self.output = nn.Linear((1 + others) * width, width, bias=False)

    def attend(self, queries: Tensor, memory: Tensor, mask: Tensor | None, keys: Tensor) -> Tensor:
        """queries (B, T, C), memory and its keys (B, S, C), mask (B, S) -> contexts (B, T, C).

        The values at the taps of scores and weights are (B, 1, T, S).
        """
        scores = self.scores(self.score(queries, keys)[:, None])
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None, None], -math.inf)
        weights = self.weights(scores.softmax(-1))
        return self.context(weights[:, 0] @ memory)

    def combine(self, context: Tensor, *others: Tensor) -> Tensor:
        """Return tanh(W [context ; others…]); all are (…, C)."""
        return self.output(torch.cat([context, *others], dim=-1)).tanh()

    def forward(self, states: Tensor, memory: Tensor, mask: Tensor | None, keys: Tensor | None = None) -> Tensor:
        """Attend from all steps at once: states (B·K, T, C), memory (B, S, C) -> (B·K, T, C).

        The K target rows of a sentence are treated as further steps. `keys` are those of the memory, if they have been
        computed before.
        """
        mask = check_mask(mask, memory.shape[:2])
        queries = states.unflatten(0, (len(memory), -1)).flatten(1, 2)  # (B, K·T, C)
        context = self.attend(queries, memory, mask, self.score.keys(memory) if keys is None else keys)
        return self.combine(context.reshape(states.shape), states)

    def flops(self, keys: int) -> int:
        """Return the floating-point operations of one step's scores and context, without its linear layers."""
        return 2 * 2 * self.width * keys

    def matrices(self) -> Iterator[Matrix]:
        return iter(())


@dataclass(frozen=True)
class EncodedSource:
    """The encoder's states, and the attention to them."""

    attention: SourceAttention
    memory: Tensor  # (B, S, W)
    mask: Tensor | None  # (B, S)
    keys: Tensor  # (B, S, W): the encoder's part of all scores

    def select(self, rows: Tensor) -> "EncodedSource":
        """Return the source of these sentences, in this order."""
        mask = None if self.mask is None else self.mask.index_select(0, rows)
        return EncodedSource(self.attention, self.memory.index_select(0, rows), mask, self.keys.index_select(0, rows))

    def attend(self, states: Tensor) -> Tensor:
        """Return the contexts (B·K, W) of decoder states (B·K, W)."""
        queries = states.unflatten(0, (len(self.memory), -1))  # (B, K, W)
        return self.attention.attend(queries, self.memory, self.mask, self.keys).flatten(0, 1)


class AttendingLayer(RecurrentLayer):
    """A recurrent layer that attends before each step; the inputs of its cell are token and context."""

    can_bypass = False

    def __init__(self, cell: type[RecurrentCell], inputs: int, width: int) -> None:
        super().__init__(cell, inputs + width, width)
        self.inputs = inputs

    def attend_and_step(
        self, x: Tensor, lengths: Tensor | None, before: RecurrentState | None, source: EncodedSource
    ) -> tuple[Tensor, Tensor, RecurrentState]:
        """x (R, L, I) -> states and contexts of all steps (R, L, W), and the state (R, W) after the last one.

        `lengths` (R,) are the lengths of the sequences, as in `forward`; values past an end are arbitrary.
        """
        x_weight, h_weight, x_bias, h_bias = self.weights()
        from_x = F.linear(x, x_weight[:, : self.inputs], x_bias).unbind(1)  # L times (R, G·W)
        c_weight, cell = x_weight[:, self.inputs :], self.cells[0]
        state = before or self.initial_state(x)
        states, contexts = [state], []
        for from_token in from_x:
            context = source.attend(state[0])
            from_input = from_token + F.linear(context, c_weight)
            state = cell(from_input, F.linear(state[0], h_weight, h_bias), state)
            states.append(state)
            contexts.append(context)
        hidden = torch.stack([state[0] for state in states[1:]], dim=1)
        if lengths is not None:
            rows = torch.arange(len(x), device=x.device)
            state = tuple(torch.stack(part)[lengths, rows] for part in zip(*states, strict=True))
        return hidden, torch.stack(contexts, dim=1), state
