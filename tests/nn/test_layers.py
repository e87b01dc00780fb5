"""Feed-forward layers, residual connections, embeddings, pooling, dropout, taps, and the settings that select them."""

import math

import pytest
import torch
from torch import Tensor, nn

from family import FAMILY
from regard.config import DecoderOnlyConfig, EncoderDecoderConfig, load_config
from regard.errors import InputError
from regard.models import build
from regard.nn import (
    DensePooling,
    FeedForward,
    FirstTokenPooling,
    GatedFeedForward,
    LearnedPositions,
    MeanPooling,
    Positions,
    PostNorm,
    PreNorm,
    ReLUPooling,
    SinusoidalPositions,
    Tap,
    TokenEmbedding,
    make_layout,
    open_taps,
    sinusoidal_table,
    taps_of,
)
from regard.nn.embedding import embedding_matrix


def test_feed_forward_equals_the_formula_of_the_paper() -> None:
    layer, x = FeedForward(4, 6), torch.randn(2, 3, 4)
    inner, output = layer.inner, layer.output
    expected = torch.clamp(x @ inner.weight.T + inner.bias, min=0) @ output.weight.T + output.bias
    torch.testing.assert_close(layer(x), expected)


def test_gated_feed_forward_equals_swiglu() -> None:
    layer, x = GatedFeedForward(4, 6), torch.randn(2, 3, 4)
    gate, value = layer.inner.weight[:6], layer.inner.weight[6:]
    a = x @ gate.T
    expected = (a * torch.sigmoid(a) * (x @ value.T)) @ layer.output.weight.T
    torch.testing.assert_close(layer(x), expected)


@pytest.mark.parametrize("connected", [True, False])
def test_residuals_normalize_after_or_before_the_sublayer(connected: bool) -> None:
    x, norm = torch.randn(2, 3, 4), nn.LayerNorm(4)
    keep = 1.0 if connected else 0.0
    post, pre = PostNorm(norm, 0.0, connected=connected), PreNorm(norm, 0.0, connected=connected)
    torch.testing.assert_close(post(x, torch.sin), norm(keep * x + x.sin()))
    torch.testing.assert_close(pre(x, torch.sin), keep * x + norm(x).sin())


