"""Interventions: equal to edited weights, effective in the search, limited to one thread."""

import copy
import threading
from typing import Any

import pytest
import torch
from rich.console import Console

from family import DECODERS, ENCODERS, MIXTURES, TOLERANCE
from regard.errors import InputError
from regard.interpret.forward_pass import Recording, thread_hooks
from regard.interpret.interventions import Intervention, apply_interventions
from regard.interpret.render.tables import format_experts
from regard.interpret.render.terminal import render_trace
from regard.interpret.trace import Trace
from regard.nn import MixtureOfExperts
from traces import SHORT, TRANSFORMER_MODELS, make_trace

WITH_HEADS = [name for name in DECODERS if name in TRANSFORMER_MODELS]
HEADS = [(name, "attention") for name in WITH_HEADS]
HEADS += [(name, "cross_attention") for name in WITH_HEADS if name.startswith("encoder-decoder")]
WITHOUT_PARTS = (
    "recurrent encoder-decoder, bottleneck",
    *(name for name in DECODERS if name.startswith("recurrent language")),
)


def logits(trace: Trace, network: Any = None) -> torch.Tensor:
    written = trace.decoded
    recorded_logits = Recording(
        network or trace.model.network, written.source_ids, written.input_ids, written.features
    ).logits()
    return recorded_logits.detach()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "part"), HEADS)
def test_head_off_equals_zero_rows_of_w_o(name: str, part: str) -> None:
    trace, head = make_trace(name), 1
    twin = copy.deepcopy(trace.model.network)
    attention = twin.get_submodule(f"decoder.layers.0.{part}")
    width = int(attention.value_width)  # type: ignore[arg-type]
    with torch.no_grad():
        attention.output.weight[:, head * width : (head + 1) * width] = 0  # type: ignore[union-attr, operator]
    with apply_interventions(trace, [Intervention("decoder", 0, part, head)]):
        off = logits(trace)
    torch.testing.assert_close(off, logits(trace, twin), atol=1e-5, rtol=0)
    assert not torch.allclose(off, logits(trace), atol=1e-4)


@pytest.mark.parametrize("name", [name for name in DECODERS if name not in WITHOUT_PARTS])
def test_intervention_is_removed_afterwards(name: str) -> None:
    trace = make_trace(name)
    before = logits(trace)
    part = next(p for p in trace.points.values() if p.point in ("added", "context") and p.stack == "decoder")
    change = Intervention(part.stack, part.layer, part.part.removesuffix("_residual"))
    result = trace.intervene(change)
    assert torch.equal(before, logits(trace))
    assert result.cost != 0


def test_search_runs_with_the_intervention_and_result_compares_outputs() -> None:
    trace = make_trace("encoder-decoder")
    change = Intervention.parse("decoder.1.cross_attention")
    result = trace.intervene(change)
    with apply_interventions(trace, [change]):
        expected = decode_again(trace)
    assert result.after == expected
    assert result.before == trace.output
    assert result.same == (result.after == result.before)
    total = sum(step.after for step in result.steps)
    with apply_interventions(trace, [change]):
        rows = logits(trace).log_softmax(-1)
    assert total == pytest.approx(sum(float(rows[n, i]) for n, i in enumerate(trace.decoded.target_ids)), abs=1e-4)
    assert all(step.kl_divergence >= 0 for step in result.steps)


def decode_again(trace: Trace) -> str:
    from regard.interpret.trace import look

    return look(trace.model, trace.text, trace.options).output


def test_layer_off_adds_nothing() -> None:
    trace = make_trace("encoder-decoder, pre-norm, RMS, SwiGLU")
    with apply_interventions(trace, [Intervention.parse("encoder.0")]):
        fresh = Trace(trace.model, trace.text, trace.options, trace.decoded)
        into = fresh.activation("encoder.embedding.sum")
        out = fresh.activation("encoder.0.feed_forward_residual.sum")
    assert torch.equal(into, out)


def test_even_attention_is_uniform_over_allowed_keys() -> None:
    trace = make_trace("encoder-decoder")
    recorded: list[torch.Tensor] = []
    hook = trace.model.network.taps["decoder.layers.0.attention.kernel.weights"]
    with apply_interventions(trace, [Intervention.parse("decoder.0.attention[1]=even")]):
        handle = hook.register_forward_hook(lambda _module, _inputs, output: recorded.append(output[0]))
        logits(trace)
        handle.remove()
    count = recorded[0].size(-1)
    expected = torch.ones(count, count).double().tril() / torch.arange(1, count + 1)[:, None]
    torch.testing.assert_close(recorded[0][1], expected, atol=TOLERANCE, rtol=0)
    torch.testing.assert_close(recorded[0][0], trace.activation("decoder.0.attention.weights")[0])


def test_one_hot_attention_outputs_one_value() -> None:
    trace = make_trace("encoder-decoder")
    only = Intervention.parse("decoder.1.cross_attention=2")
    with apply_interventions(trace, [only]):
        fresh = Trace(trace.model, trace.text, trace.options, trace.decoded)
        outputs, v = (
            fresh.activation("decoder.1.cross_attention.head_outputs"),
            fresh.activation("decoder.1.cross_attention.v"),
        )
    torch.testing.assert_close(outputs, v[:, 2:3].expand_as(outputs))


def test_intervention_does_not_affect_other_threads() -> None:
    trace = make_trace("encoder-decoder")
    before, elsewhere = logits(trace), list[torch.Tensor]()
    with apply_interventions(trace, [Intervention.parse("decoder.1.cross_attention")]):
        other = threading.Thread(target=lambda: elsewhere.append(logits(trace)))
        other.start()
        other.join()
        assert not torch.allclose(logits(trace), before, atol=1e-4)
    torch.testing.assert_close(elsewhere[0], before, atol=1e-5, rtol=0)


