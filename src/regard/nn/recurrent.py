"""Recurrent layers: one token after the other, with a state that is all they remember.

A cell says how one step changes the state, gate by gate, as the equations are written. A layer walks along sequences:
through PyTorch's kernel of the same equations, and step by step through the cell only while one of its taps is open.

R sequences · L steps · I width of the input · W width of the state · G gates
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.nn.taps import Tap

RecurrentState = tuple[Tensor, ...]  # the hidden state (R, W) first, then whatever else a cell remembers


class RecurrentCell(nn.Module, ABC):
    """One step, with a tap on every number in it. The weights belong to the layer, whose kernel shares them."""

    kernel: ClassVar[Callable[..., nn.RNNBase]]  # PyTorch's of the same equations
    remembers: ClassVar[int] = 1  # tensors in a state
    gates: ClassVar[int] = 1

    @abstractmethod
    def forward(self, from_x: Tensor, from_h: Tensor, state: RecurrentState) -> RecurrentState:
        """W_x x + b_x and W_h h + b_h (R, G·W) for all gates side by side, and the state before -> the state after."""


class RNNCell(RecurrentCell):
    """h_t = tanh(W_hh h_{t-1} + W_xh x_t + b)  (Elman 1990)."""

    kernel = nn.RNN

    def __init__(self) -> None:
        super().__init__()
        self.sum = Tap()
        self.hidden = Tap()

    def forward(self, from_x: Tensor, from_h: Tensor, state: RecurrentState) -> RecurrentState:
        return (self.hidden(self.sum(from_h + from_x).tanh()),)


class LSTMCell(RecurrentCell):
    """Long short-term memory (Hochreiter & Schmidhuber 1997; with the forget gate of Gers et al. 2000).

    i, f, o = σ(W x_t + U h_{t-1} + b)      what is let in, kept, and shown
    C̃ = tanh(W x_t + U h_{t-1} + b)
    C_t = f ⊙ C_{t-1} + i ⊙ C̃
    h_t = o ⊙ tanh(C_t)
    """

    kernel = nn.LSTM
    remembers = 2
    gates = 4

    def __init__(self) -> None:
        super().__init__()
        self.input_gate = Tap()
        self.forget_gate = Tap()
        self.candidate = Tap()
        self.output_gate = Tap()
        self.cell = Tap()
        self.hidden = Tap()

    def forward(self, from_x: Tensor, from_h: Tensor, state: RecurrentState) -> RecurrentState:
        i, f, g, o = (from_x + from_h).chunk(4, dim=-1)  # in the order of PyTorch's weights
        let_in = self.input_gate(i.sigmoid())
        kept = self.forget_gate(f.sigmoid())
        candidate = self.candidate(g.tanh())
        shown = self.output_gate(o.sigmoid())
        cell = self.cell(kept * state[1] + let_in * candidate)
        return self.hidden(shown * cell.tanh()), cell


class GRUCell(RecurrentCell):
    """The gated recurrent unit (Cho et al. 2014), with the reset gate after the product, as its fast kernels have it.

    r, z = σ(W x_t + U h_{t-1} + b)             what is looked back at, and kept
    h̃ = tanh(W x_t + b + r ⊙ (U h_{t-1} + b'))
    h_t = z ⊙ h_{t-1} + (1 − z) ⊙ h̃
    """

    kernel = nn.GRU
    gates = 3

    def __init__(self) -> None:
        super().__init__()
        self.reset_gate = Tap()
        self.update_gate = Tap()
        self.candidate = Tap()
        self.hidden = Tap()

    def forward(self, from_x: Tensor, from_h: Tensor, state: RecurrentState) -> RecurrentState:
        (xr, xz, xn), (hr, hz, hn) = from_x.chunk(3, dim=-1), from_h.chunk(3, dim=-1)
        reset = self.reset_gate((xr + hr).sigmoid())
        update = self.update_gate((xz + hz).sigmoid())
        candidate = self.candidate((xn + reset * hn).tanh())
        return (self.hidden(update * state[0] + (1 - update) * candidate),)


class RecurrentLayer(nn.Module):
    """Walks along sequences; with `bidirectional`, half of its width walks backwards from the end of each."""

    def __init__(self, cell: type[RecurrentCell], inputs: int, width: int, *, bidirectional: bool = False) -> None:
        super().__init__()
        directions = 2 if bidirectional else 1
        self.width = width
        self.remembers = cell.remembers
        self.kernel = cell.kernel(inputs, width // directions, batch_first=True, bidirectional=bidirectional)
        self.cells = nn.ModuleList(cell() for _ in range(directions))  # forwards, backwards
        self._taps = [part for part in self.modules() if isinstance(part, Tap)]

    def forward(
        self, x: Tensor, lengths: Tensor | None = None, state: RecurrentState | None = None
    ) -> tuple[Tensor, RecurrentState]:
        """x (R, L, I) -> what each step shows (R, L, W), and the state (R, W) after the last of them.

        `lengths` (R,) tells where sequences end; None: all are of length L. One without any step keeps its state.
        """
        before = state or tuple(x.new_zeros(len(x), self.width) for _ in range(self.remembers))
        if any(tap.is_open for tap in self._taps):
            return self._step_by_step(x, lengths, before)
        if lengths is None:
            return self._kernel(x, before)
        packed = pack_padded_sequence(x, lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False)
        out, after = self._kernel(packed, before)
        out, _ = pad_packed_sequence(out, batch_first=True, total_length=x.size(1))
        moved = lengths[:, None] > 0
        return out, tuple(new.where(moved, old) for new, old in zip(after, before, strict=True))

    def _kernel(self, x, before: RecurrentState):  # type: ignore[no-untyped-def]  # a tensor, or what packing makes of one
        parts = [part.unflatten(1, (len(self.cells), -1)).transpose(0, 1).contiguous() for part in before]
        out, after = self.kernel(x, tuple(parts) if self.remembers > 1 else parts[0])
        after = after if self.remembers > 1 else (after,)
        return out, tuple(part.transpose(0, 1).flatten(1) for part in after)  # (directions, R, ·) -> (R, W)

    def _step_by_step(self, x: Tensor, lengths: Tensor | None, before: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """The same by the cells: the reference for the kernel."""
        shown, ends = [], []
        parts = zip(*(part.chunk(len(self.cells), dim=1) for part in before), strict=True)
        for direction, (cell, begin) in enumerate(zip(self.cells, parts, strict=True)):
            x_weight, h_weight, x_bias, h_bias = self.weights(direction)
            from_x = F.linear(x, x_weight, x_bias)  # (R, L, G·W)
            state, steps = begin, list(range(x.size(1)))
            out = [torch.empty(0)] * len(steps)
            for t in reversed(steps) if direction else steps:
                after = cell(from_x[:, t], F.linear(state[0], h_weight, h_bias), state)
                if lengths is not None:  # where a sequence is over, or has not begun, nothing moves
                    within = (t < lengths)[:, None]
                    after = tuple(new.where(within, old) for new, old in zip(after, state, strict=True))
                state, out[t] = after, after[0]
            shown.append(torch.stack(out, dim=1))
            ends.append(state)
        return torch.cat(shown, dim=-1), tuple(torch.cat(part, dim=-1) for part in zip(*ends, strict=True))

    def weights(self, direction: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """W_x (G·W, I), W_h (G·W, W), b_x and b_h (G·W) of one direction."""
        suffix = "_reverse" if direction else ""
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        x_weight, h_weight, x_bias, h_bias = (getattr(self.kernel, f"{name}_l0{suffix}") for name in names)
        return x_weight, h_weight, x_bias, h_bias
