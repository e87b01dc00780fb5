"""The loss around a trained network, along two random directions (Li et al. 2018).

A direction has for each row of each matrix ("filter") random numbers of that row's length: a network whose weights are
larger is moved further, so that surfaces of different networks can be compared. Biases and norms stay where they are.

G places along each direction
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

Direction = dict[str, Tensor]
RISE = 0.5  # nats above the trained network that still belong to its basin


def direction(network: nn.Module, random: torch.Generator) -> Direction:
    """A random direction in the space of weights, normalised row by row.

    >>> layer = nn.Linear(3, 2)
    >>> move = direction(layer, torch.Generator().manual_seed(0))
    >>> torch.allclose(move["weight"].norm(dim=1), layer.weight.norm(dim=1)), move["bias"].tolist()
    (True, [0.0, 0.0])
    """
    found = {}
    for name, weight in network.named_parameters():
        move = torch.randn(weight.shape, generator=random) if weight.dim() > 1 else torch.zeros_like(weight)
        if weight.dim() > 1:
            move *= weight.detach().norm(dim=-1, keepdim=True) / move.norm(dim=-1, keepdim=True)
        found[name] = move
    return found


@torch.no_grad()
def surface(network: nn.Module, loss: Callable[[], float], places: Tensor, seed: int) -> Tensor:
    """The loss (G, G) at the trained weights moved by so much along two directions; the network stays as it was."""
    random = torch.Generator().manual_seed(seed)
    across, up = direction(network, random), direction(network, random)
    weights = dict(network.named_parameters())
    trained = {name: weight.clone() for name, weight in weights.items()}
    found = torch.empty(len(places), len(places))
    for row, y in enumerate(places.tolist()):
        start = {name: weight + y * up[name] for name, weight in trained.items()}
        for column, x in enumerate(places.tolist()):
            for name, weight in weights.items():
                torch.add(start[name], across[name], alpha=x, out=weight)
            found[row, column] = loss()
    for name, weight in weights.items():
        weight.copy_(trained[name])
    return found


def basin(losses: Tensor, rise: float = RISE) -> float:
    """The share of a surface (G, G) where the loss is at most `rise` above that of its centre.

    It is measured on a finer surface: a coarse one has its border at a few places, and counts those in or out.

    >>> x = torch.linspace(-1, 1, 11)
    >>> round(basin(2 * (x[:, None] ** 2 + x**2) + 0.1), 1)  # a circle of radius 1/2 in a square of side 2: π / 16
    0.2
    """
    losses = between(losses)
    middle = len(losses) // 2
    return float((losses <= losses[middle, middle] + rise).float().mean())


def between(losses: Tensor, times: int = 8) -> Tensor:
    """A surface (G, G) on a grid so many times as fine: what was measured, and smooth curves between.

    The curves run through the logarithm of the loss, which spans several powers of ten and is never negative.

    >>> between(torch.tensor([[1.0, 1.0], [4.0, 4.0]]), times=2)[:, 0].round(decimals=2).tolist()
    [1.0, 2.0, 4.0]
    """
    size = times * (len(losses) - 1) + 1
    heights = losses.clamp(min=1e-6).log()[None, None]
    return nn.functional.interpolate(heights, (size, size), mode="bicubic", align_corners=True)[0, 0].exp()


def not_convex(losses: Tensor) -> float:
    """The mean of |λ_min| / |λ|_max over a surface (G, G) where λ_min < 0, and 0 elsewhere: Li et al.'s ratio, in two
    dimensions, from finite differences.

    >>> x = torch.linspace(-1, 1, 9)
    >>> not_convex(x[:, None] ** 2 + x**2), round(not_convex(x[:, None] ** 2 - x**2), 3)
    (0.0, 1.0)
    """
    middle = losses[1:-1, 1:-1]
    xx = losses[1:-1, 2:] - 2 * middle + losses[1:-1, :-2]
    yy = losses[2:, 1:-1] - 2 * middle + losses[:-2, 1:-1]
    xy = (losses[2:, 2:] - losses[2:, :-2] - losses[:-2, 2:] + losses[:-2, :-2]) / 4
    mean, radius = (xx + yy) / 2, (((xx - yy) / 2) ** 2 + xy**2).sqrt()  # eigenvalues are mean ± radius
    largest = mean.abs() + radius
    return float(((radius - mean).clamp(min=0) / largest.clamp(min=1e-12)).mean())
