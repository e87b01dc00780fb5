"""The surface has the network's own loss at its center, and measuring it restores the weights."""

import torch
from torch import nn

from regard.labs.depth import basin_fraction, interpolate, loss_surface, nonconvexity, random_direction


def linear_layer() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(4, 3)


def test_center_is_the_loss_of_the_network_and_weights_are_restored() -> None:
    layer = linear_layer()
    before = layer.weight.detach().clone()
    surface = loss_surface(layer, lambda: float(layer.weight.square().sum()), torch.linspace(-1, 1, 5), seed=0)
    assert abs(float(surface[2, 2]) - float(before.square().sum())) < 1e-5
    assert len({round(float(height), 4) for height in surface.flatten()}) == 25
    assert torch.equal(layer.weight, before)


def test_quadratic_loss_has_a_convex_surface() -> None:
    layer = linear_layer()
    surface = loss_surface(layer, lambda: float(layer.weight.square().sum()), torch.linspace(-1, 1, 9), seed=0)
    assert nonconvexity(surface) < 0.01


def test_rows_of_a_direction_have_the_norm_of_the_weights() -> None:
    layer = linear_layer()
    layer.weight.data[0] *= 100
    direction = random_direction(layer, torch.Generator().manual_seed(0))
    assert torch.allclose(direction["weight"].norm(dim=1), layer.weight.norm(dim=1))


def test_basin_of_a_flat_surface_covers_all_of_it() -> None:
    assert basin_fraction(torch.full((5, 5), 1.8)) == 1.0


def test_interpolated_surface_passes_through_the_measured_points() -> None:
    measured = torch.rand(5, 5, generator=torch.Generator().manual_seed(0)) + 0.01
    fine = interpolate(measured, factor=4)
    assert fine.shape == (17, 17)
    assert torch.allclose(fine[::4, ::4], measured, atol=1e-5)
    assert float(fine.min()) > 0
