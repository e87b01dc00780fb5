"""Activations by address: labels, slices, products and error messages."""

from typing import Any

import pytest
import torch

from family import DECODERS, TOLERANCE
from regard.config import DecoderOnlyConfig
from regard.decoding.options import GenerationOptions, SearchOptions, TranslationOptions
from regard.errors import ConfigError, InputError
from regard.interpret.tensors import Address
from regard.interpret.trace import look
from traces import TEXT, TRANSFORMER_MODELS, make_trace, make_traced_model


def test_address_round_trips_through_text() -> None:
    for written in (
        "encoder.0.attention.q",
        "encoder.0.attention.q[2]",
        "output.logits@3",
        "decoder.1.attention.k[0]@1",
    ):
        assert str(Address.parse(written)) == written


def test_slice_has_the_labels_of_its_range() -> None:
    trace = make_trace("encoder-decoder")
    tensor = trace.tensor("decoder.1.cross_attention.weights[2]", rows=(1, 3), columns=(0, 2))
    assert tensor.axes == ("target", "source_key")
    assert tensor.shape == (len(trace.decoder_input), 5)
    assert tensor.slices == ((1, 3), (0, 2))
    assert tensor.labels == (trace.decoder_input[1:3], ["w5", "w9"])
    whole = trace.activation("decoder.1.cross_attention.weights")[2]
    assert torch.equal(torch.from_numpy(tensor.values), whole[1:3, 0:2])


def test_step_selects_its_row_and_visible_keys() -> None:
    trace = make_trace("encoder-decoder")
    weights = trace.tensor("decoder.0.attention.weights[1]@2")
    assert weights.shape == (1, 3)
    assert weights.labels == ([trace.decoder_input[2]], trace.decoder_input[:3])
    assert trace.tensor("decoder.0.attention.k[1]@2").labels[0] == trace.decoder_input[:3]
    assert trace.tensor("decoder.0.cross_attention.weights[1]@2").labels[1] == [*TEXT.split(), "[EOS]"]
    assert trace.tensor("output.probabilities@2", columns=(4, 7)).labels == (
        [trace.decoder_input[2]],
        ["w4", "w5", "w6"],
    )


def test_masked_scores_are_null_in_json() -> None:
    values: Any = make_trace("encoder-decoder").tensor("decoder.0.attention.masked[0]").as_dict()["values"]
    assert values[0][1] is None
    assert isinstance(values[1][1], float)


def test_matrices_are_oriented_for_x_times_w() -> None:
    trace = make_trace("encoder-decoder")
    weight = torch.from_numpy(trace.weight("encoder.1.attention.W_q", head=2).values)
    x, q = trace.activation("encoder.1.attention.input"), trace.activation("encoder.1.attention.q")[2]
    torch.testing.assert_close(x @ weight, q, atol=TOLERANCE, rtol=0)
    row = trace.weight("encoder.embedding.weight", rows=(5, 6))
    assert row.labels[0] == ["w5"]
    assert torch.equal(torch.from_numpy(row.values)[0], trace.activation("encoder.embedding.lookup")[0])


BEFORE_NORM = {"q": "q_projected", "k": "k_projected", "logits": "uncapped"}  # products that are normalized or capped


@pytest.mark.parametrize("name", [name for name in DECODERS if name in TRANSFORMER_MODELS])
def test_every_product_is_the_sum_of_its_terms(name: str) -> None:
    trace, config = make_trace(name), DECODERS[name]
    for point in trace.points.values():
        products = ("q", "k", "v", "scores", "head_outputs", "added", "inner", "logits")
        before = point.name.removesuffix(point.point) + BEFORE_NORM.get(point.point, "")
        if before in trace.points:
            point = trace.points[before]
        elif point.point not in products:
            continue
        if point.axes[-1] == "mixture" or (point.point == "added" and point.product is None):  # of experts
            continue
        if "Linformer" in name and point.stack == "encoder" and point.point in ("scores", "head_outputs"):
            continue
        product = trace.product(f"{point.name}[1]" if point.heads else point.name, 1, 2)
        terms = sum(x * w for x, w in product.terms) + (product.bias or 0.0)
        assert terms == pytest.approx(product.sum, abs=1e-9)
        moved = config.positions.kind  # type: ignore[union-attr]
        turned = point.part == "attention" and (
            (moved == "rotary" and point.point in "qk")
            or (moved in ("relative", "syntax") and point.point == "head_outputs")
        )
        if not turned:
            assert product.value == pytest.approx(product.sum, abs=1e-9), point.name


