"""Recurrent layers that attend before each step: the equations of Bahdanau et al., and the network around them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.config import RecurrentEncoderDecoderConfig
from regard.models import build
from regard.nn.recurrent import (
    AdditiveScore,
    AttendingLayer,
    EncodedSource,
    GRUCell,
    LSTMCell,
    RecurrentCell,
    RecurrentState,
    RNNCell,
    SourceAttention,
)
from regard.nn.sequences import Lengths
from regard.nn.taps import record_taps

CELLS = [RNNCell, LSTMCell, GRUCell]
WIDTH, INPUTS, TOLERANCE = 4, 3, 1e-12


def make_layer(cell: type[RecurrentCell]) -> tuple[AttendingLayer, SourceAttention]:
    torch.manual_seed(0)
    attention = SourceAttention(WIDTH, AdditiveScore(WIDTH), others=2)
    return AttendingLayer(cell, INPUTS, WIDTH).double(), attention.double()


def reference(
    layer: AttendingLayer, attention: SourceAttention, x: Tensor, memory: Tensor, state: RecurrentState
) -> tuple[Tensor, Tensor, RecurrentState]:
    """Compute one sequence x (L, I) with source states (S, W) by the equations of the paper."""
    score = attention.score
    assert isinstance(score, AdditiveScore)
    x_weight, h_weight, x_bias, h_bias = layer.weights()
    states, contexts = [], []
    for y in x:
        s = state[0][0]
        energies = [score.v @ torch.tanh(score.query.weight @ s + score.key.weight @ h) for h in memory]
        alphas = torch.stack(energies).exp() / torch.stack(energies).exp().sum()
        context = sum((alpha * h for alpha, h in zip(alphas, memory, strict=True)), torch.zeros(WIDTH))
        inputs = x_weight @ torch.cat([y, context]) + x_bias
        state = layer.cells[0](inputs[None], (h_weight @ s + h_bias)[None], state)
        states.append(state[0][0])
        contexts.append(context)
    return torch.stack(states), torch.stack(contexts), state


@pytest.mark.parametrize("cell", CELLS)
@given(
    lengths=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    rows=st.integers(1, 3),
    seed=st.integers(0, 2**31),
)
def test_each_step_equals_the_equations(cell: type[RecurrentCell], lengths: list[int], rows: int, seed: int) -> None:
    """Several rows may attend to one source sentence, whose padding is masked."""
    layer, attention = make_layer(cell)
    generator = torch.Generator().manual_seed(seed)

    def numbers(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.double)

    sentences = len(lengths)
    memory, x = numbers(sentences, max(lengths), WIDTH), numbers(sentences * rows, 5, INPUTS)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    before = tuple(numbers(sentences * rows, WIDTH) for _ in range(cell.num_states))
    ends = torch.randint(0, 6, (sentences * rows,), generator=generator)
    hidden, contexts, last = layer.attend_and_step(
        x, Lengths(ends, 5, x.device), before, EncodedSource(attention, memory, mask, attention.score.keys(memory))
    )
    for row, end in enumerate(ends.tolist()):
        sentence = row // rows
        start = tuple(part[row : row + 1] for part in before)
        unpadded = memory[sentence][mask[sentence]]
        if end:
            states, expected_contexts, after = reference(layer, attention, x[row, :end], unpadded, start)
            torch.testing.assert_close(hidden[row, :end], states, atol=TOLERANCE, rtol=0)
            torch.testing.assert_close(contexts[row, :end], expected_contexts, atol=TOLERANCE, rtol=0)
        else:
            after = start
        for actual, expected in zip(last, after, strict=True):
            torch.testing.assert_close(actual[row], expected[0], atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("cell", CELLS)
def test_with_zero_context_weights_it_equals_an_ordinary_layer(cell: type[RecurrentCell]) -> None:
    layer, attention = make_layer(cell)
    with torch.no_grad():
        layer.weights()[0][:, INPUTS:] = 0
    x, memory = torch.randn(2, 6, INPUTS).double(), torch.randn(2, 3, WIDTH).double()
    source = EncodedSource(attention, memory, None, attention.score.keys(memory))
    hidden, _, last = layer.attend_and_step(x, None, None, source)
    zero_context = torch.cat([x, torch.zeros(2, 6, WIDTH).double()], dim=-1)
    expected, expected_last = layer(zero_context)  # PyTorch's kernel
    torch.testing.assert_close(hidden, expected, atol=TOLERANCE, rtol=0)
    torch.testing.assert_close(last, expected_last, atol=TOLERANCE, rtol=0)


def test_the_output_combines_context_state_and_token() -> None:
    torch.manual_seed(0)
    config = RecurrentEncoderDecoderConfig(vocab_size=9, width=WIDTH, layers=1, cell="gru", dropout=0.0)
    network = build(config).double().eval()
    ids = torch.tensor([[1, 2, 3]])
    names = ["embedding.sum", "layers.0.cells.0.hidden", "cross_attention.context"]
    with record_taps(network, *(f"decoder.{name}" for name in names)) as values:
        out = network.decode(ids, network.encode(ids))
    ((token,), states, contexts) = (values[f"decoder.{name}"] for name in names)
    combined = torch.cat([torch.cat(contexts, dim=1), torch.stack(states, dim=1), token], dim=-1)
    weight = network.get_parameter("decoder.cross_attention.output.weight")
    torch.testing.assert_close(out, torch.tanh(combined @ weight.T), atol=TOLERANCE, rtol=0)


def test_replacing_weights_at_one_step_changes_later_steps() -> None:
    torch.manual_seed(0)
    network = build(RecurrentEncoderDecoderConfig(vocab_size=9, width=WIDTH, layers=2)).double().eval()
    assert network.alignment_tap is not None
    source, target = torch.tensor([[1, 2, 3]]), torch.tensor([[4, 5, 6, 7]])
    before = network(source, target)
    weights: list[Tensor] = []

    def attend_to_the_first_word(_tap: object, _arguments: object, x: Tensor) -> Tensor:
        weights.append(x)
        return x if len(weights) != 2 else torch.tensor([1.0, 0.0, 0.0]).double().expand_as(x)

    hook = network.alignment_tap.register_forward_hook(attend_to_the_first_word)
    changed = network(source, target)
    hook.remove()
    assert [tuple(step.shape) for step in weights] == [(1, 1, 1, 3)] * 4
    difference = (changed - before).abs().amax(-1)[0]
    assert difference[0] < TOLERANCE
    assert (difference[1:] > 1e-6).all()


@given(seed=st.integers(0, 2**31))
def test_documents_in_one_row_attend_to_its_sentence_independently(seed: int) -> None:
    torch.manual_seed(seed)
    network = build(RecurrentEncoderDecoderConfig(vocab_size=9, width=WIDTH, layers=1)).double().eval()
    source, texts = torch.randint(0, 9, (2, 3)), torch.randint(0, 9, (4, 5))  # two rows for each sentence
    documents = torch.tensor([0, 0, 0, 1, 1]).expand(4, -1)
    together = network.decode(texts, network.encode(source), features={"document_ids": documents})
    separate = [network.decode(part, network.encode(source)) for part in (texts[:, :3], texts[:, 3:])]
    torch.testing.assert_close(together, torch.cat(separate, dim=1), atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("layers", [(1, 3), (3, 1), (2, 2)])
def test_the_decoder_starts_from_the_last_states_aligned_at_the_top(layers: tuple[int, int]) -> None:
    torch.manual_seed(0)
    config = RecurrentEncoderDecoderConfig(
        vocab_size=9, width=WIDTH, layers=layers[0], decoder_layers=layers[1], attention="none", cell="lstm"
    )
    network = build(config).double().eval()
    ids = torch.tensor([[1, 2, 3]])
    starts: list[RecurrentState] = []
    for number in range(layers[1]):
        layer = network.get_submodule(f"decoder.layers.{number}")
        layer.register_forward_pre_hook(lambda _layer, arguments: starts.append(arguments[2]))
    memory = network.encode(ids)
    network.decode(ids, memory)
    last = memory.last  # type: ignore[attr-defined]
    assert len(last) == layers[0]
    expected = {(1, 3): [0, 0, 0], (3, 1): [2], (2, 2): [0, 1]}[layers]
    for start, number in zip(starts, expected, strict=True):
        torch.testing.assert_close(start, last[number])
