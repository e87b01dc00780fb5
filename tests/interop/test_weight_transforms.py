"""Transformed weights compute the same as the original network."""

from typing import Any

import numpy as np
import pytest
import torch

from random_models import SMALL, random_network
from regard.config import EncoderDecoderConfig, EncoderOnlyConfig, LearnedPositionsConfig, SinusoidalPositionsConfig
from regard.interop.hf_spec import to_tensors
from regard.interop.marian import sines_first_order
from regard.interop.weight_transforms import (
    Arrays,
    add_zero_biases,
    equalize_head_widths,
    permute_width,
    sinusoidal_array,
)
from regard.models import Network, build
from regard.models.folder import assign_tensors
from regard.nn import sinusoidal_table

SOURCE, TARGET = torch.tensor([[5, 17, 6, 3]]), torch.tensor([[2, 8, 11]])


def network_with(model: Any, arrays: Arrays) -> Network:
    network = build(model).double().eval()
    assign_tensors(network, to_tensors(arrays))
    return network


def arrays_of(network: Network) -> Arrays:
    return {name: tensor.numpy() for name, tensor in network.state_dict().items()}


def random_double_network(model: Any) -> Network:
    """A random network in double precision, so that rounding is negligible."""
    return random_network(model).double()


@pytest.mark.parametrize("width", [24, 20])
def test_permuted_width_turns_interleaved_sinusoids_into_halves(width: int) -> None:
    ours = EncoderDecoderConfig(**{**SMALL, "width": width}, attention_bias=True, embedding_norm=True, norm_order="pre")
    theirs = ours.model_copy(update={"positions": SinusoidalPositionsConfig(layout="halves")})
    network = random_double_network(ours)
    other = network_with(theirs, permute_width(arrays_of(network), sines_first_order(width)))
    with torch.no_grad():
        assert torch.allclose(other(SOURCE, TARGET), network(SOURCE, TARGET), atol=1e-9)


def test_permute_width_covers_every_tensor_of_an_encoder() -> None:
    model = EncoderOnlyConfig(**SMALL, embedding_norm=True, segments=2, positions=LearnedPositionsConfig(max_length=9))
    network, order = (
        random_double_network(model),
        np.random.default_rng(0).permutation(SMALL["width"]),
    )
    other = network_with(model, permute_width(arrays_of(network), order))
    with torch.no_grad():
        assert torch.allclose(other(SOURCE), network(SOURCE)[:, order], atol=1e-9)


@pytest.mark.parametrize(
    "settings", [{"key_width": 2}, {"scale_scores": False}, {"key_width": 3, "scale_scores": False}]
)
@pytest.mark.parametrize("bias", [False, True])
def test_equalized_heads_give_the_same_output(settings: dict[str, Any], bias: bool) -> None:
    network = random_double_network(EncoderDecoderConfig(**SMALL, attention_bias=bias, **settings))
    even = EncoderDecoderConfig(**SMALL, attention_bias=bias)
    other = network_with(
        even, equalize_head_widths(arrays_of(network), EncoderDecoderConfig(**SMALL, attention_bias=bias, **settings))
    )
    with torch.no_grad():
        assert torch.allclose(other(SOURCE, TARGET), network(SOURCE, TARGET), atol=1e-9)


def test_zero_biases_change_nothing() -> None:
    network = random_double_network(EncoderDecoderConfig(**SMALL))
    other = network_with(
        EncoderDecoderConfig(**SMALL, attention_bias=True, output_bias=True), add_zero_biases(arrays_of(network))
    )
    with torch.no_grad():
        assert torch.allclose(other(SOURCE, TARGET), network(SOURCE, TARGET), atol=1e-9)


def test_arguments_are_not_modified() -> None:
    model = EncoderDecoderConfig(**SMALL, key_width=2)
    arrays = arrays_of(random_double_network(model))
    before = {name: array.copy() for name, array in arrays.items()}
    permute_width(add_zero_biases(equalize_head_widths(arrays, model)), sines_first_order(24))
    assert arrays.keys() == before.keys()
    assert all(np.array_equal(arrays[name], before[name]) for name in before)


@pytest.mark.parametrize("halves", [False, True])
@pytest.mark.parametrize("width", [6, 7])
def test_sinusoidal_array_is_the_table_of_the_network(width: int, halves: bool) -> None:
    expected = sinusoidal_table(50, width, halves=halves).numpy()
    np.testing.assert_allclose(sinusoidal_array(50, width, halves=halves), expected, atol=1e-12)
