"""The same network in other tensors gives the same numbers in a network of ours."""

from typing import Any

import pytest
import torch
from torch import Tensor

from random_models import SMALL, randomised
from regard.config import EncoderDecoderConfig, EncoderOnlyConfig, LearnedPositionsConfig, SinusoidalPositionsConfig
from regard.interop.equivalents import even_heads, reordered, with_all_biases
from regard.interop.marian_export import sines_first
from regard.models import Network, build
from regard.models.weights import assign_tensors

SOURCE, TARGET = torch.tensor([[5, 17, 6, 3]]), torch.tensor([[2, 8, 11]])


def rebuilt(model: Any, tensors: dict[str, Tensor]) -> Network:
    network = build(model).double().eval()
    assign_tensors(network, tensors)
    return network


def precise(model: Any) -> Network:
    """A random network in double precision, so that a difference is a real one."""
    return randomised(model).double()


@pytest.mark.parametrize("width", [24, 20])
def test_sinusoids_in_halves_with_axes_reordered_are_sinusoids_in_turn(width: int) -> None:
    ours = EncoderDecoderConfig(**{**SMALL, "width": width}, attention_bias=True, embedding_norm=True, norm_order="pre")
    theirs = ours.model_copy(update={"positions": SinusoidalPositionsConfig(layout="halves")})
    network = precise(ours)
    other = rebuilt(theirs, reordered(network.state_dict(), sines_first(width)))
    with torch.no_grad():
        assert torch.allclose(other(SOURCE, TARGET), network(SOURCE, TARGET), atol=1e-9)


def test_every_tensor_of_an_encoder_is_reordered_or_has_no_model_width() -> None:
    model = EncoderOnlyConfig(**SMALL, embedding_norm=True, segments=2, positions=LearnedPositionsConfig(max_length=9))
    network, order = precise(model), torch.randperm(SMALL["width"], generator=torch.Generator().manual_seed(0))
    other = rebuilt(model, reordered(network.state_dict(), order))
    with torch.no_grad():
        assert torch.allclose(other(SOURCE), network(SOURCE)[:, order], atol=1e-9)


@pytest.mark.parametrize(
    "settings", [{"key_width": 2}, {"scale_scores": False}, {"key_width": 3, "scale_scores": False}]
)
@pytest.mark.parametrize("bias", [False, True])
def test_heads_made_even_attend_as_before(settings: dict[str, Any], bias: bool) -> None:
    network = precise(EncoderDecoderConfig(**SMALL, attention_bias=bias, **settings))
    even = EncoderDecoderConfig(**SMALL, attention_bias=bias)
    other = rebuilt(
        even, even_heads(network.state_dict(), EncoderDecoderConfig(**SMALL, attention_bias=bias, **settings))
    )
    with torch.no_grad():
        assert torch.allclose(other(SOURCE, TARGET), network(SOURCE, TARGET), atol=1e-9)


def test_biases_of_zero_change_nothing() -> None:
    network = precise(EncoderDecoderConfig(**SMALL))
    other = rebuilt(
        EncoderDecoderConfig(**SMALL, attention_bias=True, output_bias=True), with_all_biases(network.state_dict())
    )
    with torch.no_grad():
        assert torch.allclose(other(SOURCE, TARGET), network(SOURCE, TARGET), atol=1e-9)


def test_what_is_given_stays_as_it_is() -> None:
    model = EncoderDecoderConfig(**SMALL, key_width=2)
    given = precise(model).state_dict()
    before = {name: tensor.clone() for name, tensor in given.items()}
    reordered(with_all_biases(even_heads(given, model)), sines_first(24))
    assert given.keys() == before.keys()
    assert all(torch.equal(given[name], before[name]) for name in before)
