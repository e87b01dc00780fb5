"""Attention that is told where to look looks there, as far as it may; what it cannot be told is refused."""

import math

import pytest
import torch

from family import TOLERANCE
from looking import SHORT, traced
from regard.errors import InputError
from regard.interpret.attention_override import OverrideSpec
from regard.interpret.interventions import Intervention, apply_interventions
from regard.interpret.trace import Trace

SHARES = (0.5, 0.25, 0.125, 0.125, 0.0)  # of the four tokens of the text, and its end


def weights_when(trace: Trace, change: Intervention) -> torch.Tensor:
    told: list[torch.Tensor] = []
    with apply_interventions(trace, [change]):
        tap = trace.points[f"{change.place}.weights"].module
        handle = tap.register_forward_hook(lambda _module, _inputs, output: told.append(output[0]))
        Trace(trace.model, trace.text, trace.options, trace.decoded).recording.logits()
        handle.remove()
    return told[0]  # (H, T, S)


@pytest.mark.parametrize("place", ["decoder.1.cross_attention", "encoder.0.attention"])
def test_a_head_can_be_given_any_weights(place: str) -> None:
    trace = traced("encoder-decoder")
    stack, layer, part = place.split(".")
    told = weights_when(trace, Intervention(stack, int(layer), part, 2, SHARES))
    expected = torch.tensor(SHARES, dtype=torch.float64).expand_as(told[2])
    torch.testing.assert_close(told[2], expected, atol=TOLERANCE, rtol=0)
    if stack == "encoder":
        torch.testing.assert_close(told[1], trace.activation(f"{place}.weights")[1])


@pytest.mark.parametrize("to", [2, (0.0, 0.0, 0.5, 0.5, *[0.0] * 9)])
def test_a_decoder_is_never_told_to_look_at_what_it_has_not_written(to: int | tuple[float, ...]) -> None:
    trace = traced("encoder-decoder")
    before = trace.activation("decoder.0.attention.weights")
    count = before.size(-1)
    told = weights_when(trace, Intervention("decoder", 0, "attention", 1, to if isinstance(to, int) else to[:count]))
    torch.testing.assert_close(told[1, :2], before[1, :2], atol=TOLERANCE, rtol=0)  # neither is there yet
    for row in range(2, count):
        share = 1.0 if isinstance(to, int) or row == 2 else 0.5  # of the third token; the fourth has the rest
        assert float(told[1, row, 2]) == pytest.approx(share)
        assert float(told[1, row].sum()) == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["encoder-decoder", "encoder-decoder, window", "encoder-decoder, relative"])
def test_a_key_that_hardly_weighs_anything_can_be_looked_at(name: str) -> None:
    """Softmax of scores that lie far apart gives 0, as it does to what is masked; only the latter may not be seen."""
    trace = traced(name)
    with torch.no_grad():
        for stack in ("encoder", "decoder"):
            trace.model.network.get_parameter(f"{stack}.layers.0.attention.query_key_value.weight").mul_(1e4)
    before = trace.activation("encoder.0.attention.weights")[1]
    masked = trace.activation("encoder.0.attention.masked")[1]
    assert ((before == 0) & (masked > -math.inf)).any()
    told = weights_when(trace, Intervention.parse("encoder.0.attention[1]=even"))[1]
    allowed = (masked > -math.inf).double()
    torch.testing.assert_close(told, allowed / allowed.sum(-1, keepdim=True), atol=TOLERANCE, rtol=0)
    told = weights_when(trace, Intervention.parse("decoder.0.attention[1]=1"))[1]
    within = trace.activation("decoder.0.attention.masked")[1, :, 1] > -math.inf
    assert not within[0]
    assert within[1]
    assert bool((told[within, 1] == 1).all())
    torch.testing.assert_close(told[~within], trace.activation("decoder.0.attention.weights")[1][~within])


@pytest.mark.parametrize("name", ["recurrent encoder-decoder, dot", "recurrent encoder-decoder, Bahdanau"])
def test_a_recurrent_decoder_can_be_told_where_to_look(name: str) -> None:
    trace = traced(name)
    before = trace.activation("decoder.cross_attention.weights")
    told = weights_when(trace, Intervention.parse("decoder.cross_attention=2"))
    assert before.size(-1) == told.size(-1) == 5
    assert told[..., 2].eq(1).all()


@pytest.mark.parametrize("to", ["even", 1, (1.0,), (0.5, 0.25, 0.25)])
def test_what_is_told_survives_its_spelling(to: OverrideSpec) -> None:
    change = Intervention("encoder", 0, "attention", 2, to)
    assert Intervention.parse(str(change)) == change


def test_what_is_decoded_again_is_what_is_read_again() -> None:
    """The search sees one token at a time, and a reading all of them: both are told the same."""
    trace = traced("decoder-only")
    change = Intervention.parse("decoder.0.attention=2")
    found = trace.intervene(change)
    with apply_interventions(trace, [change]):
        again = Trace(trace.model, trace.text, trace.options, trace.decoded)
        logits = again.recording.logits()
    first = found.first_difference if found.first_difference is not None else len(trace.steps) - 1
    assert found.tokens[first] == trace.model.target_tokenizer.ids_to_tokens([int(logits[first].argmax())])[0]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            "decoder.1.cross_attention=99",
            "decoder.1.cross_attention=99: there is no key 99; the keys are 0 to 4, 5 in all.",
        ),
        (
            "encoder.1.attention[2]=5",
            "encoder.1.attention[2]=5: there is no key 5; the keys are 0 to 4, 5 in all.",
        ),
        (
            "decoder.1.cross_attention[2]=0.5,0.5",
            "decoder.1.cross_attention[2]=0.5,0.5: has 2 weights for 5 keys; give one weight for each key.",
        ),
        (
            "decoder.1.cross_attention=1,",
            "decoder.1.cross_attention=1,: has 1 weights for 5 keys; give one weight for each key.",
        ),
        (
            "decoder.1.cross_attention=0.5,0.5,0.5,0,0",
            "decoder.1.cross_attention=0.5,0.5,0.5,0,0: attention weights must be 0 or more and sum to 1; these sum "
            "to 1.5. Change them.",
        ),
        (
            "decoder.1.cross_attention=1.5,-0.5,0,0,0",
            "decoder.1.cross_attention=1.5,-0.5,0,0,0: attention weights must be 0 or more and sum to 1; these sum "
            "to 1. Change them.",
        ),
        (
            "decoder.1.attention=all",
            "'decoder.1.attention=all' names no part to change; write decoder.1.cross_attention[2], "
            "decoder.1.feed_forward or encoder.0 to switch it off, or append =even, =KEY or a weight for each key, as "
            "in =0.5,0.5,0, to replace attention weights.",
        ),
    ],
)
def test_what_attention_cannot_be_told_is_said(change: str, sentence: str) -> None:
    with pytest.raises(InputError) as found:
        traced("encoder-decoder", search=SHORT).intervene(Intervention.parse(change))
    assert str(found.value) == sentence