def test_hooks_do_not_see_other_threads() -> None:
    trace, seen = make_trace("encoder-decoder"), list[torch.Tensor]()
    tap = trace.points["encoder.0.attention.q"].module
    with thread_hooks([(tap, lambda _, output: seen.append(output))]):
        other = threading.Thread(target=lambda: logits(trace))
        other.start()
        other.join()
        assert seen == []
        logits(trace)
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            "decoder.7.attention",
            "There is no decoder.7.attention to change (did you mean decoder.1.attention?); the parts that can be "
            "changed are encoder.0.attention, encoder.0.feed_forward, encoder.1.attention, encoder.1.feed_forward, "
            "decoder.0.attention, decoder.0.cross_attention, decoder.0.feed_forward, decoder.1.attention, "
            "decoder.1.cross_attention, decoder.1.feed_forward.",
        ),
        ("decoder.1.attention[4]", "decoder.1.attention[4]: there is no head 4; the heads are 0 to 3."),
        (
            "decoder.1.feed_forward[0]",
            "decoder.1.feed_forward: has no heads; leave the head out to switch all of it off.",
        ),
        (
            "decoder.1.feed_forward=even",
            "decoder.1.feed_forward: has no attention weights to replace; switch it off instead.",
        ),
        (
            "Decoder 1",
            "'Decoder 1' names no part to change; write decoder.1.cross_attention[2], decoder.1.feed_forward or "
            "encoder.0 to switch it off, or append =even, =KEY or a weight for each key, as in =0.5,0.5,0, to replace "
            "attention weights.",
        ),
    ],
)
def test_invalid_intervention_is_an_error(change: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        make_trace("encoder-decoder", search=SHORT).intervene(Intervention.parse(change))
    assert str(error.value) == message


def test_intervention_round_trips_through_text() -> None:
    for written in (
        "decoder.1.cross_attention[2]",
        "encoder.0",
        "decoder.0.attention=even",
        "decoder.0.attention[1]=3",
        "decoder.0.attention[1]=0.5,0.25,0.25",
    ):
        assert str(Intervention.parse(written)) == written


def test_missing_intervention_or_output_is_an_error() -> None:
    with pytest.raises(InputError, match="No intervention was given; name a head, a sub-layer or a layer"):
        make_trace("encoder-decoder").intervene()
    with pytest.raises(InputError, match="This network predicts nothing, so there is no output to compare"):
        make_trace("encoder-only").intervene(Intervention("encoder", 0))


@pytest.mark.parametrize("name", [name for name in MIXTURES if name in DECODERS])
def test_expert_off_equals_a_zero_expert(name: str) -> None:
    trace = make_trace(name)
    expert = int(trace.activation("decoder.0.feed_forward.gates").sum(0).argmax())
    twin = copy.deepcopy(trace.model.network)
    layer = twin.get_submodule("decoder.layers.0.feed_forward")
    assert isinstance(layer, MixtureOfExperts)
    with torch.no_grad():
        for parameter in layer.experts[expert].parameters():
            parameter.zero_()
    change = Intervention.parse(f"decoder.0.feed_forward[{expert}]")
    with apply_interventions(trace, [change]):
        off = logits(trace)
    torch.testing.assert_close(off, logits(trace, twin), atol=TOLERANCE, rtol=0)
    assert not torch.allclose(off, logits(trace), atol=1e-4)
    assert trace.intervene(change).cost != 0
    with pytest.raises(InputError, match=r"decoder.0.feed_forward\[9\]: there is no expert 9; the experts are 0 to"):
        trace.intervene(Intervention.parse("decoder.0.feed_forward[9]"))


@pytest.mark.parametrize("name", MIXTURES)
def test_a_trace_has_the_values_of_every_expert(name: str) -> None:
    trace = make_trace(name)
    stack = "encoder" if name in ENCODERS else "decoder"
    place = f"{stack}.0.feed_forward"
    gates, outputs = trace.activation(f"{place}.gates"), trace.activation(f"{place}.expert_outputs")
    added = trace.activation(f"{place}_residual.added")
    torch.testing.assert_close(torch.einsum("te,etc->tc", gates, outputs), added, atol=TOLERANCE, rtol=0)
    for expert in range(len(outputs)):
        part = trace.tensor(f"{place}.expert_outputs[{expert}]").values
        torch.testing.assert_close(torch.from_numpy(part), outputs[expert])
        hidden = trace.activation(f"{place}.experts.{expert}.hidden")
        weight = torch.from_numpy(trace.weight(f"{place}.experts.{expert}.W_2").values)
        bias = outputs[expert] - hidden @ weight
        torch.testing.assert_close(bias, bias[:1].expand_as(bias), atol=TOLERANCE, rtol=0)
    chosen = trace.activation(f"{place}.chosen")
    probabilities = trace.activation(f"{place}.probabilities")
    assert chosen[:, 0].long().tolist() == probabilities.argmax(-1).tolist()
    product = trace.product(f"{place}.logits", 0, 1)
    assert sum(a * b for a, b in product.terms) == pytest.approx(product.value)


def test_experts_are_shown_in_the_terminal_and_on_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    trace = make_trace("decoder-only, experts of SwiGLU, rotary")
    gates = trace.chosen_experts("decoder.0")
    assert gates is not None
    shown = format_experts(gates[0])
    assert len(gates[0]) == 2
    assert sum(gates[0].values()) == pytest.approx(1.0)
    assert shown in trace.as_html()
    console = Console(width=200)
    for part in render_trace(trace):
        console.print(part)
    out = capsys.readouterr().out
    assert "norms, and experts:" in out
    assert shown in out
    assert make_trace("decoder-only").chosen_experts("decoder.0") is None
