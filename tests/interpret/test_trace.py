"""Activations compared with cached decoding and with the formulas."""

import json
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from family import DECODERS, FAMILY, RECURRENT, TOLERANCE
from regard.config import TransformerConfig
from regard.interpret import forward_pass
from regard.interpret.trace import Trace
from regard.nn.attention import attend
from regard.nn.taps import record_taps
from traces import (
    ALIGNING_MODELS,
    LANGUAGE_MODELS,
    TEXT,
    TRANSFORMER_MODELS,
    TRANSLATION_MODELS,
    make_trace,
    trace_features,
)

PAIRWISE_POSITIONS = ("buckets", "alibi", "relative", "syntax")  # they add a term for each pair of tokens


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("name", FAMILY)
def test_every_tap_has_a_point_with_matching_axes(name: str) -> None:
    trace = make_trace(name)
    modules = {id(point.module) for point in trace.points.values()}
    assert [tap for tap, module in trace.model.network.taps.items() if id(module) not in modules] == []
    sizes = {axis: len(trace.labels(axis) or []) for axis in ("source", "target", "source_key", "target_key")}
    for point in trace.points.values():
        values = trace.activation(point.name)
        assert values.dim() == len(point.axes), point.name
        for axis, size in zip(point.axes, values.shape, strict=True):
            assert size == sizes.get(axis, size), (point.name, axis)


@pytest.mark.parametrize("name", DECODERS)
def test_activations_equal_those_of_cached_decoding(name: str) -> None:
    trace = make_trace(name)
    network, written = trace.model.network, trace.decoded
    assert written.input_ids is not None
    source = written.source_ids
    memory = None if source is None else network.encode(torch.tensor([source]), features=trace_features(trace))
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
            expected = torch.from_numpy(trace.tensor(f"{point.name}@{step}").values)
            for axis, kind in enumerate(point.axes):
                if kind == "target_key":  # a cache returns new keys only, and that of a window drops the oldest
                    expected = expected.narrow(axis, expected.size(axis) - value.size(axis), value.size(axis))
            close(expected, value)


@pytest.mark.parametrize("name", TRANSFORMER_MODELS)
def test_attention_follows_the_formula(name: str) -> None:
    trace, config = make_trace(name), FAMILY[name]
    assert isinstance(config, TransformerConfig)
    weights = {key: matrix.take() for key, matrix in trace.model.network.matrices().items()}
    for point in [point for point in trace.points.values() if point.point == "head_outputs"]:
        place = point.name.removesuffix(".head_outputs")
        value = {
            key: trace.activation(f"{place}.{key}") for key in ("input", "q", "k", "v", "scores", "scaled", "masked")
        }
        head_weights = trace.activation(f"{place}.weights")
        x = value["input"]
        other = x if point.part == "attention" else trace.activation("encoder.states")
        at_pairs = point.part == "attention" and config.positions.kind
        normalized = f"{place}.q_projected" in trace.points
        if normalized:
            value |= {key: trace.activation(f"{place}.{key}") for key in ("q_projected", "k_projected")}
        if normalized or at_pairs != "rotary":
            suffix = "_projected" if normalized else ""
            close(value[f"q{suffix}"], _projected(x, weights, place, "q"))
            close(value[f"k{suffix}"], _projected(other, weights, place, "k"))
        if normalized and at_pairs != "rotary":
            attention = trace.model.network.get_submodule(place.replace("coder.", "coder.layers.", 1))
            close(value["q"], _rms_normalized(value["q_projected"], attention.query_norm))
            close(value["k"], _rms_normalized(value["k_projected"], attention.key_norm))
        close(value["v"], _projected(other, weights, place, "v"))
        mixes = trace.points[f"{place}.scores"].axes[-1] == "mixture"
        if not mixes:
            close(value["scores"], value["q"] @ value["k"].mT)
        scale = value["q"].size(-1) ** -0.5 if config.scale_scores else 1.0
        if at_pairs not in PAIRWISE_POSITIONS:
            close(value["scaled"], value["scores"] * scale)
        if (cap := config.attention_soft_cap) is not None:
            value["scaled"] = cap * torch.tanh(value["scaled"] / cap)
            close(trace.activation(f"{place}.capped"), value["scaled"])
        seen = value["masked"] > -torch.inf
        close(value["masked"], value["scaled"].masked_fill(~seen, -torch.inf))
        close(head_weights, value["masked"].softmax(-1))
        close(head_weights.sum(-1), torch.ones_like(head_weights[..., 0]))
        if not mixes and at_pairs not in PAIRWISE_POSITIONS and cap is None:
            out, by_formula = attend(value["q"], value["k"], value["v"], seen, scale=scale)
            close(by_formula, head_weights)
            close(trace.activation(point.name), out)
        joined = trace.activation(point.name).transpose(0, 1).flatten(1)
        close(trace.activation(f"{place}.concatenation"), joined)
        bias = weights.get(f"{place}.b_o", torch.zeros(()))
        close(trace.activation(f"{place}_residual.added"), joined @ weights[f"{place}.W_o"] + bias)


