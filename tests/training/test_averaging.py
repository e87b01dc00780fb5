"""Averaged weights: the warmup of the moving average, and weights that are swapped for a validation."""

import pytest
import torch
from torch import nn

from regard.training.averaging import MovingAverage, swapped_weights


def layer(value: float) -> nn.Linear:
    network = nn.Linear(1, 1, bias=False)
    nn.init.constant_(network.weight, value)
    return network


def test_own_weights_come_back_after_a_swap() -> None:
    network = layer(1.0)
    with swapped_weights(network, {"weight": torch.tensor([[5.0]])}):
        assert network.weight.item() == 5.0
    assert network.weight.item() == 1.0
    with pytest.raises(KeyboardInterrupt), swapped_weights(network, {"weight": torch.tensor([[5.0]])}):
        raise KeyboardInterrupt
    assert network.weight.item() == 1.0


def test_a_swap_without_weights_changes_nothing() -> None:
    network = layer(1.0)
    with swapped_weights(network, None):
        assert network.weight.item() == 1.0


def test_the_moving_average_follows_quickly_in_its_first_steps() -> None:
    network = layer(0.0)
    average, expected = MovingAverage(network, 0.999), 0.0
    for step in range(1, 40):
        nn.init.constant_(network.weight, float(step))
        average.update(step)
        decay = min(0.999, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * step
    assert average.tensors["weight"].item() == pytest.approx(expected, rel=1e-5)
    assert expected > 20  # with a decay of 0.999 from the start it would be below 1


def test_after_warmup_the_decay_is_that_of_the_settings() -> None:
    network = layer(0.0)
    average = MovingAverage(network, 0.9)
    nn.init.constant_(network.weight, 1.0)
    average.update(10_000)
    assert average.tensors["weight"].item() == pytest.approx(0.1, rel=1e-5)
