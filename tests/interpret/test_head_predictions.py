"""Predictions of encoder heads, compared with formulas and with the inference commands."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import regard
from family import ENCODERS, TOLERANCE
from random_models import SMALL, saved
from regard.config import (
    BidirectionalLanguageModelConfig,
    ClassHeadConfig,
    EncoderOnlyConfig,
    ModelConfig,
    TagHeadConfig,
    TokenHeadConfig,
)
from regard.interpret.trace import Trace
from regard.models.recurrent import BidirectionalLanguageModel as BidirectionalNetwork
from traces import TEXT, make_trace

CLASSES, TAGS = ClassHeadConfig(labels=("bad", "good", "so-so")), TagHeadConfig(labels=("noun", "verb"))
ELMO: dict[str, Any] = {"vocab_size": 29, "width": 24, "layers": 2}
BIDIRECTIONAL = ["bidirectional, LSTM", "bidirectional, GRU, untied"]


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, atol=TOLERANCE, rtol=0)


def weights_of(trace: Trace) -> dict[str, Tensor]:
    return {key: matrix.take() for key, matrix in trace.model.network.matrices().items()}


@pytest.mark.parametrize("name", ["encoder-only, classes", "bidirectional, classes"])
def test_label_logits_are_a_linear_layer_on_the_text_vector(name: str) -> None:
    trace = make_trace(name)
    weights = weights_of(trace)
    logits = trace.activation("pooling.vector") @ weights["head.W"] + weights["head.b"]
    close(trace.activation("head.logits"), logits)
    close(trace.activation("head.probabilities"), logits.softmax(-1))
    assert trace.tensor("head.probabilities").labels == (list(ENCODERS[name].head.labels),)  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["encoder-only, tags", "bidirectional, tags"])
def test_tag_logits_are_a_linear_layer_on_the_token_vectors(name: str) -> None:
    trace = make_trace(name)
    weights = weights_of(trace)
    close(trace.activation("head.logits"), trace.activation("encoder.states") @ weights["head.W"] + weights["head.b"])
    assert trace.tensor("head.logits").labels == (["[SOS]", *TEXT.split(), "[EOS]"], ["noun", "verb"])


def test_masked_lm_head_is_a_dense_layer_a_norm_and_a_projection() -> None:
    trace = make_trace("encoder-only, hidden tokens")
    weights = weights_of(trace)
    dense = F.gelu(trace.activation("encoder.states") @ weights["head.W_dense"] + weights["head.b_dense"])
    close(trace.activation("head.norm.norm_input"), dense)
    normed = F.layer_norm(dense, (16,), trace.activation("head.norm.gain"), trace.activation("head.norm.bias"))
    close(trace.activation("head.hidden"), normed)
    close(trace.activation("head.logits"), normed @ weights["head.W"] + weights["head.b"])


@pytest.mark.parametrize("name", BIDIRECTIONAL)
def test_bidirectional_predictions_equal_those_of_training(name: str) -> None:
    trace = make_trace(name)
    network, ids = trace.model.network, torch.tensor([trace.decoded.source_ids])
    assert isinstance(network, BidirectionalNetwork)
    with torch.no_grad():
        expected = network.logits(network.bidirectional_states(ids[:, :-1], ids[:, 1:]))[0]  # (S − 1, 2, V)
    close(trace.activation("head.forwards.logits")[:-1], expected[:, 0])
    close(trace.activation("head.backwards.logits")[1:], expected[:, 1])
    assert trace.head_predictions is not None
    likely = {(p.position, p.direction): p.probability for p in trace.head_predictions.predictions}
    assert len(likely) == 2 * (len(trace.decoded.source_ids or []) - 1)
    assert likely[(2, "forwards")] == pytest.approx(float(expected[1, 0].softmax(-1)[ids[0, 2]]))
    assert likely[(2, "backwards")] == pytest.approx(float(expected[2, 1].softmax(-1)[ids[0, 2]]))


@pytest.mark.parametrize("name", [name for name in ENCODERS if name.startswith("bidirectional")])
def test_token_vectors_are_a_weighted_sum_of_layers(name: str) -> None:
    trace = make_trace(name)
    weights = weights_of(trace)
    shares = weights["encoder.mixing.scalars"].softmax(0)
    close(trace.activation("encoder.mixing.shares"), shares)
    layers = [trace.activation(f"encoder.{place}.states") for place in ("embedding", "0", "1")]
    mixed = sum(share * layer for share, layer in zip(shares, layers, strict=True))
    close(trace.activation("encoder.states"), weights["encoder.mixing.scale"] * mixed)
    both = torch.cat([trace.activation(f"encoder.1.{part}.hidden") for part in ("forwards", "backwards")], dim=-1)
    close(layers[-1], both)
    assert trace.mixing == pytest.approx(dict(zip(("embedding", "layer 0", "layer 1"), shares.tolist(), strict=True)))


@pytest.mark.parametrize("name", [name for name, config in ENCODERS.items() if config.task])
def test_every_logit_of_a_head_is_the_sum_of_its_terms(name: str) -> None:
    trace = make_trace(name)
    points = [point.name for point in trace.points.values() if point.stack == "head" and point.point == "logits"]
    assert points
    for point in points:
        row = 0 if trace.points[point].axes == ("label",) else 2
        product = trace.product(point, row, 1)
        assert sum(x * w for x, w in product.terms) + (product.bias or 0.0) == pytest.approx(product.value, abs=1e-9)


@pytest.mark.parametrize(
    "model",
    [EncoderOnlyConfig(**SMALL, head=CLASSES), BidirectionalLanguageModelConfig(**ELMO, head=CLASSES)],
    ids=["encoder", "both ways"],
)
def test_labels_equal_those_of_classify(tmp_path: Path, model: ModelConfig) -> None:
    saved(tmp_path / "m", model)
    loaded = regard.load(tmp_path / "m")
    head = loaded.look("w5 w9 w12").head_predictions
    (expected,) = loaded.classify_detailed(["w5 w9 w12"])
    assert head is not None
    (prediction,) = head.predictions
    assert prediction.best.token == expected.label
    assert {label.token: label.probability for label in prediction.candidates} == pytest.approx(expected.probabilities)


def test_tags_equal_those_of_tag(tmp_path: Path) -> None:
    saved(tmp_path / "m", EncoderOnlyConfig(**SMALL, head=TAGS))
    loaded = regard.load(tmp_path / "m")
    head = loaded.look("w5 w9 w12").head_predictions
    assert head is not None
    assert [(p.token, p.best.token) for p in head.predictions[1:-1]] == loaded.tag(["w5 w9 w12"])[0]


def test_predictions_for_a_mask_equal_those_of_fill(tmp_path: Path) -> None:
    saved(tmp_path / "m", EncoderOnlyConfig(**SMALL, head=TokenHeadConfig()), mask=4)
    loaded = regard.load(tmp_path / "m")
    trace = loaded.look("w5 [MASK] w12")
    assert trace.source is not None
    assert trace.source.ids == [2, 5, 4, 12, 3]
    assert trace.head_predictions is not None
    text = [c for c in trace.head_predictions.predictions[2].candidates if c.id > 4]  # fill suppresses special tokens
    filled = [candidate.token for candidate in loaded.fill_detailed("w5 [MASK] w12")[0].masks[0]]
    assert [candidate.token for candidate in text][:3] == filled[:3]


def test_network_without_head_has_no_head_predictions() -> None:
    for name in ("encoder-only", "encoder-decoder"):
        assert make_trace(name).head_predictions is None
        assert make_trace(name).mixing is None


def test_outline_contains_head_predictions() -> None:
    outline: dict[str, Any] = {**make_trace("bidirectional, tags").outline()}
    assert list(outline["head"]) == ["kind", "predictions"]
    assert outline["head"]["kind"] == "tags"
    assert list(outline["head"]["predictions"][0]) == ["position", "token", "direction", "probability", "candidates"]
    assert list(outline["mixing"]) == ["embedding", "layer 0", "layer 1"]


def test_segment_embeddings_are_added_after_positions() -> None:
    trace = make_trace("encoder-only, learned, segments")
    parts = [trace.activation(f"encoder.embedding.{point}") for point in ("scaled", "positions", "sum", "segmented")]
    scaled, positions, total, segmented = parts
    close(scaled + positions[: len(scaled)], total)
    first = trace.model.network.get_parameter("encoder.embedding.segments")[0]
    close(total + first, segmented)


def test_dense_pooling_is_tanh_of_its_linear_layer() -> None:
    trace = make_trace("encoder-only, learned, segments")
    weights = weights_of(trace)
    dense = trace.activation("encoder.states")[0] @ weights["pooling.W_dense"] + weights["pooling.b_dense"]
    close(trace.activation("pooling.vector"), dense.tanh())