@pytest.mark.parametrize("name", TRANSFORMER_MODELS)
def test_residuals_norms_and_feed_forward_follow_the_formulas(name: str) -> None:
    trace, config = make_trace(name), FAMILY[name]
    assert isinstance(config, TransformerConfig)
    network = trace.model.network
    weights = {key: matrix.take() for key, matrix in network.matrices().items()}
    for point in [point for point in trace.points.values() if point.point == "normed"]:
        place = point.name.removesuffix(".normed")
        value = {
            other.point: trace.activation(other.name)
            for other in trace.points.values()
            if other.name.startswith(f"{place}.")
        }
        sublayer = place.removesuffix("_residual")
        is_first = sublayer.endswith(".0.attention")
        if is_first and not config.first_norm:
            close(value["normed"], trace.activation(f"{sublayer}.input"))
            continue
        normed = _normed(value)
        close(value["normed"], normed)
        added = value["output_normed"] if config.sandwich_norm else value["added"]
        if config.norm_order == "post":
            close(value["norm_input"], value["sum"])
            close(value["sum"], trace.activation(f"{sublayer}.input") + value["added"])
        else:
            close(value["normed"], trace.activation(f"{sublayer}.input"))
            before = value["norm_input"]
            if config.parallel_sublayers and sublayer.endswith("feed_forward"):
                before = trace.activation(f"{sublayer.replace('feed_forward', 'attention_residual')}.sum")
            close(value["sum"], before + added)
        experts = range(config.experts)
        for layer in [f"{sublayer}.experts.{n}" for n in experts] or [sublayer] if "feed_forward" in sublayer else []:
            inner, hidden = trace.activation(f"{layer}.inner"), trace.activation(f"{layer}.hidden")
            bias = [weights.get(f"{layer}.b_{n}", torch.zeros(())) for n in (1, 2)]
            close(inner, trace.activation(f"{sublayer}.input") @ weights[f"{layer}.W_1"] + bias[0])
            if config.activation == "relu":
                close(hidden, F.relu(inner))
            if not experts:
                close(value["added"], hidden @ weights[f"{layer}.W_2"] + bias[1])


def _normed(value: dict[str, Tensor]) -> Tensor:
    mean = value.get("mean", torch.zeros(()))
    centered = value["norm_input"] - (mean[:, None] if "mean" in value else 0)
    return centered / value["deviation"][:, None] * value.get("gain", torch.ones(())) + value.get(
        "bias", torch.zeros(())
    )


