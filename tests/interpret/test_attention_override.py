"""Attention weights replaced by fixed ones."""

import math

import pytest
import torch

from family import TOLERANCE
from regard.errors import InputError
from regard.interpret.interventions import Intervention, OverrideSpec, apply_interventions
from regard.interpret.trace import Trace
from traces import SHORT, make_trace

WEIGHTS = (0.5, 0.25, 0.125, 0.125, 0.0)  # for the four tokens of the text and its end token


def weights_with(trace: Trace, intervention: Intervention) -> torch.Tensor:
    weights: list[torch.Tensor] = []
    with apply_interventions(trace, [intervention]):
        tap = trace.points[f"{intervention.place}.weights"].module
        handle = tap.register_forward_hook(lambda _module, _inputs, output: weights.append(output[0]))
        Trace(trace.model, trace.text, trace.options, trace.decoded).recording.logits()
        handle.remove()
    return weights[0]  # (H, T, S)


@pytest.mark.parametrize("place", ["decoder.1.cross_attention", "encoder.0.attention"])
def test_override_sets_the_weights_of_one_head(place: str) -> None:
    trace = make_trace("encoder-decoder")
    stack, layer, part = place.split(".")
    weights = weights_with(trace, Intervention(stack, int(layer), part, 2, WEIGHTS))
    expected = torch.tensor(WEIGHTS, dtype=torch.float64).expand_as(weights[2])
    torch.testing.assert_close(weights[2], expected, atol=TOLERANCE, rtol=0)
    if stack == "encoder":
        torch.testing.assert_close(weights[1], trace.activation(f"{place}.weights")[1])


@pytest.mark.slow
@pytest.mark.parametrize("to", [2, (0.0, 0.0, 0.5, 0.5, *[0.0] * 9)])
def test_override_respects_the_causal_mask(to: int | tuple[float, ...]) -> None:
    trace = make_trace("encoder-decoder")
    before = trace.activation("decoder.0.attention.weights")
    count = before.size(-1)
    weights = weights_with(trace, Intervention("decoder", 0, "attention", 1, to if isinstance(to, int) else to[:count]))
    torch.testing.assert_close(weights[1, :2], before[1, :2], atol=TOLERANCE, rtol=0)  # neither key is visible yet
    for row in range(2, count):
        share = 1.0 if isinstance(to, int) or row == 2 else 0.5  # of the third token; the rest is on the fourth
        assert float(weights[1, row, 2]) == pytest.approx(share)
        assert float(weights[1, row].sum()) == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["encoder-decoder", "encoder-decoder, window", "encoder-decoder, relative"])
def test_override_reaches_unmasked_keys_with_zero_weight(name: str) -> None:
    """Softmax of very different scores gives weights of 0, as masking does; only masked keys stay out of reach."""
    trace = make_trace(name)
    with torch.no_grad():
        for stack in ("encoder", "decoder"):
            trace.model.network.get_parameter(f"{stack}.layers.0.attention.query_key_value.weight").mul_(1e4)
    before = trace.activation("encoder.0.attention.weights")[1]
    masked = trace.activation("encoder.0.attention.masked")[1]
    assert ((before == 0) & (masked > -math.inf)).any()
    weights = weights_with(trace, Intervention.parse("encoder.0.attention[1]=even"))[1]
    allowed = (masked > -math.inf).double()
    torch.testing.assert_close(weights, allowed / allowed.sum(-1, keepdim=True), atol=TOLERANCE, rtol=0)
    weights = weights_with(trace, Intervention.parse("decoder.0.attention[1]=1"))[1]
    within = trace.activation("decoder.0.attention.masked")[1, :, 1] > -math.inf
    assert not within[0]
    assert within[1]
    assert bool((weights[within, 1] == 1).all())
    torch.testing.assert_close(weights[~within], trace.activation("decoder.0.attention.weights")[1][~within])


@pytest.mark.parametrize("name", ["recurrent encoder-decoder, dot", "recurrent encoder-decoder, Bahdanau"])
def test_override_of_recurrent_attention(name: str) -> None:
    trace = make_trace(name)
    before = trace.activation("decoder.cross_attention.weights")
    weights = weights_with(trace, Intervention.parse("decoder.cross_attention=2"))
    assert before.size(-1) == weights.size(-1) == 5
    assert weights[..., 2].eq(1).all()


@pytest.mark.parametrize("to", ["even", 1, (1.0,), (0.5, 0.25, 0.25)])
def test_override_round_trips_through_text(to: OverrideSpec) -> None:
    intervention = Intervention("encoder", 0, "attention", 2, to)
    assert Intervention.parse(str(intervention)) == intervention


def test_override_acts_alike_on_search_and_full_pass() -> None:
    """The search decodes one token at a time, the full pass all at once: the override acts on both."""
    trace = make_trace("decoder-only")
    intervention = Intervention.parse("decoder.0.attention=2")
    result = trace.intervene(intervention)
    with apply_interventions(trace, [intervention]):
        again = Trace(trace.model, trace.text, trace.options, trace.decoded)
        logits = again.recording.logits()
    first = result.first_difference if result.first_difference is not None else len(trace.steps) - 1
    assert result.tokens[first] == trace.model.target_tokenizer.ids_to_tokens([int(logits[first].argmax())])[0]


@pytest.mark.parametrize(
    ("change", "message"),
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
def test_invalid_override_is_an_error(change: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        make_trace("encoder-decoder", search=SHORT).intervene(Intervention.parse(change))
    assert str(error.value) == message
