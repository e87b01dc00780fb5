"""A recurrent layer that looks at the source before each of its steps (Bahdanau et al. 2015, §3.1 and appendix A).

    α_ij = softmax_j score(s_{i-1}, h_j),   c_i = Σ_j α_ij h_j,   s_i = cell([y_{i-1} ; c_i], s_{i-1})

The state before looks, and what it sees goes into the cell together with the token. So a step needs the one before it,
and the walk is step by step, through the cell and its taps, in training too. What can be known beforehand is: the
token's share of all gates, and the encoder's share of all scores.

R sequences · B sentences of the source, K sequences for each · L steps · S source length · W width · G gates
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.nn.recurrent import Cell, RecurrentLayer, State
from regard.nn.source_attention import SourceAttention


@dataclass(frozen=True)
class Source:
    """What a decoder can look at, and how it looks."""

    attention: SourceAttention
    memory: Tensor  # (B, S, W)
    mask: Tensor | None  # (B, S)
    keys: Tensor  # (B, S, W): what the memory gives to every score

    def select(self, rows: Tensor) -> "Source":
        """The source of these sentences, in this order."""
        mask = None if self.mask is None else self.mask.index_select(0, rows)
        return Source(self.attention, self.memory.index_select(0, rows), mask, self.keys.index_select(0, rows))

    def seen(self, states: Tensor) -> Tensor:
        """What the states (B·K, W) find there: the contexts (B·K, W)."""
        queries = states.unflatten(0, (len(self.memory), -1))  # (B, K, W)
        return self.attention.look(queries, self.memory, self.mask, self.keys).flatten(0, 1)


class AttendingLayer(RecurrentLayer):
    """Walks along sequences with an eye on the source; the weights for tokens and contexts stand side by side."""

    def __init__(self, cell: type[Cell], inputs: int, width: int) -> None:
        super().__init__(cell, inputs + width, width)
        self.inputs = inputs

    def walk(
        self, x: Tensor, lengths: Tensor | None, before: State | None, source: Source
    ) -> tuple[Tensor, Tensor, State]:
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