@pytest.mark.parametrize("name", FAMILY)
def test_embeddings_are_rows_of_the_matrix_plus_positions(name: str) -> None:
    trace = make_trace(name)
    weights = {key: matrix.take() for key, matrix in trace.model.network.matrices().items()}
    for stack, ids in (("encoder", trace.decoded.source_ids), ("decoder", trace.decoded.input_ids)):
        if ids is None:
            continue
        lookup, scaled, total = (trace.activation(f"{stack}.embedding.{key}") for key in ("lookup", "scaled", "sum"))
        close(lookup, weights[f"{stack}.embedding.weight"][ids])
        factor = lookup.size(1) ** 0.5 if getattr(FAMILY[name], "scale_embeddings", True) else 1.0
        close(scaled, lookup * factor)
        if f"{stack}.embedding.positions" in trace.points and not getattr(FAMILY[name], "segments", 0):
            vectors = {
                which: trace.activation(f"{stack}.embedding.{which}")
                for which in ("positions", "depth", "fused_positions")
                if f"{stack}.embedding.{which}" in trace.points
            }
            if scaled.size(1) < total.size(1):
                close(total, torch.cat([scaled, vectors["positions"]], dim=-1))
            else:  # fused positions replace those that they are a function of
                close(total, scaled + vectors.get("fused_positions", sum(vectors.values())))


@pytest.mark.parametrize("name", DECODERS)
def test_steps_and_logits_follow_the_formulas(name: str) -> None:
    trace = make_trace(name)
    logits, states = trace.activation("output.logits"), trace.activation("decoder.states")
    weights = {key: matrix.take() for key, matrix in trace.model.network.matrices().items()}
    uncapped = trace.activation("output.uncapped") if "output.uncapped" in trace.points else logits
    close(uncapped, states @ weights["output.W"] + weights.get("output.b", torch.zeros(())))
    cap = getattr(FAMILY[name], "logit_soft_cap", None)
    close(logits, uncapped if cap is None else cap * torch.tanh(uncapped / cap))
    probabilities = trace.activation("output.probabilities")
    close(probabilities, logits.exp() / logits.exp().sum(-1, keepdim=True))
    for step in trace.steps:
        row = probabilities[step.step]
        assert step.probability == pytest.approx(float(row[step.id]), abs=1e-6)
        assert step.entropy == pytest.approx(float(-(row * row.log()).sum()), abs=1e-5)
        assert step.rank == int((row > row[step.id]).sum())
        assert [candidate.id for candidate in step.candidates] == row.topk(10).indices.tolist()
        assert step.input_token == trace.decoder_input[step.step]


@pytest.mark.parametrize(
    "name", ["recurrent language model, LSTM", "recurrent encoder-decoder, dot", "bidirectional, LSTM"]
)
def test_lstm_gates_follow_the_equations(name: str) -> None:
    trace = make_trace(name)
    weights = {key: matrix.take() for key, matrix in trace.model.network.matrices().items()}
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


@pytest.mark.parametrize("name", [name for name in RECURRENT if name in ALIGNING_MODELS])
def test_recurrent_context_is_weights_times_encoder_states(name: str) -> None:
    trace = make_trace(name)
    weights, context = (trace.activation(f"decoder.cross_attention.{key}") for key in ("weights", "context"))
    close(context, weights[0] @ trace.activation("encoder.states"))
    close(weights, trace.activation("decoder.cross_attention.scores").softmax(-1))


def test_attending_cell_reads_the_context() -> None:
    trace = make_trace("recurrent encoder-decoder, Bahdanau, LSTM, deeper decoder")
    weights = {key: matrix.take() for key, matrix in trace.model.network.matrices().items()}
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


def test_cache_is_bounded_and_evicted_layers_are_recorded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    plenty = make_trace("encoder-decoder")
    monkeypatch.setattr(forward_pass, "MAX_CACHED", 1)
    scarce = make_trace("encoder-decoder")
    for _ in range(2):
        for point in plenty.points:
            assert torch.equal(plenty.activation(point), scarce.activation(point))
            assert len(scarce.recording._groups) == 1


