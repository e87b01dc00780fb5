"""Networks of growing depth, with and without residual connections and normalization, and the loss around them.

The loss is measured along two filter-normalized random directions (Li et al. 2018): in a direction, each row of each
matrix is random with the norm of that row in the network, so that surfaces of networks with different weight norms are
comparable. Biases and normalization weights are not moved.

G grid points along each direction
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

import torch
from torch import Tensor, nn

from regard.config import DecoderOnlyConfig
from regard.config.positions import RotaryPositionsConfig
from regard.labs import LabContext, LabFigure, LabResult, LabTable
from regard.labs.charts import contour_map, line_chart, over_seeds
from regard.labs.trials import (
    FIRST_SYMBOL,
    SymbolPrediction,
    TrialAccuracy,
    accuracy,
    copy_task,
    fit,
    select_learning_rate,
)
from regard.models import build
from regard.models.initialization import initialize
from regard.models.network import Network
from regard.plotting import new_figure, plot_style

METHOD = """
Networks of the same width and growing depth learn to copy a few symbols in a fixed number of steps: with residual
connections and layer normalization after each sub-layer (post-norm, as in the paper) or before it (pre-norm), without
normalization, without residual connections, and without both. One layer is enough for the task, so a network that fails
is one that its depth prevents from learning. Each is trained at several learning rates, and the best is selected on
other sequences than those of the reported accuracy. All weights are initialized as by Glorot and Bengio (2010), so that
the output of a sub-layer is initially as large as its input. By default regard scales the output weights of sub-layers
down by the square root of their number; the last variant is a network without normalization with this small
initialization.

