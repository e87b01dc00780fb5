"""The loss around a network: its middle is the network's own, and walking around leaves no trace."""

import torch
from torch import nn

from regard.labs.trials.loss_surface import basin_fraction, interpolate, loss_surface, nonconvexity, random_direction


def network() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(4, 3)


def test_the_middle_of_a_surface_is_the_loss_of_the_network_which_stays_as_it_was() -> None:
    layer = network()
    before = layer.weight.detach().clone()
    found = loss_surface(layer, lambda: float(layer.weight.square().sum()), torch.linspace(-1, 1, 5), seed=0)
    assert abs(float(found[2, 2]) - float(before.square().sum())) < 1e-5
    assert len({round(float(height), 4) for height in found.flatten()}) == 25
    assert torch.equal(layer.weight, before)


def test_a_quadratic_loss_has_a_convex_surface() -> None:
    layer = network()
    found = loss_surface(layer, lambda: float(layer.weight.square().sum()), torch.linspace(-1, 1, 9), seed=0)
    assert nonconvexity(found) < 0.01


def test_a_direction_is_as_long_as_the_weights_row_by_row() -> None:
    layer = network()
    layer.weight.data[0] *= 100
    move = random_direction(layer, torch.Generator().manual_seed(0))
    assert torch.allclose(move["weight"].norm(dim=1), layer.weight.norm(dim=1))


def test_a_plain_is_all_basin() -> None:
    assert basin_fraction(torch.full((5, 5), 1.8)) == 1.0


def test_a_finer_surface_runs_through_what_was_measured() -> None:
    measured = torch.rand(5, 5, generator=torch.Generator().manual_seed(0)) + 0.01
    fine = interpolate(measured, factor=4)
    assert fine.shape == (17, 17)
    assert torch.allclose(fine[::4, ::4], measured, atol=1e-5)
    assert float(fine.min()) > 0
