"""A recurrent layer that is off is one that is not there; a direction that is off says nothing."""

import copy

import pytest
import torch
from torch import nn

from family import ENCODERS, RECURRENT
from looking import traced
from regard.errors import InputError
from regard.interpret.interventions import Intervention, apply_interventions
from regard.interpret.trace import Trace

WRITERS = [name for name, config in RECURRENT.items() if config.generates]
BEFORE = "recurrent encoder-decoder, Bahdanau"  # looks at the source before each step


def again(trace: Trace) -> Trace:
    return Trace(trace.model, trace.text, trace.options, trace.decoded)


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("layer", [0, 1])
def test_a_layer_that_is_off_is_not_there(name: str, layer: int) -> None:
    trace = traced(name)
    twin = copy.deepcopy(trace.model.network)
    twin.get_submodule("decoder").layers = nn.ModuleList([twin.get_submodule(f"decoder.layers.{1 - layer}")])
    with apply_interventions(trace, [Intervention("decoder", layer)]):
        off = again(trace).recording.logits()
    with torch.no_grad():
        expected = twin.logits(twin.decode(torch.tensor([trace.decoded.input_ids])))[0].float()
    torch.testing.assert_close(off, expected, atol=1e-5, rtol=0)


def test_a_layer_of_both_directions_is_left_out_of_both() -> None:
    trace = traced("bidirectional, classes")
    with apply_interventions(trace, [Intervention("encoder", 0)]):
        found = again(trace)
        assert torch.equal(found.activation("encoder.0.states"), found.activation("encoder.embedding.states"))
    assert trace.intervene(Intervention("encoder", 0)).cost != 0


@pytest.mark.parametrize("name", [BEFORE, "recurrent encoder-decoder, bottleneck", "recurrent encoder-decoder, dot"])
@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_every_layer_of_a_translator_can_be_switched_off(name: str, stack: str) -> None:
    trace = traced(name)
    before = trace.recording.fresh().logits()
    for layer in (0, 1):
        assert trace.intervene(Intervention(stack, layer)).cost != 0
    assert torch.equal(before, trace.recording.fresh().logits())


@pytest.mark.parametrize("name", [BEFORE, "recurrent encoder-decoder, dot"])  # GRU, LSTM
def test_a_direction_that_is_off_is_zero_and_leaves_no_state(name: str) -> None:
    trace = traced(name)
    with apply_interventions(trace, [Intervention.parse("encoder.1.backwards")]):
        found = again(trace)
        states = found.activation("encoder.states")
        memory = trace.model.network.encode(torch.tensor([trace.decoded.source_ids]))
    width = states.size(-1) // 2
    assert not states[:, width:].any()
    assert states[:, :width].any()
    assert all(not part[:, width:].any() for part in memory.last[1])  # type: ignore[attr-defined]


def test_a_layer_that_looks_at_the_source_as_it_goes_says_nothing_when_it_is_off() -> None:
    trace = traced(BEFORE)
    with apply_interventions(trace, [Intervention("decoder", 0)]):
        found = again(trace)
        assert not found.activation("decoder.0.forwards.hidden").any()
        assert found.activation("decoder.cross_attention.context").any()


@pytest.mark.parametrize(
    ("name", "change", "sentence"),
    [
        (
            "recurrent language model, LSTM",
            "decoder.7",
            "There is no decoder.7 to change; the parts that can be changed are decoder.0.forwards, "
            "decoder.1.forwards.",
        ),
        (
            "recurrent language model, LSTM",
            "decoder.0.forwards[1]",
            "decoder.0.forwards: has no heads; leave the head out to switch all of it off.",
        ),
        (
            "bidirectional, tags",
            "encoder.0.forwards=even",
            "encoder.0.forwards: has no attention weights to replace; switch it off instead.",
        ),
    ],
)
def test_what_a_recurrent_network_has_not_is_said(name: str, change: str, sentence: str) -> None:
    with pytest.raises(InputError) as found:
        traced(name).intervene(Intervention.parse(change))
    assert str(found.value) == sentence


@pytest.mark.parametrize("name", [name for name in ENCODERS if name.startswith("bidirectional")])
def test_either_direction_of_an_encoder_can_be_switched_off(name: str) -> None:
    trace = traced(name)
    for direction in ("forwards", "backwards"):
        assert trace.intervene(Intervention("encoder", 1, direction)).cost != 0