Then the loss around trained networks with and without residual connections is measured, at a depth at which both learn:
the weights are moved along two filter-normalized random directions (Li et al. 2018), where 1 is a move as long as the
weights themselves. Two numbers describe the surface: the fraction of the square where the loss is at most half a nat
above that of the center (the basin), and the nonconvexity (the ratio |λ_min| / |λ|_max of the curvatures where one is
negative, averaged over the square). Li et al. report that residual connections smooth the surface. The claim tested
here is about the basin only: with residual connections its fraction has to be larger by 20% or more, averaged over
several networks and pairs of directions.
"""
LIMITATIONS = """
Small networks on a small task, trained briefly and with a short warmup, which post-norm needs more than pre-norm (Xiong
et al. 2020): with more care some of the networks that fail here can be trained. That normalization is not needed with a
small initialization was found by Zhang et al. (2019, Fixup). Two random directions out of tens of thousands: a surface
that looks smooth on the map need not be smooth elsewhere. The surface of a network that has learned nothing is flat,
which looks smooth and means nothing; therefore the maps show a depth at which all networks learn. Li et al. measured
convolutional networks for images.
"""


@dataclass(frozen=True)
class BlockVariant:
    """Residual connections, normalization and initialization of the sub-layers."""

    residual: bool = True
    norm: Literal["layer", "none"] = "layer"
    order: Literal["post", "pre"] = "post"
    small_init: bool = False


POST, PRE, NO_NORM, NO_RESIDUAL, NEITHER = "post-norm", "pre-norm", "no normalization", "no residuals", "neither"
SMALL_INIT = "no normalization, small init"
BLOCK_VARIANTS = {
    POST: BlockVariant(),
    PRE: BlockVariant(order="pre"),
    NO_NORM: BlockVariant(norm="none"),
    NO_RESIDUAL: BlockVariant(residual=False),
    NEITHER: BlockVariant(residual=False, norm="none"),
    SMALL_INIT: BlockVariant(norm="none", small_init=True),
}
SURFACE_VARIANTS = {
    "post-norm, residuals": BlockVariant(),
    "post-norm, no residuals": BlockVariant(residual=False),
    "pre-norm, residuals": BlockVariant(order="pre"),
    "pre-norm, no residuals": BlockVariant(residual=False, order="pre"),
}
EXTENT = 1.0  # of the maps, in norms of the weights
BASIN_RISE = 0.5  # nats above the loss at the center that still belong to the basin
LEVELS = [0.03, 0.1, 0.3, 1.0, 2.0, 4.0]
SYMBOLS, LENGTH = 6, 3
TEST_SEEDS = (10**6 + 1, 10**6)  # of test data: for selecting the learning rate, and for reporting
Direction = dict[str, Tensor]  # in weight space, by the name of the parameter


def run(context: LabContext) -> LabResult:
    """Train at every depth, and measure the loss around trained networks."""
    depths = context.by_effort([2, 8], [1, 3, 6, 12], [1, 2, 4, 8, 16])
    rates = context.by_effort([1e-2], [3e-3, 1e-2], [3e-3, 1e-2])
    steps, seeds = context.by_effort(60, 120, 160), context.by_effort(1, 2, 2)
    names = context.by_effort([POST, NO_NORM, NO_RESIDUAL, SMALL_INIT], [*BLOCK_VARIANTS], [*BLOCK_VARIANTS])
    accuracies: dict[str, list[list[float]]] = {}  # by variant: for each seed, at each depth
    for name in names:
        by_depth = [_best_accuracies(BLOCK_VARIANTS[name], depth, rates, steps, seeds) for depth in depths]
        accuracies[name] = [list(values) for values in zip(*by_depth, strict=True)]
        context.log(f"  {name}: accuracy {fmean(run[-1] for run in accuracies[name]):.0%} at {depths[-1]} layers")
    depth, surface_steps, networks, directions = context.by_effort((4, 80, 2, 1), (4, 240, 2, 2), (4, 300, 3, 2))
    offsets = torch.linspace(-EXTENT, EXTENT, context.by_effort(11, 19, 25))
    surfaces: dict[str, list[Tensor]] = {}
    centers: dict[str, list[float]] = {}
    for name, variant in list(SURFACE_VARIANTS.items())[: context.by_effort(2, 4, 4)]:
        surfaces[name], centers[name] = _surfaces(variant, depth, surface_steps, networks, directions, offsets)
        context.log(f"  loss around {name}: basin {fmean(map(basin_fraction, surfaces[name])):.0%}")
    deepest = {name: fmean(run[-1] for run in runs) for name, runs in accuracies.items()}
    shallowest = min(fmean(run[0] for run in runs) for runs in accuracies.values())
    both = [deepest[name] for name in (POST, PRE) if name in deepest]
    others = {name: deepest[name] for name in deepest if name not in (POST, PRE, SMALL_INIT)}
    basins = {name: [basin_fraction(surface) for surface in maps] for name, maps in surfaces.items()}
    ratios = {name: [nonconvexity(surface) for surface in maps] for name, maps in surfaces.items()}
    return LabResult(
        holds=shallowest > 0.8
        and max(both) > 0.8
        and min(both) > 1.3 * max(others.values())
        and max(loss for losses in centers.values() for loss in losses) < BASIN_RISE  # all of them have learned
        and all(fmean(basins[on]) > 1.2 * fmean(basins[off]) for on, off in _residual_pairs(basins)),
        summary=f"With {_layers(depths[0])} every network copies {_at_least(shallowest)} of the symbols. With "
        f"{depths[-1]} layers the accuracy is "
        f"{' and '.join(f'{deepest[name]:.0%} ({name})' for name in (POST, PRE) if name in deepest)} with residual "
        f"connections and normalization, and {', '.join(f'{value:.0%} ({name})' for name, value in others.items())}; "
        f"chance is {1 / SYMBOLS:.0%} (seeds: {seeds}). With a small initialization, a network without normalization "
        f"reaches {deepest[SMALL_INIT]:.0%}. {_norm_order_summary(deepest)}{_surface_summary(basins, ratios, depth)}",
        numbers={
            "depths": depths,
            "accuracy": accuracies,
            "surface_depth": depth,
            "loss_at_center": centers,
            "basin_fraction": basins,
            "nonconvexity": ratios,
        },
        figures=[
            _depth_figure(depths, accuracies),
            _surface_figure({name: maps[0] for name, maps in surfaces.items()}),
        ],
        tables=[_depth_table(depths, accuracies), _surface_table(centers, basins, ratios)],
    )


def _best_accuracies(variant: BlockVariant, layers: int, rates: list[float], steps: int, seeds: int) -> list[float]:
    """Return the accuracy of each seed at the best learning rate."""
    trials = {rate: [_trial(variant, layers, rate, steps, seed) for seed in range(seeds)] for rate in rates}
    return select_learning_rate(trials).reported


def _trial(variant: BlockVariant, layers: int, learning_rate: float, steps: int, seed: int) -> TrialAccuracy:
    network = _train(variant, layers, learning_rate, steps, seed)
    tests = (next(copy_task(SYMBOLS, LENGTH, 256, test_seed)) for test_seed in TEST_SEEDS)
    return TrialAccuracy(*(accuracy(network, test) for test in tests))


def _train(variant: BlockVariant, layers: int, learning_rate: float, steps: int, seed: int) -> Network:
    """Return a trained network; if training diverged, the network before that."""
    torch.manual_seed(seed)
    config = DecoderOnlyConfig(
        vocab_size=SYMBOLS + FIRST_SYMBOL,
        width=32,
        layers=layers,
        heads=2,
        feed_forward=64,
        positions=RotaryPositionsConfig(),
        residual=variant.residual,
        norm=variant.norm,
        norm_order=variant.order,
        dropout=0.0,
    )
    network = build(config)
    initialize(network, config, scale_residual=variant.small_init)
    fit(network, copy_task(SYMBOLS, LENGTH, 32, seed), steps, learning_rate=learning_rate)
    return network


def _surfaces(
    variant: BlockVariant, layers: int, steps: int, seeds: int, directions: int, offsets: Tensor
) -> tuple[list[Tensor], list[float]]:
    """Return the surfaces of networks of several seeds along several pairs of directions, and their center losses."""
    batch = next(copy_task(SYMBOLS, LENGTH, 64, seed=10**6))
    surfaces, centers = list[Tensor](), list[float]()
    for seed in range(seeds):
        network = _train(variant, layers, 5e-3, steps, seed)
        objective = SymbolPrediction(network.eval())

        def loss(objective: SymbolPrediction = objective) -> float:
            return float(objective(batch).cross_entropy) / batch.targets

        with torch.no_grad():
            centers.append(loss())
        surfaces += [loss_surface(network, loss, offsets, seed=direction) for direction in range(directions)]
    return surfaces, centers


def _norm_order_summary(deepest: dict[str, float]) -> str:
    """Return a sentence if post-norm is clearly worse than pre-norm."""
    if PRE not in deepest or deepest[POST] > 0.9 * deepest[PRE]:
        return ""
    return "At this depth post-norm is harder to train than pre-norm, as Xiong et al. (2020) found. "


def _surface_summary(basins: dict[str, list[float]], ratios: dict[str, list[float]], depth: int) -> str:
    """Return a sentence for each order of normalization."""
    sentences = []
    for on, off in _residual_pairs(basins):
        convex = "more convex" if fmean(ratios[off]) > 1.2 * fmean(ratios[on]) else "hardly more convex"
        order = on.split(",")[0].capitalize()
        sentences.append(
            f"{order} with {depth} layers: the basin covers {fmean(basins[on]):.0%} of the square with residual "
            f"connections and {fmean(basins[off]):.0%} without, and the surface is {convex} (nonconvexity "
            f"{fmean(ratios[on]):.2f} with and {fmean(ratios[off]):.2f} without)."
        )
    return " ".join(sentences)


def _residual_pairs(names: Iterable[str]) -> list[tuple[str, str]]:
    """Return pairs of the names with and without residual connections."""
    names = list(names)
    return list(zip(names[::2], names[1::2], strict=True))


def _depth_figure(depths: list[int], accuracies: dict[str, list[list[float]]]) -> LabFigure:
    with plot_style():
        figure = new_figure(7, 3.6)
        lines = {name: over_seeds(depths, runs) for name, runs in accuracies.items()}
        line_chart(figure.subplots(), lines, title="accuracy of the copy task", xlabel="layers", xscale="log")
    ends = (
        f"{name}: {fmean(run[0] for run in runs):.0%}, then {fmean(run[-1] for run in runs):.0%}"
        for name, runs in accuracies.items()
    )
    return LabFigure(
        "depth",
        "Accuracy by depth after the same number of steps, at the best learning rate for each; chance is "
        f"{1 / SYMBOLS:.2f}.",
        figure,
        f"Accuracy by depth, a line for each variant. With {_layers(depths[0])}, then with {depths[-1]}: "
        f"{'; '.join(ends)}.",
    )


def _surface_figure(surfaces: dict[str, Tensor]) -> LabFigure:
    basins = {name: f"basin {basin_fraction(surface):.0%}" for name, surface in surfaces.items()}
    with plot_style():
        rows = len(_residual_pairs(surfaces))  # left column with residual connections, right column without
        figure = new_figure(8.4, 4.1 * rows)
        for n, (name, surface) in enumerate(surfaces.items(), start=1):
            border = float(surface[len(surface) // 2, len(surface) // 2]) + BASIN_RISE
            ax = figure.add_subplot(rows, 2, n)
            title = f"{name}: {basins[name]}"
            contour_map(ax, interpolate(surface), EXTENT, LEVELS, highlight=border, title=title)
    return LabFigure(
        "surfaces",
        "Loss in nats around trained networks (+) along two random directions; 1 is the norm of the weights. Inside "
        f"the thick line (the basin) the loss is at most half a nat above the center. Measured on a grid of "
        f"{len(surface)} × {len(surface)} points and interpolated.",
        figure,
        "Contour maps of the loss around a trained network of each variant, the first of those measured. "
        f"{'; '.join(f'{name}: {text}' for name, text in basins.items())}.",
    )


def _depth_table(depths: list[int], accuracies: dict[str, list[list[float]]]) -> LabTable:
    rows = [
        [name, *(f"{fmean(values):.0%}" for values in zip(*runs, strict=True))] for name, runs in accuracies.items()
    ]
    return LabTable("Accuracy by number of layers", ["", *map(str, depths)], rows)


def _surface_table(
    centers: dict[str, list[float]], basins: dict[str, list[float]], ratios: dict[str, list[float]]
) -> LabTable:
    rows = [
        [name, f"{fmean(centers[name]):.3f}", f"{fmean(basins[name]):.0%}", f"{fmean(ratios[name]):.2f}"]
        for name in centers
    ]
    return LabTable("Loss around trained networks", ["", "loss at center", "basin", "nonconvexity"], rows)


def _layers(number: int) -> str:
    return "one layer" if number == 1 else f"{number} layers"


def _at_least(fraction: float) -> str:
    text = f"{fraction:.0%}"
    return text if text == "100%" else f"{text} or more"


# --- loss surface -----------------------------------------------------------------------------------------------------


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
