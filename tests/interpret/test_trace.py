"""Every number in a trace is the one that the network computes, and the one that its weights give by the formula."""

import json
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from family import DECODERS, FAMILY, RECURRENT, TOLERANCE
from looking import ALIGNING, TEXT, TRANSFORMERS, TRANSLATORS, WRITERS, facts, traced
from regard.config import TransformerConfig
from regard.interpret import recording
from regard.interpret.matrices import matrices_of
from regard.interpret.trace import Trace
from regard.nn.attention import attend
from regard.nn.taps import record_taps

PAIRS = ("alibi", "relative", "syntax")  # positions that say something of each pair of tokens


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("name", FAMILY)
def test_every_tap_of_every_network_has_an_address_and_the_axes_it_says(name: str) -> None:
    trace = traced(name)
    shown = {id(point.module) for point in trace.points.values()}
    assert [tap for tap, module in trace.model.network.taps.items() if id(module) not in shown] == []
    sizes = {axis: len(trace.labels(axis) or []) for axis in ("source", "target", "source_key", "target_key")}
    for point in trace.points.values():
        values = trace.activation(point.name)
        assert values.dim() == len(point.axes), point.name
        for axis, size in zip(point.axes, values.shape, strict=True):
            assert size == sizes.get(axis, size), (point.name, axis)


@pytest.mark.parametrize("name", DECODERS)
def test_decoding_token_by_token_gives_the_same_numbers_as_the_trace(name: str) -> None:
    trace = traced(name)
    network, written = trace.model.network, trace.decoded
    assert written.input_ids is not None
    source = written.source_ids
    memory = None if source is None else network.encode(torch.tensor([source]), features=facts(trace))
    cache = network.new_cache()
    taps = {id(module): tap for tap, module in network.taps.items()}
    for step, number in enumerate(written.input_ids):
        with record_taps(network) as seen, torch.no_grad():
            network.logits(network.decode(torch.tensor([[number]]), memory, cache))
        for point in trace.points.values():
            if point.transform is not None or point.reads != "output" or id(point.module) not in taps:
                continue
            if point.stack == "encoder" or taps[id(point.module)] not in seen:
                continue
            value = seen[taps[id(point.module)]][0]
            value = value[0] if value.dim() > len(point.axes) else value
            shown = torch.from_numpy(trace.tensor(f"{point.name}@{step}").values)
            for axis, kind in enumerate(point.axes):
                if kind == "target_key":  # a cache hands over new keys only, and a window's forgets the oldest
                    shown = shown.narrow(axis, shown.size(axis) - value.size(axis), value.size(axis))
            close(shown, value)


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_attention_is_what_the_formula_gives_from_the_weights(name: str) -> None:
    trace, config = traced(name), FAMILY[name]
    assert isinstance(config, TransformerConfig)
    weights = {key: matrix.take() for key, matrix in matrices_of(trace.model.network).items()}
    for point in [point for point in trace.points.values() if point.point == "head_outputs"]:
        place = point.name.removesuffix(".head_outputs")
        value = {
            key: trace.activation(f"{place}.{key}") for key in ("input", "q", "k", "v", "scores", "scaled", "masked")
        }
        looked = trace.activation(f"{place}.weights")
        x = value["input"]
        other = x if point.part == "attention" else trace.activation("encoder.states")
        at_pairs = point.part == "attention" and config.positions.kind
        if at_pairs != "rotary":
            close(value["q"], _projected(x, weights, place, "q"))
            close(value["k"], _projected(other, weights, place, "k"))
        close(value["v"], _projected(other, weights, place, "v"))
        mixes = trace.points[f"{place}.scores"].axes[-1] == "mixture"
        if not mixes:
            close(value["scores"], value["q"] @ value["k"].mT)
        if at_pairs not in PAIRS:
            close(value["scaled"], value["scores"] * value["q"].size(-1) ** -0.5)
        seen = value["masked"] > -torch.inf
        close(value["masked"], value["scaled"].masked_fill(~seen, -torch.inf))
        close(looked, value["masked"].softmax(-1))
        close(looked.sum(-1), torch.ones_like(looked[..., 0]))
        if not mixes and at_pairs not in PAIRS:
            out, by_formula = attend(value["q"], value["k"], value["v"], seen)
            close(by_formula, looked)
            close(trace.activation(point.name), out)
        joined = trace.activation(point.name).transpose(0, 1).flatten(1)
        close(trace.activation(f"{place}.concatenation"), joined)
        bias = weights.get(f"{place}.b_o", torch.zeros(()))
        close(trace.activation(f"{place}_residual.added"), joined @ weights[f"{place}.W_o"] + bias)


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_sums_norms_and_feed_forward_are_what_the_formulas_give(name: str) -> None:
    trace, config = traced(name), FAMILY[name]
    assert isinstance(config, TransformerConfig)
    network = trace.model.network
    weights = {key: matrix.take() for key, matrix in matrices_of(network).items()}
    for point in [point for point in trace.points.values() if point.point == "normed"]:
        place = point.name.removesuffix(".normed")
        value = {
            one.point: trace.activation(one.name) for one in trace.points.values() if one.name.startswith(f"{place}.")
        }
        normed = _normed(value)
        close(value["normed"], normed)
        sublayer = place.removesuffix("_residual")
        if config.norm_order == "post":
            close(value["norm_input"], value["sum"])
            close(value["sum"], trace.activation(f"{sublayer}.input") + value["added"])
        else:
            close(value["normed"], trace.activation(f"{sublayer}.input"))
            close(value["sum"], value["norm_input"] + value["added"])
        if sublayer.endswith("feed_forward"):
            inner, hidden = trace.activation(f"{sublayer}.inner"), trace.activation(f"{sublayer}.hidden")
            bias = [weights.get(f"{sublayer}.b_{n}", torch.zeros(())) for n in (1, 2)]
            close(inner, trace.activation(f"{sublayer}.input") @ weights[f"{sublayer}.W_1"] + bias[0])
            close(value["added"], hidden @ weights[f"{sublayer}.W_2"] + bias[1])
            if config.activation == "relu":
                close(hidden, F.relu(inner))


