"""The loss around a trained network along two filter-normalized random directions (Li et al. 2018).

In a direction, each row of each matrix is random with the norm of that row in the network, so that surfaces of networks
with different weight norms are comparable. Biases and normalization weights are not moved.

G grid points along each direction
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

Direction = dict[str, Tensor]
BASIN_RISE = 0.5  # nats above the loss at the center that still belong to the basin


def random_direction(network: nn.Module, generator: torch.Generator) -> Direction:
    """Return a random direction in weight space, normalized row by row.

    >>> layer = nn.Linear(3, 2)
    >>> direction = random_direction(layer, torch.Generator().manual_seed(0))
    >>> torch.allclose(direction["weight"].norm(dim=1), layer.weight.norm(dim=1)), direction["bias"].tolist()
    (True, [0.0, 0.0])
    """
    direction = {}
    for name, weight in network.named_parameters():
        step = torch.randn(weight.shape, generator=generator) if weight.dim() > 1 else torch.zeros_like(weight)
        if weight.dim() > 1:
            step *= weight.detach().norm(dim=-1, keepdim=True) / step.norm(dim=-1, keepdim=True)
        direction[name] = step
    return direction


@torch.no_grad()
def loss_surface(network: nn.Module, loss: Callable[[], float], offsets: Tensor, seed: int) -> Tensor:
    """Return the loss (G, G) at the weights moved by `offsets` along two directions; restores the weights."""
    generator = torch.Generator().manual_seed(seed)
    x_direction, y_direction = random_direction(network, generator), random_direction(network, generator)
    weights = dict(network.named_parameters())
    trained = {name: weight.clone() for name, weight in weights.items()}
    surface = torch.empty(len(offsets), len(offsets))
    for row, y in enumerate(offsets.tolist()):
        start = {name: weight + y * y_direction[name] for name, weight in trained.items()}
        for column, x in enumerate(offsets.tolist()):
            for name, weight in weights.items():
                torch.add(start[name], x_direction[name], alpha=x, out=weight)
            surface[row, column] = loss()
    for name, weight in weights.items():
        weight.copy_(trained[name])
    return surface


def basin_fraction(surface: Tensor, rise: float = BASIN_RISE) -> float:
    """Return the fraction of a surface (G, G) where the loss is at most `rise` above its center.

    It is measured on an interpolated surface, because a coarse grid resolves the border of the basin poorly.

    >>> x = torch.linspace(-1, 1, 11)
    >>> round(basin_fraction(2 * (x[:, None] ** 2 + x**2) + 0.1), 1)  # a circle of radius 1/2 in a square: π / 16
    0.2
    """
    surface = interpolate(surface)
    center = len(surface) // 2
    return float((surface <= surface[center, center] + rise).float().mean())


def interpolate(surface: Tensor, factor: int = 8) -> Tensor:
    """Return a surface (G, G) on a grid `factor` times as fine, by bicubic interpolation of the logarithm.

    The logarithm is used because the loss spans several orders of magnitude and is never negative.

    >>> interpolate(torch.tensor([[1.0, 1.0], [4.0, 4.0]]), factor=2)[:, 0].round(decimals=2).tolist()
    [1.0, 2.0, 4.0]
    """
    size = factor * (len(surface) - 1) + 1
    logs = surface.clamp(min=1e-6).log()[None, None]
    return nn.functional.interpolate(logs, (size, size), mode="bicubic", align_corners=True)[0, 0].exp()


def nonconvexity(surface: Tensor) -> float:
    """Return the mean of |λ_min| / |λ|_max where λ_min < 0 (and 0 elsewhere) of the Hessian of a surface (G, G).

    This is the ratio of Li et al. in two dimensions, from finite differences.

    >>> x = torch.linspace(-1, 1, 9)
    >>> nonconvexity(x[:, None] ** 2 + x**2), round(nonconvexity(x[:, None] ** 2 - x**2), 3)
    (0.0, 1.0)
    """
    center = surface[1:-1, 1:-1]
    xx = surface[1:-1, 2:] - 2 * center + surface[1:-1, :-2]
    yy = surface[2:, 1:-1] - 2 * center + surface[:-2, 1:-1]
    xy = (surface[2:, 2:] - surface[2:, :-2] - surface[:-2, 2:] + surface[:-2, :-2]) / 4
    mean, radius = (xx + yy) / 2, (((xx - yy) / 2) ** 2 + xy**2).sqrt()  # eigenvalues are mean ± radius
    largest = mean.abs() + radius
    return float(((radius - mean).clamp(min=0) / largest.clamp(min=1e-12)).mean())