def test_outline_has_fixed_json_fields() -> None:
    trace = make_trace("encoder-decoder")
    outline = json.loads(trace.as_json())
    assert list(outline) == [
        "format", "kind", "forced", "forced_target", "text", "output", "model", "source", "merges", "target",
        "decoder_input", "steps", "search", "head", "mixing", "has_alignment", "points", "matrices", "notes",
        "tree", "units",
    ]  # fmt: skip
    assert outline["format"] == 1
    assert list(outline["model"]) == [
        "name", "kind", "family", "layers", "decoder_layers", "heads", "width", "vocab_size", "parameters"
    ]  # fmt: skip
    assert list(outline["source"]) == ["text", "ids", "tokens", "words"]
    assert outline["source"]["tokens"] == [*TEXT.split(), "[EOS]"]
    assert list(outline["steps"][0]) == [
        "step", "input_token", "token", "id", "forced", "log_probability", "probability", "rank", "entropy",
        "candidates"
    ]  # fmt: skip
    assert list(outline["steps"][0]["candidates"][0]) == ["id", "token", "probability"]
    assert list(outline["points"][0]) == ["name", "stack", "layer", "part", "point", "axes", "description"]
    assert list(outline["search"]) == ["beam", "length_penalty", "log_probability", "score", "finished"]
    assert list(outline["tree"]["nodes"][0]) == [
        "number", "parent", "step", "token_id", "token", "token_log_probability", "log_probability", "score", "rank",
        "state", "on_best_path"
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILY)
def test_every_network_has_an_outline(name: str) -> None:
    outline: dict[str, Any] = json.loads(make_trace(name).as_json())
    assert bool(outline["steps"]) == (name in DECODERS)
    assert (outline["source"] is None) == (name in LANGUAGE_MODELS)
    assert (outline["tree"] is None) == (name not in TRANSLATION_MODELS)


def test_prompt_steps_are_forced() -> None:
    trace = make_trace("decoder-only")
    assert [step.forced for step in trace.steps] == [True] * 4 + [False] * 4
    assert trace.decoder_input[:5] == ["[SOS]", *TEXT.split()]
    assert trace.output.split() == [step.token for step in trace.steps[4:]]


def test_forced_continuation_is_a_whole_text_and_no_step_is_chosen() -> None:
    trace = make_trace("decoder-only", "w5 w9", target="w12 w7")
    assert trace.decoder_input == ["[SOS]", "w5", "w9", "w12", "w7"]
    assert [step.token for step in trace.steps] == ["w5", "w9", "w12", "w7", "[EOS]"]
    assert all(step.forced for step in trace.steps)
    assert (trace.prompt_length, trace.output) == (0, "w5 w9 w12 w7")


def test_text_encoder_trace_has_pooled_vector() -> None:
    trace = make_trace("encoder-only")
    assert trace.source is not None
    assert trace.source.tokens == ["[SOS]", *TEXT.split(), "[EOS]"]
    pooled = trace.activation("pooling.vector")
    close(pooled, trace.activation("encoder.states").mean(0))


def test_complete_trace_takes_one_pass_per_layer() -> None:
    trace: Trace = make_trace("encoder-decoder")
    passes: list[int] = []
    trace.model.network.get_submodule("decoder").register_forward_hook(lambda *_: passes.append(1))
    for point in trace.points:
        trace.activation(point)
    assert len(passes) == 4  # embedding and states; two layers; output


def _rms_normalized(x: Tensor, norm: object) -> Tensor:
    assert isinstance(norm, nn.RMSNorm)
    assert norm.eps is not None
    return x / (x.square().mean(-1, keepdim=True) + norm.eps).sqrt() * norm.weight


def _projected(x: Tensor, weights: dict[str, Tensor], place: str, letter: str) -> Tensor:
    bias = weights.get(f"{place}.b_{letter}")
    return x @ weights[f"{place}.W_{letter}"] + (0 if bias is None else bias[:, None])