def _normed(value: dict[str, Tensor]) -> Tensor:
    mean = value.get("mean", torch.zeros(()))
    centred = value["norm_input"] - (mean[:, None] if "mean" in value else 0)
    return centred / value["deviation"][:, None] * value["gain"] + value.get("bias", torch.zeros(()))


@pytest.mark.parametrize("name", FAMILY)
def test_embeddings_are_rows_of_the_matrix_and_what_is_added_to_them(name: str) -> None:
    trace = traced(name)
    weights = {key: matrix.take() for key, matrix in matrices_of(trace.model.network).items()}
    for stack, ids in (("encoder", trace.decoded.source_ids), ("decoder", trace.decoded.input_ids)):
        if ids is None:
            continue
        lookup, scaled, total = (trace.activation(f"{stack}.embedding.{key}") for key in ("lookup", "scaled", "sum"))
        close(lookup, weights[f"{stack}.embedding.weight"][ids])
        factor = lookup.size(1) ** 0.5 if getattr(FAMILY[name], "scale_embeddings", True) else 1.0
        close(scaled, lookup * factor)
        if f"{stack}.embedding.positions" in trace.points and not getattr(FAMILY[name], "segments", 0):
            places = [f"{stack}.embedding.{which}" for which in ("positions", "depth")]
            close(total, scaled + sum(trace.activation(place) for place in places if place in trace.points))


@pytest.mark.parametrize("name", DECODERS)
def test_steps_are_softmax_of_the_logits_and_the_logits_are_states_times_the_matrix(name: str) -> None:
    trace = traced(name)
    logits, states = trace.activation("output.logits"), trace.activation("decoder.states")
    weights = {key: matrix.take() for key, matrix in matrices_of(trace.model.network).items()}
    close(logits, states @ weights["output.W"] + weights.get("output.b", torch.zeros(())))
    probabilities = trace.activation("output.probabilities")
    close(probabilities, logits.exp() / logits.exp().sum(-1, keepdim=True))
    for step in trace.steps:
        row = probabilities[step.step]
        assert step.probability == pytest.approx(float(row[step.id]), abs=1e-6)
        assert step.entropy == pytest.approx(float(-(row * row.log()).sum()), abs=1e-5)
        assert step.rank == int((row > row[step.id]).sum())
        assert [one.id for one in step.candidates] == row.topk(10).indices.tolist()
        assert step.input_token == trace.decoder_input[step.step]


@pytest.mark.parametrize(
    "name", ["recurrent language model, LSTM", "recurrent encoder-decoder, dot", "bidirectional, LSTM"]
)
def test_gates_are_what_the_equations_of_an_lstm_give(name: str) -> None:
    trace = traced(name)
    weights = {key: matrix.take() for key, matrix in matrices_of(trace.model.network).items()}
    stack = "decoder" if "language model" in name else "encoder"
    for part in ("forwards", "backwards"):
        place = f"{stack}.0.{part}"
        if f"{place}.hidden" not in trace.points:
            continue
        x = trace.activation(f"{stack}.embedding.sum")
        order = range(len(x)) if part == "forwards" else reversed(range(len(x)))
        h = c = torch.zeros(weights[f"{place}.W_h"].size(0), dtype=torch.float64)
        for t in order:
            z = x[t] @ weights[f"{place}.W_x"] + h @ weights[f"{place}.W_h"]
            i, f, g, o = (z + weights[f"{place}.b_x"] + weights[f"{place}.b_h"]).chunk(4)
            close(trace.activation(f"{place}.forget_gate")[t], f.sigmoid())
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            close(trace.activation(f"{place}.cell")[t], c)
            close(trace.activation(f"{place}.hidden")[t], h)


