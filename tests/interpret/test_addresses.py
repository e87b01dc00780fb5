"""Numbers are served by address, with labels, in pieces of bounded size; what is not there is said."""

import pytest
import torch

from family import DECODERS, TOLERANCE
from looking import TEXT, TRANSFORMERS, subject, traced
from regard.config import DecoderOnlyConfig
from regard.decoding.options import GenerationOptions, SearchOptions, TranslationOptions
from regard.errors import ConfigError, InputError
from regard.interpret.address import Address
from regard.interpret.trace import look


def test_an_address_reads_as_it_is_written() -> None:
    for written in (
        "encoder.0.attention.q",
        "encoder.0.attention.q[2]",
        "output.logits@3",
        "decoder.1.attention.k[0]@1",
    ):
        assert str(Address.parse(written)) == written


def test_a_piece_has_the_labels_of_what_it_holds() -> None:
    trace = traced("encoder-decoder")
    found = trace.tensor("decoder.1.cross_attention.weights[2]", rows=(1, 3), columns=(0, 2))
    assert found.axes == ("target", "source_key")
    assert found.shape == (len(trace.read), 5)
    assert found.spans == ((1, 3), (0, 2))
    assert found.labels == (trace.read[1:3], ["w5", "w9"])
    whole = trace.whole("decoder.1.cross_attention.weights")[2]
    assert torch.equal(torch.from_numpy(found.values), whole[1:3, 0:2])


def test_a_step_shows_its_own_row_and_the_keys_that_it_could_see() -> None:
    trace = traced("encoder-decoder")
    weights = trace.tensor("decoder.0.attention.weights[1]@2")
    assert weights.shape == (1, 3)
    assert weights.labels == ([trace.read[2]], trace.read[:3])
    assert trace.tensor("decoder.0.attention.k[1]@2").labels[0] == trace.read[:3]
    assert trace.tensor("decoder.0.cross_attention.weights[1]@2").labels[1] == [*TEXT.split(), "[EOS]"]
    assert trace.tensor("output.probabilities@2", columns=(4, 7)).labels == ([trace.read[2]], ["w4", "w5", "w6"])


def test_json_has_null_where_a_query_may_not_look() -> None:
    values = traced("encoder-decoder").tensor("decoder.0.attention.masked[0]").as_dict()["values"]
    assert values[0][1] is None
    assert isinstance(values[1][1], float)


def test_weights_are_laid_so_that_x_times_w_reads_as_written() -> None:
    trace = traced("encoder-decoder")
    weight = torch.from_numpy(trace.weight("encoder.1.attention.W_q", head=2).values)
    x, q = trace.whole("encoder.1.attention.input"), trace.whole("encoder.1.attention.q")[2]
    torch.testing.assert_close(x @ weight, q, atol=TOLERANCE, rtol=0)
    row = trace.weight("encoder.embedding.weight", rows=(5, 6))
    assert row.labels[0] == ["w5"]
    assert torch.equal(torch.from_numpy(row.values)[0], trace.whole("encoder.embedding.lookup")[0])


@pytest.mark.parametrize("name", [name for name in DECODERS if name in TRANSFORMERS])
def test_every_product_is_the_sum_of_its_terms(name: str) -> None:
    trace, config = traced(name), DECODERS[name]
    for point in trace.points.values():
        products = ("q", "k", "v", "scores", "head_outputs", "added", "inner", "logits")
        if point.point not in products or (point.axes[-1] == "mixture"):
            continue
        if "Linformer" in name and point.stack == "encoder" and point.point in ("scores", "head_outputs"):
            continue
        found = trace.product(f"{point.name}[1]" if point.heads else point.name, 1, 2)
        terms = sum(x * w for x, w in found.terms) + (found.bias or 0.0)
        assert terms == pytest.approx(found.sum, abs=1e-9)
        moved = config.positions.kind  # type: ignore[union-attr]
        turned = point.part == "attention" and (
            (moved == "rotary" and point.point in "qk")
            or (moved in ("relative", "syntax") and point.point == "head_outputs")
        )
        if not turned:
            assert found.value == pytest.approx(found.sum, abs=1e-9), point.name


SENTENCES = {
    "decoder.1.cross_atention.weights": "There is no point 'decoder.1.cross_atention.weights' in this network (did you "
    "mean decoder.1.cross_attention.weights?); the outline lists all of them.",
    "weights of head 2": "'weights of head 2' is no address; one looks like decoder.1.cross_attention.weights[2]@3: a "
    "point, then perhaps a head in brackets, then perhaps a step after @.",
    "encoder.0.attention.q[4]": "encoder.0.attention.q[4]: there is no head 4; the heads are 0 to 3.",
    "encoder.states[0]": "encoder.states[0]: has no heads; its axes are source, unit.",
    "encoder.states@0": "encoder.states@0: the encoder reads the source once, before the first step; "
    "leave the step out.",
}


