"""Normalized queries and keys, squared ReLU, capped logits and output matrices that start at zero: their formulas."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from family import DECODERS, make
from regard.config import Config, DecoderOnlyConfig, EncoderDecoderConfig
from regard.errors import ConfigError
from regard.models import Network, build
from regard.nn import SquaredReLU, attend, causal_mask, open_taps
from regard.nn.embedding import OutputProjection
from regard.training.losses import (
    projected_cross_entropy,
    projected_rdrop,
    rdrop_cross_entropy,
    smoothed_cross_entropy,
)
from regard.training.parallel import check_tensor_parallel

TRANSLATOR = "encoder-decoder, normalized queries and keys, grouped-query"
GPT = "decoder-only, normalized queries and keys, squared ReLU, capped logits"
SOURCE, TARGET = torch.tensor([[4, 5, 6, 7], [8, 9, 10, 11]]), torch.tensor([[2, 12, 13], [2, 14, 15]])
SMALL: dict[str, Any] = {"vocab_size": 23, "width": 16, "layers": 2, "heads": 4, "feed_forward": 24}


def tap_values(network: Network) -> dict[str, Tensor]:
    """The values of all taps for a batch."""
    with torch.no_grad(), open_taps(network) as values:
        network(*((SOURCE, TARGET) if network.encodes else (TARGET,)))
    return values


@pytest.mark.parametrize("name", [TRANSLATOR, GPT])
def test_attention_uses_normalized_queries_and_keys(name: str) -> None:
    network = make(DECODERS[name]).eval()
    values, modules = tap_values(network), dict(network.named_modules())
    layers = [path for path, module in modules.items() if getattr(module, "query_norm", None) is not None]
    assert len(layers) == (6 if network.encodes else 2)
    for path in layers:
        for side, norm in (("q", "query_norm"), ("k", "key_norm")):
            x, gain = values[f"{path}.{side}_projected"], modules[f"{path}.{norm}"].weight
            assert (gain != 1).any()  # `make` draws it
            expected = x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * gain
            rotated = name == GPT
            shown = values[f"{path}.{side}"]
            if rotated:  # rotations keep the norm of pairs of entries
                expected, shown = (y.square().unflatten(-1, (-1, 2)).sum(-1) for y in (expected, shown))
            torch.testing.assert_close(shown, expected, rtol=0, atol=1e-9)
    path = "decoder.layers.1.attention"
    q, k, v = (values[f"{path}.{side}"] for side in ("q", "k", "v"))
    out, _ = attend(q, k, v, causal_mask(q.size(2)))
    torch.testing.assert_close(values[f"{path}.head_outputs"], out, rtol=0, atol=1e-9)


def test_traces_show_projected_and_normalized_queries() -> None:
    points = make(DECODERS[TRANSLATOR]).points()
    for side in ("q", "k"):
        for attention in ("encoder.0.attention", "decoder.1.cross_attention"):
            projected, normed = points[f"{attention}.{side}_projected"], points[f"{attention}.{side}"]
            assert projected.product is not None
            assert normed.product is None
            assert "normalized" in normed.description


def test_norms_of_queries_have_no_gain_if_norms_are_not_affine() -> None:
    network = build(DecoderOnlyConfig(**SMALL, qk_norm=True, norm_affine=False))
    assert not [name for name, _ in network.named_parameters() if "query_norm" in name or "key_norm" in name]


def test_squared_relu() -> None:
    assert SquaredReLU()(torch.tensor([-2.0, 0.0, 3.0])).tolist() == [0.0, 0.0, 9.0]
    network = make(DECODERS[GPT]).eval()
    assert isinstance(network.get_submodule("decoder.layers.0.feed_forward.activation"), SquaredReLU)


def test_logits_are_capped() -> None:
    network = make(DECODERS[GPT]).eval()
    network.get_parameter("output.weight").data.mul_(20)
    values = tap_values(network)
    uncapped, logits = values["output.uncapped"], values["output.logits"]
    assert uncapped.abs().max() > 10
    torch.testing.assert_close(logits, 3 * (uncapped / 3).tanh(), rtol=0, atol=1e-12)
    points = network.points()
    assert points["output.uncapped"].product is not None
    assert points["output.logits"].product is None


@pytest.mark.parametrize("bias", [False, True])
def test_losses_of_capped_logits_are_those_of_the_formula(bias: bool) -> None:
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(30, 8, dtype=torch.float64))
    output, targets = OutputProjection(weight, bias, soft_cap=2.0).double(), torch.randint(0, 30, (12,))
    first, second = (torch.randn(12, 8, dtype=torch.float64, requires_grad=True) for _ in range(2))
    capped = [2 * ((states @ weight.T) / 2).tanh() for states in (first, second)]  # the bias is zero
    inputs = [first, second, weight]
    pairs = [
        (projected_cross_entropy(first, output, targets, 0.1), smoothed_cross_entropy(capped[0], targets, 0.1)),
        (
            projected_rdrop(first, second, output, targets, 0.1, 2.0),
            rdrop_cross_entropy(capped[0], capped[1], targets, 0.1, 2.0),
        ),
    ]
    for loss, expected in pairs:
        torch.testing.assert_close(loss.loss, expected.loss, rtol=0, atol=1e-9)
        torch.testing.assert_close(loss.cross_entropy, expected.cross_entropy, rtol=0, atol=1e-9)
        gradients = [
            torch.autograd.grad(each.loss, inputs, retain_graph=True, allow_unused=True) for each in (loss, expected)
        ]
        for ours, reference in zip(*gradients, strict=True):
            assert (ours is None) == (reference is None)
            if ours is not None:
                torch.testing.assert_close(ours, reference, rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", [EncoderDecoderConfig, DecoderOnlyConfig])
def test_layers_whose_output_starts_at_zero_add_nothing(
    kind: type[EncoderDecoderConfig | DecoderOnlyConfig],
) -> None:
    torch.manual_seed(0)
    network = build(kind(**SMALL, zero_output=True, norm_order="pre", norm_affine=False, dropout=0.0)).eval()
    values = tap_values(network)
    for stack in ("encoder", "decoder") if network.encodes else ("decoder",):
        last = values[f"{stack}.layers.1.feed_forward_residual.sum"]
        torch.testing.assert_close(last, values[f"{stack}.embedding.sum"], rtol=0, atol=0)


def test_tensor_parallelism_refuses_normalized_queries() -> None:
    with pytest.raises(ConfigError, match=r"2 processes cannot share heads with model\.qk_norm = true; use .*'fsdp'"):
        check_tensor_parallel(Config(model=DecoderOnlyConfig(**SMALL, qk_norm=True)), 2)