MESSAGES = {
    "decoder.1.cross_atention.weights": "There is no point 'decoder.1.cross_atention.weights' in this network "
    "(did you mean decoder.1.cross_attention.weights?); the outline lists all points.",
    "weights of head 2": "'weights of head 2' is not an address; an address looks like "
    "decoder.1.cross_attention.weights[2]@3: a point, then optionally a head in brackets, then optionally a step "
    "after @.",
    "encoder.0.attention.q[4]": "encoder.0.attention.q[4]: there is no head 4; the heads are 0 to 3.",
    "encoder.states[0]": "encoder.states[0]: has no heads; its axes are source, unit.",
    "encoder.states@0": "encoder.states@0: the encoder runs once, before the first step; leave the step out.",
}


@pytest.mark.parametrize("address", MESSAGES)
def test_invalid_address_is_an_error(address: str) -> None:
    with pytest.raises(InputError) as input_error:
        make_trace("encoder-decoder").tensor(address)
    assert str(input_error.value) == MESSAGES[address]


def test_steps_ranges_and_sizes_are_checked() -> None:
    trace = make_trace("encoder-decoder")
    last = len(trace.decoder_input) - 1
    with pytest.raises(InputError) as input_error:
        trace.tensor("output.logits@99")
    assert str(input_error.value) == f"output.logits@99: there is no step 99; the steps are 0 to {last}."
    with pytest.raises(InputError) as input_error:
        trace.tensor("encoder.states", rows=(2, 9))
    assert str(input_error.value) == "encoder.states: has rows 0 to 5, which does not contain the range 2 to 9."
    with pytest.raises(InputError) as input_error:
        trace.tensor("encoder.0.attention_residual.mean", columns=(0, 1))
    assert str(input_error.value) == "encoder.0.attention_residual.mean: has no columns; its axes are source."
    with pytest.raises(InputError) as input_error:
        trace.tensor("encoder.states", max_numbers=20)
    assert str(input_error.value) == (
        "encoder.states: has 5 × 16 = 80 numbers, more than the limit of 20; "
        "request one head, one step, or fewer rows or columns."
    )
    with pytest.raises(InputError) as input_error:
        trace.weight("encoder.0.attention.W_x")
    assert str(input_error.value) == (
        "There is no matrix 'encoder.0.attention.W_x' (did you mean encoder.0.attention.W_v?); "
        "the outline lists all matrices."
    )
    with pytest.raises(InputError) as input_error:
        trace.product("encoder.states", 0, 0)
    assert str(input_error.value) == (
        "encoder.states: is not a matrix product; these points are: "
        "q, k, v, scores, head_outputs, added, inner, logits."
    )
    with pytest.raises(InputError) as input_error:
        trace.product("encoder.0.attention.q", 0, 0)
    assert str(input_error.value) == "encoder.0.attention.q: name a head from 0 to 3, as in encoder.0.attention.q[0]."
    with pytest.raises(InputError) as input_error:
        trace.product("encoder.0.attention.q[0]", 9, 0)
    assert str(input_error.value) == (
        "encoder.0.attention.q[0]: has 5 rows and 4 columns, counted from 0, so there is no element 9, 0."
    )


def test_invalid_texts_targets_and_options_are_errors() -> None:
    with pytest.raises(InputError) as input_error:
        make_trace("encoder-decoder", "  ")
    assert str(input_error.value) == "The text is empty; give at least one word."
    with pytest.raises(InputError) as input_error:
        make_trace("encoder-decoder", "w5", target="")
    assert str(input_error.value) == "The target is empty; give at least one word."
    with pytest.raises(InputError) as input_error:
        make_trace("decoder-only, learned positions", "w5 " * 50)
    assert str(input_error.value) == (
        "The text has 52 tokens, and a trace of this model can have 39; shorten it, or trace its sentences separately."
    )
    with pytest.raises(InputError) as input_error:
        make_trace("encoder-only", target="w5")
    assert str(input_error.value) == (
        "random: models of the kind encoder-only Transformer generate no text; leave the target out."
    )
    with pytest.raises(InputError) as input_error:
        make_trace("encoder-decoder", search=SearchOptions(beam=40))
    assert str(input_error.value) == "A beam of 40 is too large for a search tree; use a beam of 32 or less."
    with pytest.raises(ConfigError) as config_error:
        make_trace("encoder-decoder", options=GenerationOptions())
    assert (
        str(config_error.value)
        == "GenerationOptions does not apply to this kind of model; pass TranslationOptions or None."
    )
    with pytest.raises(ConfigError) as config_error:
        make_trace("decoder-only", options=TranslationOptions())
    assert (
        str(config_error.value)
        == "TranslationOptions does not apply to this kind of model; pass GenerationOptions or None."
    )


def test_network_without_causal_mask_has_no_trace() -> None:
    blind = make_traced_model(DecoderOnlyConfig(vocab_size=23, width=16, layers=1, heads=2, causal_mask=False))
    with pytest.raises(InputError) as input_error:
        look(blind, "w5 w6")
    assert str(input_error.value) == (
        "random: has no causal mask, so one pass over the whole target differs from decoding token by token and there "
        "is no trace; train the model with model.causal_mask = true."
    )
