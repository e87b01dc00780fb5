"""A layer that looks before each step: its equations written out, and what it does to the numbers around it."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.config import RecurrentEncoderDecoderConfig
from regard.models import build
from regard.nn.recurrent import GRUCell, LSTMCell, RecurrentCell, RecurrentState, RNNCell
from regard.nn.recurrent_attention import AdditiveScore, AttendingLayer, EncodedSource, SourceAttention
from regard.nn.taps import record_taps

CELLS = [RNNCell, LSTMCell, GRUCell]
WIDTH, INPUTS, TOLERANCE = 4, 3, 1e-12


def parts(cell: type[RecurrentCell]) -> tuple[AttendingLayer, SourceAttention]:
    torch.manual_seed(0)
    attention = SourceAttention(WIDTH, AdditiveScore(WIDTH), others=2)
    return AttendingLayer(cell, INPUTS, WIDTH).double(), attention.double()


def by_hand(
    layer: AttendingLayer, attention: SourceAttention, x: Tensor, memory: Tensor, state: RecurrentState
) -> tuple[Tensor, Tensor, RecurrentState]:
    """One sequence x (L, I) and the real states of its source (S, W): the equations of the paper, number by number."""
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
def test_each_step_is_its_equations(cell: type[RecurrentCell], lengths: list[int], rows: int, seed: int) -> None:
    """Several rows may look at one sentence of the source, whose pads are not seen."""
    layer, attention = parts(cell)
    generator = torch.Generator().manual_seed(seed)

    def numbers(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.double)

    sentences = len(lengths)
    memory, x = numbers(sentences, max(lengths), WIDTH), numbers(sentences * rows, 5, INPUTS)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    before = tuple(numbers(sentences * rows, WIDTH) for _ in range(cell.num_states))
    ends = torch.randint(0, 6, (sentences * rows,), generator=generator)
    shown, contexts, last = layer.attend_and_step(
        x, ends, before, EncodedSource(attention, memory, mask, attention.score.keys(memory))
    )
    for row, end in enumerate(ends.tolist()):
        sentence = row // rows
        start = tuple(part[row : row + 1] for part in before)
        ours = memory[sentence][mask[sentence]]
        if end:
            states, seen, after = by_hand(layer, attention, x[row, :end], ours, start)
            torch.testing.assert_close(shown[row, :end], states, atol=TOLERANCE, rtol=0)
            torch.testing.assert_close(contexts[row, :end], seen, atol=TOLERANCE, rtol=0)
        else:
            after = start
        for found, expected in zip(last, after, strict=True):
            torch.testing.assert_close(found[row], expected[0], atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("cell", CELLS)
def test_a_layer_that_is_deaf_to_what_it_sees_is_an_ordinary_one(cell: type[RecurrentCell]) -> None:
    layer, attention = parts(cell)
    with torch.no_grad():
        layer.weights()[0][:, INPUTS:] = 0
    x, memory = torch.randn(2, 6, INPUTS).double(), torch.randn(2, 3, WIDTH).double()
    source = EncodedSource(attention, memory, None, attention.score.keys(memory))
    shown, _, last = layer.attend_and_step(x, None, None, source)
    nothing_seen = torch.cat([x, torch.zeros(2, 6, WIDTH).double()], dim=-1)
    expected, expected_last = layer(nothing_seen)  # PyTorch's kernel
    torch.testing.assert_close(shown, expected, atol=TOLERANCE, rtol=0)
    torch.testing.assert_close(last, expected_last, atol=TOLERANCE, rtol=0)


def test_the_readout_sees_what_was_seen_the_state_and_the_token() -> None:
    torch.manual_seed(0)
    config = RecurrentEncoderDecoderConfig(vocab_size=9, width=WIDTH, layers=1, cell="gru", dropout=0.0)
    network = build(config).double().eval()
    ids = torch.tensor([[1, 2, 3]])
    names = ["embedding.sum", "layers.0.cells.0.hidden", "cross_attention.context"]
    with record_taps(network, *(f"decoder.{name}" for name in names)) as seen:
        out = network.decode(ids, network.encode(ids))
    ((token,), states, contexts) = (seen[f"decoder.{name}"] for name in names)
    together = torch.cat([torch.cat(contexts, dim=1), torch.stack(states, dim=1), token], dim=-1)
    weight = network.get_parameter("decoder.cross_attention.output.weight")
    torch.testing.assert_close(out, torch.tanh(together @ weight.T), atol=TOLERANCE, rtol=0)


def test_each_step_passes_the_alignment_tap_and_later_steps_feel_what_is_replaced() -> None:
    torch.manual_seed(0)
    network = build(RecurrentEncoderDecoderConfig(vocab_size=9, width=WIDTH, layers=2)).double().eval()
    assert network.alignment_tap is not None
    source, target = torch.tensor([[1, 2, 3]]), torch.tensor([[4, 5, 6, 7]])
    usual = network(source, target)
    weights: list[Tensor] = []

    def look_at_the_first_word(_tap: object, _arguments: object, x: Tensor) -> Tensor:
        weights.append(x)
        return x if len(weights) != 2 else torch.tensor([1.0, 0.0, 0.0]).double().expand_as(x)

    hook = network.alignment_tap.register_forward_hook(look_at_the_first_word)
    changed = network(source, target)
    hook.remove()
    assert [tuple(step.shape) for step in weights] == [(1, 1, 1, 3)] * 4
    difference = (changed - usual).abs().amax(-1)[0]
    assert difference[0] < TOLERANCE
    assert (difference[1:] > 1e-6).all()


@given(seed=st.integers(0, 2**31))
def test_documents_that_share_a_row_look_at_its_sentence_each_from_the_start(seed: int) -> None:
    torch.manual_seed(seed)
    network = build(RecurrentEncoderDecoderConfig(vocab_size=9, width=WIDTH, layers=1)).double().eval()
    source, texts = torch.randint(0, 9, (2, 3)), torch.randint(0, 9, (4, 5))  # two rows look at each sentence
    documents = torch.tensor([0, 0, 0, 1, 1]).expand(4, -1)
    together = network.decode(texts, network.encode(source), features={"document_ids": documents})
    apart = [network.decode(part, network.encode(source)) for part in (texts[:, :3], texts[:, 3:])]
    torch.testing.assert_close(together, torch.cat(apart, dim=1), atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("layers", [(1, 3), (3, 1), (2, 2)])
def test_the_decoder_begins_where_the_encoder_ended_the_top_at_the_top(layers: tuple[int, int]) -> None:
    torch.manual_seed(0)
    config = RecurrentEncoderDecoderConfig(
        vocab_size=9, width=WIDTH, layers=layers[0], decoder_layers=layers[1], attention="none", cell="lstm"
    )
    network = build(config).double().eval()
    ids = torch.tensor([[1, 2, 3]])
    started: list[RecurrentState] = []
    for number in range(layers[1]):
        layer = network.get_submodule(f"decoder.layers.{number}")
        layer.register_forward_pre_hook(lambda _layer, arguments: started.append(arguments[2]))
    memory = network.encode(ids)
    network.decode(ids, memory)
    ends = memory.last  # type: ignore[attr-defined]
    assert len(ends) == layers[0]
    wanted = {(1, 3): [0, 0, 0], (3, 1): [2], (2, 2): [0, 1]}[layers]
    for start, number in zip(started, wanted, strict=True):
        torch.testing.assert_close(start, ends[number])
