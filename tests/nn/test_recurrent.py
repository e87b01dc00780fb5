"""Recurrent cells equal PyTorch's kernels and hand-computed steps; recurrent attention equals its equations."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.nn import open_taps
from regard.nn.layout import PaddingMask
from regard.nn.recurrent import (
    AdditiveScore,
    DotScore,
    GeneralScore,
    GRUCell,
    LSTMCell,
    RecurrentCell,
    RecurrentLayer,
    RNNCell,
    Score,
    SourceAttention,
)
from regard.nn.sequences import Lengths, Sequences
from regard.nn.taps import record_taps

CELLS = [RNNCell, LSTMCell, GRUCell]
TOLERANCE = 1e-12


def layer_of(
    cell: type[RecurrentCell], *, bidirectional: bool = False, inputs: int = 3, width: int = 4
) -> RecurrentLayer:
    torch.manual_seed(0)
    return RecurrentLayer(cell, inputs, width, bidirectional=bidirectional).double()


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("cell", CELLS)
@given(lengths=st.lists(st.integers(0, 5), min_size=1, max_size=4).filter(any), seed=st.integers(0, 2**31))
def test_cells_equal_the_kernel(cell: type[RecurrentCell], bidirectional: bool, lengths: list[int], seed: int) -> None:
    layer = layer_of(cell, bidirectional=bidirectional)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(len(lengths), max(lengths), 3, generator=generator, dtype=torch.double)
    state = tuple(torch.randn(len(lengths), 4, generator=generator, dtype=torch.double) for _ in range(cell.num_states))
    sizes = torch.tensor(lengths)
    within = torch.arange(max(lengths)) < sizes[:, None]
    of_x = Lengths(sizes, max(lengths), x.device)
    fast, fast_state = layer(x, of_x, state)
    with open_taps(layer):
        slow, slow_state = layer(x, of_x, state)
    torch.testing.assert_close(slow[within], fast[within], atol=TOLERANCE, rtol=0)
    torch.testing.assert_close(slow_state, fast_state, atol=TOLERANCE, rtol=0)


@given(lengths=st.lists(st.integers(1, 5), min_size=1, max_size=4), more=st.integers(0, 2))
def test_packing_is_that_of_pytorch(lengths: list[int], more: int) -> None:
    x = torch.arange(len(lengths) * (max(lengths) + more))[:, None].unflatten(0, (len(lengths), -1))
    own = Lengths(torch.tensor(lengths), x.size(1), x.device)
    packed = own.pack(x)
    padded, sizes = pad_packed_sequence(packed, batch_first=True)
    assert sizes.tolist() == lengths
    assert torch.equal(own.pad(packed)[:, : max(lengths)], padded)
    theirs = pack_padded_sequence(x, torch.tensor(lengths), batch_first=True, enforce_sorted=False)
    assert torch.equal(pad_packed_sequence(theirs, batch_first=True)[0], padded)
    assert torch.equal(packed.batch_sizes, theirs.batch_sizes)


@pytest.mark.parametrize(("cell", "theirs"), [(RNNCell, nn.RNN), (LSTMCell, nn.LSTM), (GRUCell, nn.GRU)])
def test_a_cell_with_torchs_weights_equals_torchs(cell: type[RecurrentCell], theirs: type[nn.RNNBase]) -> None:
    layer, own = layer_of(cell), theirs(3, 4, batch_first=True).double()  # type: ignore[arg-type, call-arg]
    layer.kernel.load_state_dict(own.state_dict())
    x = torch.randn(2, 6, 3, dtype=torch.double)
    with open_taps(layer):
        out, _ = layer(x)
    torch.testing.assert_close(out, own(x)[0], atol=TOLERANCE, rtol=0)


def set_weights(layer: RecurrentLayer, x: list[float], h: list[float]) -> None:
    """Set the input and state weight of each gate in a layer of width one; biases are zero."""
    with torch.no_grad():
        x_weight, h_weight, x_bias, h_bias = layer.weights()
        x_weight.copy_(torch.tensor(x)[:, None])
        h_weight.copy_(torch.tensor(h)[:, None])
        x_bias.zero_()
        h_bias.zero_()


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def test_an_rnn_step_by_hand() -> None:
    layer = layer_of(RNNCell, inputs=1, width=1)
    set_weights(layer, [0.5], [2.0])
    out, _ = layer(torch.tensor([[[1.0], [3.0]]]).double())
    first = math.tanh(0.5)
    assert out.flatten().tolist() == pytest.approx([first, math.tanh(2 * first + 1.5)])


def test_an_lstm_step_by_hand() -> None:
    layer = layer_of(LSTMCell, inputs=1, width=1)
    set_weights(layer, [0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8])
    h, c = torch.full((1, 1), 0.25).double(), torch.full((1, 1), -0.5).double()
    out, (hidden, cell) = layer(torch.ones(1, 1, 1).double(), None, (h, c))
    i, f, o = sigmoid(0.1 + 0.125), sigmoid(0.2 + 0.15), sigmoid(0.4 + 0.2)
    new = f * -0.5 + i * math.tanh(0.3 + 0.175)
    assert (cell.item(), hidden.item(), out.item()) == pytest.approx((new, o * math.tanh(new), o * math.tanh(new)))


def test_a_gru_step_by_hand() -> None:
    layer = layer_of(GRUCell, inputs=1, width=1)
    set_weights(layer, [0.1, 0.2, 0.3], [0.4, 0.5, 0.6])
    out, _ = layer(torch.ones(1, 1, 1).double(), None, (torch.full((1, 1), 0.25).double(),))
    r, z = sigmoid(0.1 + 0.1), sigmoid(0.2 + 0.125)
    assert out.item() == pytest.approx(z * 0.25 + (1 - z) * math.tanh(0.3 + r * 0.15))


def test_taps_record_every_gate_at_every_step() -> None:
    layer = layer_of(LSTMCell)
    with record_taps(layer) as values:
        out, (_, cell) = layer(torch.randn(2, 5, 3).double())
    gates = {"input_gate", "forget_gate", "candidate", "output_gate", "cell", "hidden"}
    assert set(values) == {f"cells.0.{gate}" for gate in gates}
    assert all(len(steps) == 5 and steps[0].shape == (2, 4) for steps in values.values())
    assert torch.equal(torch.stack(values["cells.0.hidden"], dim=1), out.detach())
    assert torch.equal(values["cells.0.cell"][-1], cell.detach())


def test_replacing_a_gate_changes_later_steps() -> None:
    layer = layer_of(LSTMCell)
    x = torch.randn(1, 4, 3).double()
    hook = layer.get_submodule("cells.0.forget_gate").register_forward_hook(lambda _tap, _arguments, gate: gate * 0)
    _, (_, forgetful) = layer(x)
    hook.remove()
    _, (_, ordinary) = layer(x)
    assert (forgetful - ordinary).abs().max() > 1e-3


@given(seed=st.integers(0, 2**31), documented=st.booleans())
def test_scatter_inverts_gather(seed: int, documented: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(3, 6, generator=generator) < 0.6
    mask[0, 0] = True
    documents = torch.randint(0, 2, mask.shape, generator=generator) if documented else None
    x = torch.randn(3, 6, 2, generator=generator)
    sequences = Sequences.of(PaddingMask.of(mask), documents)
    assert torch.equal(sequences.scatter(sequences.gather(x)), x.masked_fill(~mask[..., None], 0.0))
    if documents is None:
        assert sequences.lengths.host.tolist() == mask.sum(1).tolist()


def reference_score(s: Tensor, h: Tensor, score: Score) -> Tensor:
    """Compute one score as the papers write it."""
    match score:
        case AdditiveScore():
            return score.v @ torch.tanh(score.query.weight @ s + score.key.weight @ h)
        case GeneralScore():
            return s @ score.key.weight @ h
        case _:
            return s @ h


@pytest.mark.parametrize("name", ["additive", "dot", "general"])
def test_attention_equals_its_equations(name: str) -> None:
    torch.manual_seed(0)
    score = {"additive": AdditiveScore(4), "general": GeneralScore(4), "dot": DotScore()}[name]
    attention = SourceAttention(4, score).double()
    states, memory = torch.randn(1, 2, 4).double(), torch.randn(1, 3, 4).double()
    with open_taps(attention) as values:
        out = attention(states, memory, None)
    expected = torch.stack([torch.stack([reference_score(s, h, score) for h in memory[0]]) for s in states[0]])
    torch.testing.assert_close(values["scores"][0, 0], expected.detach(), atol=TOLERANCE, rtol=0)
    context = expected.softmax(-1) @ memory[0]
    expected_out = torch.tanh(torch.cat([context, states[0]], dim=-1) @ attention.output.weight.T)
    torch.testing.assert_close(out[0], expected_out, atol=TOLERANCE, rtol=0)
