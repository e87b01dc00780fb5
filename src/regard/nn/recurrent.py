"""Recurrent cells and layers, and the attention of recurrent translators.

A cell computes one step gate by gate, as the equations are written, with a tap on every value. A layer runs PyTorch's
kernel of the same equations, and goes step by step through its cells only while one of their taps is open.

With attention, the decoder attends to the encoder's states at each step:

    α_tj = softmax_j score(s, h_j),   c_t = Σ_j α_tj h_j

with one of three scores: additive, vᵀ tanh(W s + U h) (Bahdanau et al. 2015), dot, sᵀ h, or general, sᵀ W h (Luong et
al. 2015). The two papers also differ in the state s that attends and in the use of the context c_t:

- Bahdanau et al. (§3.1 and appendix A): the state before the step attends, and c_t is an input of the cell,
  s_t = cell([y_{t-1} ; c_t], s_{t-1}), out_t = tanh(W [c_t ; s_t ; y_{t-1}]). A step needs the one before it, so
  `AttendingLayer` goes step by step, in training too; only the tokens' part of all gates and the encoder's part of all
  scores are computed beforehand.
- Luong et al. (§3.1): the state after the step attends, out_t = tanh(W [c_t ; s_t]), so all steps attend at once.

R sequences · L steps · I input width · W state width · G gates
B sentences · K target rows for each, R = B·K · T target length · S source length · C width
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.nn.layout import check_mask
from regard.nn.sequences import Lengths
from regard.nn.taps import ExposedModule, Matrix, Point, Tap, under

RecurrentState = tuple[Tensor, ...]  # the hidden state (R, W) first, then the cell state, if there is one
DIRECTIONS = ("forwards", "backwards")


class RecurrentCell(ExposedModule, ABC):
    """One step. The weights belong to the layer, which shares them with its kernel."""

    kernel: ClassVar[Callable[..., nn.RNNBase]]  # PyTorch's kernel of the same equations
    num_states: ClassVar[int] = 1  # tensors in a state
    gates: ClassVar[int] = 1

    @abstractmethod
    def forward(self, from_x: Tensor, from_h: Tensor, state: RecurrentState) -> RecurrentState:
        """Return the state after a step, from W_x x + b_x and W_h h + b_h (R, G·W) of all gates and the old state."""


def _gate(description: str) -> Tap:
    return Tap("token", "unit", description=description)


class RNNCell(RecurrentCell):
    """h_t = tanh(W_hh h_{t-1} + W_xh x_t + b)  (Elman 1990)."""

    kernel = nn.RNN

    def __init__(self) -> None:
        super().__init__()
        self.sum = _gate("W_x x + W_h h + b")
        self.hidden = _gate("h: state after this token")

    def forward(self, from_x: Tensor, from_h: Tensor, state: RecurrentState) -> RecurrentState:
        return (self.hidden(self.sum(from_h + from_x).tanh()),)


class LSTMCell(RecurrentCell):
    """Long short-term memory (Hochreiter & Schmidhuber 1997; with the forget gate of Gers et al. 2000).

    i, f, o = σ(W x_t + U h_{t-1} + b)      input, forget and output gate
    C̃ = tanh(W x_t + U h_{t-1} + b)
    C_t = f ⊙ C_{t-1} + i ⊙ C̃
    h_t = o ⊙ tanh(C_t)
    """

    kernel = nn.LSTM
    num_states = 2
    gates = 4

    def __init__(self) -> None:
        super().__init__()
        self.input_gate = _gate("i = σ(…): input gate")
        self.forget_gate = _gate("f = σ(…): forget gate")
        self.candidate = _gate("C̃ = tanh(…): candidate for the cell state")
        self.output_gate = _gate("o = σ(…): output gate")
        self.cell = _gate("C = f ⊙ C + i ⊙ C̃: cell state")
        self.hidden = _gate("h = o ⊙ tanh(C): state after this token")

    def forward(self, from_x: Tensor, from_h: Tensor, state: RecurrentState) -> RecurrentState:
        i, f, g, o = (from_x + from_h).chunk(4, dim=-1)  # in the order of PyTorch's weights
        input_gate = self.input_gate(i.sigmoid())
        forget_gate = self.forget_gate(f.sigmoid())
        candidate = self.candidate(g.tanh())
        output_gate = self.output_gate(o.sigmoid())
        cell = self.cell(forget_gate * state[1] + input_gate * candidate)
        return self.hidden(output_gate * cell.tanh()), cell


class GRUCell(RecurrentCell):
    """Gated recurrent unit (Cho et al. 2014), with the reset gate after the product, as in cuDNN and PyTorch.

    r, z = σ(W x_t + U h_{t-1} + b)             reset and update gate
    h̃ = tanh(W x_t + b + r ⊙ (U h_{t-1} + b'))
    h_t = z ⊙ h_{t-1} + (1 − z) ⊙ h̃
    """

    kernel = nn.GRU
    gates = 3

    def __init__(self) -> None:
        super().__init__()
        self.reset_gate = _gate("r = σ(…): reset gate")
        self.update_gate = _gate("z = σ(…): update gate")
        self.candidate = _gate("h̃ = tanh(…): candidate for the state")
        self.hidden = _gate("h = z ⊙ h + (1 − z) ⊙ h̃: state after this token")

    def forward(self, from_x: Tensor, from_h: Tensor, state: RecurrentState) -> RecurrentState:
        (xr, xz, xn), (hr, hz, hn) = from_x.chunk(3, dim=-1), from_h.chunk(3, dim=-1)
        reset = self.reset_gate((xr + hr).sigmoid())
        update = self.update_gate((xz + hz).sigmoid())
        candidate = self.candidate((xn + reset * hn).tanh())
        return (self.hidden(update * state[0] + (1 - update) * candidate),)


class RecurrentLayer(ExposedModule):
    """Runs along sequences; with `bidirectional`, half of its width runs backward from the end of each."""

    can_bypass = True  # whether the output may be replaced by the input, which is as wide

    def __init__(self, cell: type[RecurrentCell], inputs: int, width: int, *, bidirectional: bool = False) -> None:
        super().__init__()
        directions = 2 if bidirectional else 1
        self.width = width
        self.num_states = cell.num_states
        self.kernel = cell.kernel(inputs, width // directions, batch_first=True, bidirectional=bidirectional)
        self.cells = nn.ModuleList(cell() for _ in range(directions))  # forwards, backwards
        self._taps = [part for part in self.modules() if isinstance(part, Tap)]

    def forward(
        self, x: Tensor, lengths: Lengths | None = None, state: RecurrentState | None = None
    ) -> tuple[Tensor, RecurrentState]:
        """x (R, L, I) -> hidden states of all steps (R, L, W), and the state (R, W) after the last one.

        `lengths` are those of the sequences; None: all have length L. One of length 0 keeps its state.
        """
        before = state or self.initial_state(x)
        if any(tap.is_open for tap in self._taps):
            return self._step_by_step(x, lengths, before)
        if lengths is None:
            return self._kernel(x, before)
        out, after = self._kernel(lengths.pack(x), before)
        return lengths.pad(out), tuple(lengths.choose(new, old) for new, old in zip(after, before, strict=True))

    def initial_state(self, x: Tensor) -> RecurrentState:
        """Return the zero state for sequences x (R, L, I)."""
        return tuple(x.new_zeros(len(x), self.width) for _ in range(self.num_states))

    def _kernel(self, x, before: RecurrentState):  # type: ignore[no-untyped-def]  # a tensor or a PackedSequence
        parts = [part.unflatten(1, (len(self.cells), -1)).transpose(0, 1).contiguous() for part in before]
        out, after = self.kernel(x, tuple(parts) if self.num_states > 1 else parts[0])
        after = after if self.num_states > 1 else (after,)
        return out, tuple(part.transpose(0, 1).flatten(1) for part in after)  # (directions, R, ·) -> (R, W)

    def _step_by_step(
        self, x: Tensor, lengths: Lengths | None, before: RecurrentState
    ) -> tuple[Tensor, RecurrentState]:
        """Compute the same by the cells: the reference for the kernel."""
        outputs, last_states = [], []
        parts = zip(*(part.chunk(len(self.cells), dim=1) for part in before), strict=True)
        for direction, (cell, begin) in enumerate(zip(self.cells, parts, strict=True)):
            x_weight, h_weight, x_bias, h_bias = self.weights(direction)
            from_x = F.linear(x, x_weight, x_bias)  # (R, L, G·W)
            state, steps = begin, list(range(x.size(1)))
            out = [torch.empty(0)] * len(steps)
            for t in reversed(steps) if direction else steps:
                after = cell(from_x[:, t], F.linear(state[0], h_weight, h_bias), state)
                if lengths is not None:  # outside of a sequence its state stays as it is
                    within = (t < lengths.values)[:, None]
                    after = tuple(new.where(within, old) for new, old in zip(after, state, strict=True))
                state, out[t] = after, after[0]
            outputs.append(torch.stack(out, dim=1))
            last_states.append(state)
        return torch.cat(outputs, dim=-1), tuple(torch.cat(part, dim=-1) for part in zip(*last_states, strict=True))

    def weights(self, direction: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return W_x (G·W, I), W_h (G·W, W), b_x and b_h (G·W) of one direction."""
        suffix = "_reverse" if direction else ""
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        x_weight, h_weight, x_bias, h_bias = (getattr(self.kernel, f"{name}_l0{suffix}") for name in names)
        return x_weight, h_weight, x_bias, h_bias

    def points(self) -> Iterator[Point]:
        for direction in range(len(self.cells)):
            yield from under(DIRECTIONS[direction], self.direction_points(direction, reversed=direction == 1))

    def direction_points(self, direction: int, *, reversed: bool) -> Iterator[Point]:
        """Yield the points of one direction's cell; `reversed`: it reads sequences from the end."""
        cell = self.cells[direction]
        assert isinstance(cell, RecurrentCell)
        return (replace(point, reversed=reversed) for point in cell.points())

    def matrices(self) -> Iterator[Matrix]:
        for direction in range(len(self.cells)):
            yield from under(DIRECTIONS[direction], self.direction_matrices(direction))

    def direction_matrices(self, direction: int = 0) -> Iterator[Matrix]:
        """Yield the matrices of one direction."""
        for number, name in enumerate(("W_x", "W_h")):
            yield Matrix(name, ("unit", "unit"), self._take(direction, number))
        for number, name in enumerate(("b_x", "b_h"), start=2):
            yield Matrix(name, ("unit",), self._take(direction, number), role="bias")

    def _take(self, direction: int, number: int) -> Callable[[], Tensor]:
        return lambda: self.weights(direction)[number].mT if number < 2 else self.weights(direction)[number]


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
        check_mask(mask, memory.shape[:2])
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
        self, x: Tensor, lengths: Lengths | None, before: RecurrentState | None, source: EncodedSource
    ) -> tuple[Tensor, Tensor, RecurrentState]:
        """x (R, L, I) -> states and contexts of all steps (R, L, W), and the state (R, W) after the last one.

        `lengths` are those of the sequences, as in `forward`; values past an end are arbitrary.
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
            state = tuple(torch.stack(part)[lengths.values, rows] for part in zip(*states, strict=True))
        return hidden, torch.stack(contexts, dim=1), state