@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_norms_can_have_neither_gain_nor_bias(norm: str) -> None:
    settings = ["model.norm_affine=false", f"model.norm={norm}", "model.norm_order=pre", "model.embedding_norm=true"]
    network = build(load_config("tiny", settings).model)
    norms = [part for part in network.modules() if isinstance(part, nn.LayerNorm | nn.RMSNorm)]
    assert len(norms) == 4 * 5 + 4  # of each sub-layer, of two embeddings and at the end of two stacks
    assert not [name for name, _ in network.named_parameters() if "norm" in name]
    x = torch.randn(2, 128)
    centered = x - x.mean(-1, keepdim=True) if norm == "layer" else x
    expected = centered / (centered.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(norms[0](x), expected)


@pytest.mark.parametrize("learned", [False, True])
def test_positions_can_be_concatenated_with_embeddings(learned: bool) -> None:
    scheme = LearnedPositions(9, 3, concatenate=True) if learned else SinusoidalPositions(3, concatenate=True)
    embedding = TokenEmbedding(embedding_matrix(20, 5), scheme, segments=2)
    ids = torch.randint(0, 20, (2, 4))
    x = embedding(ids, make_layout(ids).queries)
    vectors = scheme.weight[:4] if isinstance(scheme, LearnedPositions) else sinusoidal_table(4, 3).float()
    assert embedding.segments is not None
    assert embedding.segments.shape == (2, 8)
    without_segment = x - embedding.segments[0]
    torch.testing.assert_close(without_segment[..., :5], embedding.weight[ids] * math.sqrt(5))
    torch.testing.assert_close(without_segment[..., 5:], vectors.expand(2, 4, 3))


def test_concatenated_positions_have_a_quarter_of_the_width_by_default() -> None:
    concatenate = ["model.positions.combine=concatenate", "model.tie_output=false", "model.vocab_size=50"]
    names = ("encoder.embedding.weight", "output.weight")
    for more, width in (([], 96), (["model.positions.width=20"], 108)):
        tensors = build(load_config("tiny", [*concatenate, *more]).model).state_dict()
        assert [tuple(tensors[name].shape) for name in names] == [(50, width), (50, 128)]


def test_embeddings_are_scaled_and_have_unit_variance() -> None:
    embedding = TokenEmbedding(embedding_matrix(1000, 64), Positions())
    ids = torch.arange(1000)[None]
    x = embedding(ids, make_layout(ids).queries)
    torch.testing.assert_close(x[0], embedding.weight * math.sqrt(64))
    assert abs(x.std() - 1) < 0.02


def test_a_token_outside_the_vocabulary_is_an_error() -> None:
    network = build(DecoderOnlyConfig(vocab_size=5, width=8, heads=2, layers=1, feed_forward=8))
    with pytest.raises(InputError) as error:
        network.decode(torch.tensor([[1, 7]]))
    assert str(error.value) == (
        "A token id is 7, but the vocabulary has ids 0 to 4: was the text encoded with another tokenizer?"
    )


def test_rows_that_do_not_match_are_an_error() -> None:
    network = build(load_config("tiny", ["model.vocab_size=11"]).model)
    ids = torch.ones(2, 3).long()
    for target in (ids[:1], ids[0]):
        with pytest.raises(InputError) as error:
            network(ids, target)
        assert str(error.value) == (
            f"The ids have shape {tuple(target.shape)} and a memory of 2 rows; they should be (rows, length)."
        )


def test_an_empty_sequence_is_an_error() -> None:
    network = build(DecoderOnlyConfig(vocab_size=5, width=8, heads=2, layers=1, feed_forward=8))
    with pytest.raises(InputError) as error:
        network.decode(torch.zeros(1, 0, dtype=torch.long))
    assert str(error.value) == "There are no tokens: a sequence has at least its end token."


def test_pooling_ignores_padding() -> None:
    states = torch.tensor([[[9.0, 9.0], [1.0, 2.0], [3.0, 4.0]]])
    mask = torch.tensor([[False, True, True]])
    assert MeanPooling()(states, mask).tolist() == [[2.0, 3.0]]
    assert MeanPooling()(states[:, 1:]).tolist() == [[2.0, 3.0]]
    assert FirstTokenPooling()(states, mask).tolist() == [[1.0, 2.0]]
    assert FirstTokenPooling()(states[:, 1:]).tolist() == [[1.0, 2.0]]
    dense = DensePooling(2)
    torch.testing.assert_close(dense(states, mask), torch.tanh(dense.dense(torch.tensor([[1.0, 2.0]]))))
    rectified = ReLUPooling(2)
    torch.testing.assert_close(rectified(states, mask), torch.relu(rectified.dense(torch.tensor([[1.0, 2.0]]))))


def test_dropout_is_only_where_the_paper_has_it() -> None:
    network = build(load_config("tiny", ["model.dropout=0.3"]).model)
    rates = {name: module.p for name, module in network.named_modules() if isinstance(module, nn.Dropout)}
    for name, rate in rates.items():
        outside = name.endswith(("_residual.dropout", "embedding.dropout"))
        assert rate == (0.3 if outside else 0.0), name
    assert sum(name.endswith("_residual.dropout") for name in rates) == 4 * 2 + 4 * 3
    assert {module.dropout for name, module in network.named_modules() if name.endswith("kernel")} == {0.0}


def test_dropout_acts_in_training() -> None:
    for order in (PostNorm, PreNorm):
        out = order(nn.Identity(), 0.5)(torch.zeros(1, 100, 8), torch.ones_like)
        assert set(out.unique().tolist()) == {0.0, 2.0}
    ids = torch.arange(50)[None]
    embedding = TokenEmbedding(embedding_matrix(50, 8), Positions(), dropout=0.5)
    assert 0.3 < (embedding(ids, make_layout(ids).queries) == 0).float().mean() < 0.7
    for layer in (FeedForward(4, 6, nn.Identity(), 0.999999), GatedFeedForward(4, 6, 0.999999)):
        bias = layer.output.bias if layer.output.bias is not None else 0
        torch.testing.assert_close(layer(torch.randn(2, 4)), torch.zeros(2, 4) + bias)


def test_settings_change_the_computation() -> None:
    ids = torch.tensor([[1, 2, 3]])
    narrow = build(FAMILY["encoder-decoder, narrow keys, biases, untied"]).eval()
    with open_taps(narrow) as values:
        narrow(ids, ids)
    for name in values:
        if name.endswith("kernel.scaled"):
            torch.testing.assert_close(values[name], values[name.replace("scaled", "scores")] / math.sqrt(3))
    modern = build(FAMILY["encoder-decoder, pre-norm, RMS, SwiGLU"]).eval()
    with open_taps(modern) as values:
        modern(ids, ids)
    x, gain = values["decoder.layers.0.feed_forward_residual.sum"], modern.get_parameter("decoder.norm.weight")
    torch.testing.assert_close(values["decoder.states"], gain * x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt())
    bare = DecoderOnlyConfig(vocab_size=9, width=8, heads=2, layers=1, feed_forward=0, residual=False, norm="none")
    cut = build(bare).eval()
    with torch.no_grad():
        cut.get_parameter("decoder.layers.0.attention.output.weight").zero_()
    assert (cut.decode(ids) == 0).all()


def test_attention_and_activation_dropout_are_applied() -> None:
    network = build(load_config("tiny", ["model.attention_dropout=0.1", "model.activation_dropout=0.2"]).model)
    for name, module in network.named_modules():
        if name.endswith("kernel"):
            assert module.dropout == 0.1
        if name.endswith("feed_forward.dropout"):
            assert module.p == 0.2


def test_matrices_are_shared_by_default_and_can_be_separated() -> None:
    def matrices(share_embeddings: bool = True, tie_output: bool = True) -> list[int]:
        config = EncoderDecoderConfig(
            vocab_size=9, width=8, heads=2, share_embeddings=share_embeddings, tie_output=tie_output
        )
        network = build(config)
        parts = ("encoder.embedding", "decoder.embedding", "output")
        return [id(network.get_parameter(f"{part}.weight")) for part in parts]

    source, target, output = matrices()
    assert source == target == output
    source, target, output = matrices(share_embeddings=False)
    assert source != target == output
    source, target, output = matrices(tie_output=False)
    assert source == target != output
    assert len(set(matrices(share_embeddings=False, tie_output=False))) == 3


NAMED_STEPS = {
    "embedding": "embedding.scaled",
    "positions": "embedding.positions.vectors",
    "q": "attention.q",
    "k": "attention.k",
    "v": "attention.v",
    "scores": "attention.kernel.scores",
    "scaled scores": "attention.kernel.scaled",
    "mask": "attention.kernel.masked",
    "weights": "attention.kernel.weights",
    "head outputs": "attention.head_outputs",
    "concatenation": "attention.concatenation",
    "sub-layer outputs": "attention_residual.added",
    "residual sums": "attention_residual.sum",
    "norms": "attention_residual.normed",
    "feed-forward hidden": "feed_forward.hidden",
    "logits": "output.logits",
}


@pytest.mark.parametrize("step", NAMED_STEPS)
def test_every_step_has_a_tap_that_reads_and_replaces(step: str) -> None:
    network = build(load_config("tiny", ["model.vocab_size=11"]).model).eval()
    ids = torch.tensor([[1, 2, 3]])
    plain = network(ids, ids)
    names = [name for name in network.taps if name.endswith(NAMED_STEPS[step])]
    assert names
    with open_taps(network, *names) as values:
        torch.testing.assert_close(network(ids, ids), plain)
    assert set(values) == set(names)
    hook = network.taps[names[-1]].register_forward_hook(lambda _m, _a, x: torch.randn_like(x))
    assert (network(ids, ids) - plain).abs().max() > 1e-3
    hook.remove()
    torch.testing.assert_close(network(ids, ids), plain, atol=0, rtol=0)


def test_a_backward_hook_opens_a_tap() -> None:
    network = build(load_config("tiny", ["model.vocab_size=11"]).model)
    gradients: list[Tensor] = []
    tap = network.taps["decoder.layers.0.attention.kernel.weights"]
    hook = tap.register_full_backward_hook(lambda _module, inputs, _outputs: gradients.extend(inputs))
    ids = torch.tensor([[1, 2, 3]])
    network(ids, ids).sum().backward()
    hook.remove()
    assert [tuple(gradient.shape) for gradient in gradients] == [(1, 4, 3, 3)]


def test_an_unknown_tap_is_an_error() -> None:
    with (
        pytest.raises(InputError, match=r"There is no tap 'nothing'; network.taps lists"),
        open_taps(nn.Sequential(Tap()), "nothing"),
    ):
        pass
    assert list(taps_of(nn.Sequential(Tap()))) == ["0"]