@pytest.mark.parametrize("name", [name for name in RECURRENT if name in ALIGNING])
def test_what_a_recurrent_decoder_sees_is_its_weights_times_the_source(name: str) -> None:
    trace = traced(name)
    weights, context = (trace.activation(f"decoder.cross_attention.{key}") for key in ("weights", "context"))
    close(context, weights[0] @ trace.activation("encoder.states"))
    close(weights, trace.activation("decoder.cross_attention.scores").softmax(-1))


def test_a_cell_that_looks_before_its_step_is_given_what_was_seen() -> None:
    trace = traced("recurrent encoder-decoder, Bahdanau, LSTM, deeper decoder")
    weights = {key: matrix.take() for key, matrix in matrices_of(trace.model.network).items()}
    place = "decoder.0.forwards"
    x = torch.cat(
        [trace.activation("decoder.embedding.sum"), trace.activation("decoder.cross_attention.context")], dim=-1
    )
    h, c = trace.activation(f"{place}.hidden"), trace.activation(f"{place}.cell")
    z = x[1:] @ weights[f"{place}.W_x"] + h[:-1] @ weights[f"{place}.W_h"]
    i, f, g, o = (z + weights[f"{place}.b_x"] + weights[f"{place}.b_h"]).chunk(4, dim=-1)
    close(trace.activation(f"{place}.input_gate")[1:], i.sigmoid())
    close(c[1:], f.sigmoid() * c[:-1] + i.sigmoid() * g.tanh())
    close(h[1:], o.sigmoid() * c[1:].tanh())


def test_what_is_kept_is_bounded_and_what_was_dropped_comes_back_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    plenty = traced("encoder-decoder")
    monkeypatch.setattr(recording, "MAX_CACHED", 1)
    scarce = traced("encoder-decoder")
    for _ in range(2):
        for point in plenty.points:
            assert torch.equal(plenty.activation(point), scarce.activation(point))
            assert len(scarce.recording._groups) == 1


def test_an_outline_is_json_of_a_fixed_shape() -> None:
    trace = traced("encoder-decoder")
    found = json.loads(trace.as_json())
    assert list(found) == [
        "format", "kind", "forced", "forced_target", "text", "output", "model", "source", "merges", "target",
        "decoder_input", "steps", "search", "head", "mixing", "has_alignment", "points", "matrices", "notes",
        "tree", "units",
    ]  # fmt: skip
    assert found["format"] == 1
    assert list(found["model"]) == [
        "name", "kind", "family", "layers", "decoder_layers", "heads", "width", "vocab_size", "parameters"
    ]  # fmt: skip
    assert list(found["source"]) == ["text", "ids", "tokens", "words"]
    assert found["source"]["tokens"] == [*TEXT.split(), "[EOS]"]
    assert list(found["steps"][0]) == [
        "step", "input_token", "token", "id", "forced", "log_probability", "probability", "rank", "entropy",
        "candidates"
    ]  # fmt: skip
    assert list(found["steps"][0]["candidates"][0]) == ["id", "token", "probability"]
    assert list(found["points"][0]) == ["name", "stack", "layer", "part", "point", "axes", "description"]
    assert list(found["search"]) == ["beam", "length_penalty", "log_probability", "score", "finished"]
    assert list(found["tree"]["nodes"][0]) == [
        "number", "parent", "step", "token_id", "token", "token_log_probability", "log_probability", "score", "rank",
        "state", "on_best_path"
    ]  # fmt: skip


@pytest.mark.parametrize("name", FAMILY)
def test_every_network_has_an_outline(name: str) -> None:
    found: dict[str, Any] = json.loads(traced(name).as_json())
    assert bool(found["steps"]) == (name in DECODERS)
    assert (found["source"] is None) == (name in WRITERS)
    assert (found["tree"] is None) == (name not in TRANSLATORS)


def test_a_prompt_is_given_and_its_continuation_is_chosen() -> None:
    trace = traced("decoder-only")
    assert [step.forced for step in trace.steps] == [True] * 4 + [False] * 4
    assert trace.decoder_input[:5] == ["[SOS]", *TEXT.split()]
    assert trace.output.split() == [step.token for step in trace.steps[4:]]


def test_a_text_encoder_has_a_trace_of_its_vectors() -> None:
    trace = traced("encoder-only")
    assert trace.source is not None
    assert trace.source.tokens == ["[SOS]", *TEXT.split(), "[EOS]"]
    pooled = trace.activation("pooling.vector")
    close(pooled, trace.activation("encoder.states").mean(0))


def test_a_whole_trace_takes_one_pass_a_layer() -> None:
    trace: Trace = traced("encoder-decoder")
    passes: list[int] = []
    trace.model.network.get_submodule("decoder").register_forward_hook(lambda *_: passes.append(1))
    for point in trace.points:
        trace.activation(point)
    assert len(passes) == 4  # embedding and states; two layers; output


def _projected(x: Tensor, weights: dict[str, Tensor], place: str, letter: str) -> Tensor:
    bias = weights.get(f"{place}.b_{letter}")
    return x @ weights[f"{place}.W_{letter}"] + (0 if bias is None else bias[:, None])
