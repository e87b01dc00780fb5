"""The same network in other tensors gives the same numbers in a network of ours."""

from typing import Any

import pytest
import torch
from torch import Tensor

from random_models import SMALL, randomised
from regard.config import EncoderDecoderConfig, EncoderOnlyConfig, LearnedPositionsConfig, SinusoidalPositionsConfig
from regard.interop.marian import sines_first_order
from regard.interop.weight_transforms import add_zero_biases, equalize_head_widths, permute_width
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
    other = rebuilt(theirs, permute_width(network.state_dict(), sines_first_order(width)))
    with torch.no_grad():
        assert torch.allclose(other(SOURCE, TARGET), network(SOURCE, TARGET), atol=1e-9)


def test_every_tensor_of_an_encoder_is_reordered_or_has_no_model_width() -> None:
    model = EncoderOnlyConfig(**SMALL, embedding_norm=True, segments=2, positions=LearnedPositionsConfig(max_length=9))
    network, order = precise(model), torch.randperm(SMALL["width"], generator=torch.Generator().manual_seed(0))
    other = rebuilt(model, permute_width(network.state_dict(), order))
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
        even, equalize_head_widths(network.state_dict(), EncoderDecoderConfig(**SMALL, attention_bias=bias, **settings))
    )
    with torch.no_grad():
        assert torch.allclose(other(SOURCE, TARGET), network(SOURCE, TARGET), atol=1e-9)


def test_biases_of_zero_change_nothing() -> None:
    network = precise(EncoderDecoderConfig(**SMALL))
    other = rebuilt(
        EncoderDecoderConfig(**SMALL, attention_bias=True, output_bias=True), add_zero_biases(network.state_dict())
    )
    with torch.no_grad():
        assert torch.allclose(other(SOURCE, TARGET), network(SOURCE, TARGET), atol=1e-9)


def test_what_is_given_stays_as_it_is() -> None:
    model = EncoderDecoderConfig(**SMALL, key_width=2)
    given = precise(model).state_dict()
    before = {name: tensor.clone() for name, tensor in given.items()}
    permute_width(add_zero_biases(equalize_head_widths(given, model)), sines_first_order(24))
    assert given.keys() == before.keys()
    assert all(torch.equal(given[name], before[name]) for name in before)