@pytest.mark.parametrize("address", SENTENCES)
def test_an_address_that_leads_nowhere_is_said_to(address: str) -> None:
    with pytest.raises(InputError) as found:
        traced("encoder-decoder").tensor(address)
    assert str(found.value) == SENTENCES[address]


def test_steps_parts_and_sizes_have_bounds() -> None:
    trace = traced("encoder-decoder")
    last = len(trace.read) - 1
    with pytest.raises(InputError) as found:
        trace.tensor("output.logits@99")
    assert str(found.value) == f"output.logits@99: there is no step 99; the steps are 0 to {last}."
    with pytest.raises(InputError) as found:
        trace.tensor("encoder.states", rows=(2, 9))
    assert str(found.value) == "encoder.states: has rows 0 to 5, so 2 to 9 is no part of them."
    with pytest.raises(InputError) as found:
        trace.tensor("encoder.0.attention_residual.mean", columns=(0, 1))
    assert str(found.value) == "encoder.0.attention_residual.mean: has no columns; its axes are source."
    with pytest.raises(InputError) as found:
        trace.tensor("encoder.states", most=20)
    assert str(found.value) == (
        "encoder.states: is 5 × 16 = 80 numbers, and 20 are the most that are given at once: "
        "ask for one head, one step, or fewer rows or columns."
    )
    with pytest.raises(InputError) as found:
        trace.weight("encoder.0.attention.W_x")
    assert str(found.value) == (
        "There is no matrix 'encoder.0.attention.W_x' (did you mean encoder.0.attention.W_v?); "
        "the outline lists all of them."
    )
    with pytest.raises(InputError) as found:
        trace.product("encoder.states", 0, 0)
    assert str(found.value) == (
        "encoder.states: is not one matrix product, which has a list of terms; "
        "q, k, v, scores, head_outputs, added, inner and logits are."
    )
    with pytest.raises(InputError) as found:
        trace.product("encoder.0.attention.q", 0, 0)
    assert str(found.value) == "encoder.0.attention.q: say which head, 0 to 3, as in encoder.0.attention.q[0]."
    with pytest.raises(InputError) as found:
        trace.product("encoder.0.attention.q[0]", 9, 0)
    assert str(found.value) == ("encoder.0.attention.q[0]: has 5 rows and 4 columns, counted from 0; there is no 9, 0.")


def test_a_text_must_be_one_that_can_be_looked_at() -> None:
    with pytest.raises(InputError) as found:
        traced("encoder-decoder", "  ")
    assert str(found.value) == "There is no text to look at: give a sentence."
    with pytest.raises(InputError) as found:
        traced("encoder-decoder", "w5", target="")
    assert str(found.value) == "There is no target to look at: give a sentence."
    with pytest.raises(InputError) as found:
        traced("decoder-only, learned positions", "w5 " * 50)
    assert str(found.value) == (
        "The text is 52 tokens long, and a trace of this network has room for 39: "
        "shorten it, or look at its sentences one by one."
    )
    with pytest.raises(InputError) as found:
        traced("encoder-only", target="w5")
    assert str(found.value) == (
        "random: is of the kind encoder-only Transformer, which writes nothing: leave the target out."
    )
    with pytest.raises(InputError) as found:
        traced("encoder-decoder", search=SearchOptions(width=40))
    assert str(found.value) == "A tree of a beam of 40 is too wide to look at; up to 32 can be shown."
    with pytest.raises(ConfigError) as wrong:
        traced("encoder-decoder", wish=GenerationOptions())
    assert str(wrong.value) == "a GenerationOptions does not fit this model; give a TranslationOptions, or none."
    with pytest.raises(ConfigError) as wrong:
        traced("decoder-only", wish=TranslationOptions())
    assert str(wrong.value) == "a TranslationOptions does not fit this model; give a GenerationOptions, or none."


def test_a_network_without_its_look_ahead_mask_has_no_trace() -> None:
    blind = subject(DecoderOnlyConfig(vocab_size=23, width=16, layers=1, heads=2, causal_mask=False))
    with pytest.raises(InputError) as found:
        look(blind, "w5 w6")
    assert str(found.value) == (
        "random: has no look-ahead mask, so that reading a whole target is not what it computes token by token, and "
        "there is no trace of it; train it with model.causal_mask = true."
    )
