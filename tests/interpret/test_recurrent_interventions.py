"""Interventions in recurrent networks."""

import copy

import pytest
import torch
from torch import nn

from family import ENCODERS, RECURRENT
from regard.errors import InputError
from regard.interpret.interventions import Intervention, apply_interventions
from regard.interpret.trace import Trace
from traces import make_trace

LANGUAGE_MODELS = [name for name, config in RECURRENT.items() if config.generates]
BAHDANAU = "recurrent encoder-decoder, Bahdanau"  # attends before each step


def fresh_trace(trace: Trace) -> Trace:
    return Trace(trace.model, trace.text, trace.options, trace.decoded)


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
@pytest.mark.parametrize("layer", [0, 1])
def test_recurrent_layer_off_equals_network_without_it(name: str, layer: int) -> None:
    trace = make_trace(name)
    twin = copy.deepcopy(trace.model.network)
    twin.get_submodule("decoder").layers = nn.ModuleList([twin.get_submodule(f"decoder.layers.{1 - layer}")])
    with apply_interventions(trace, [Intervention("decoder", layer)]):
        off = fresh_trace(trace).recording.logits()
    with torch.no_grad():
        expected = twin.logits(twin.decode(torch.tensor([trace.decoded.input_ids])))[0].float()
    torch.testing.assert_close(off, expected, atol=1e-5, rtol=0)


def test_bidirectional_layer_off_bypasses_both_directions() -> None:
    trace = make_trace("bidirectional, classes")
    with apply_interventions(trace, [Intervention("encoder", 0)]):
        changed_trace = fresh_trace(trace)
        assert torch.equal(
            changed_trace.activation("encoder.0.states"), changed_trace.activation("encoder.embedding.states")
        )
    assert trace.intervene(Intervention("encoder", 0)).cost != 0


@pytest.mark.parametrize("name", [BAHDANAU, "recurrent encoder-decoder, bottleneck", "recurrent encoder-decoder, dot"])
@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_every_recurrent_layer_can_be_switched_off(name: str, stack: str) -> None:
    trace = make_trace(name)
    before = trace.recording.fresh().logits()
    for layer in (0, 1):
        assert trace.intervene(Intervention(stack, layer)).cost != 0
    assert torch.equal(before, trace.recording.fresh().logits())


@pytest.mark.parametrize("name", [BAHDANAU, "recurrent encoder-decoder, dot"])  # GRU, LSTM
def test_direction_off_outputs_zero_and_has_zero_state(name: str) -> None:
    trace = make_trace(name)
    with apply_interventions(trace, [Intervention.parse("encoder.1.backwards")]):
        changed_trace = fresh_trace(trace)
        states = changed_trace.activation("encoder.states")
        memory = trace.model.network.encode(torch.tensor([trace.decoded.source_ids]))
    width = states.size(-1) // 2
    assert not states[:, width:].any()
    assert states[:, :width].any()
    assert all(not part[:, width:].any() for part in memory.last[1])  # type: ignore[attr-defined]


def test_attending_layer_off_outputs_zero() -> None:
    trace = make_trace(BAHDANAU)
    with apply_interventions(trace, [Intervention("decoder", 0)]):
        changed_trace = fresh_trace(trace)
        assert not changed_trace.activation("decoder.0.forwards.hidden").any()
        assert changed_trace.activation("decoder.cross_attention.context").any()


@pytest.mark.parametrize(
    ("name", "change", "message"),
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
def test_parts_that_recurrent_networks_lack_are_errors(name: str, change: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        make_trace(name).intervene(Intervention.parse(change))
    assert str(error.value) == message


@pytest.mark.parametrize("name", [name for name in ENCODERS if name.startswith("bidirectional")])
def test_either_direction_can_be_switched_off(name: str) -> None:
    trace = make_trace(name)
    for direction in ("forwards", "backwards"):
        assert trace.intervene(Intervention("encoder", 1, direction)).cost != 0
