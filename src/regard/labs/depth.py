"""Networks of growing depth, with and without residual connections and normalisation, and the loss around them."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

import torch
from torch import Tensor

from regard.config import DecoderOnlyConfig
from regard.config.positions import RotaryPositionsConfig
from regard.labs.charts.grids import contour_map
from regard.labs.charts.lines import line_chart, over_seeds
from regard.labs.lab import LabContext, LabFigure, LabResult, LabTable
from regard.labs.trials.fitting import SymbolPrediction, TrialAccuracy, accuracy, fit, select_learning_rate
from regard.labs.trials.loss_surface import BASIN_RISE, basin_fraction, interpolate, loss_surface, nonconvexity
from regard.labs.trials.tasks import FIRST_SYMBOL, copy_task
from regard.models import build
from regard.models.initialization import initialize
from regard.models.network import Network
from regard.plotting import new_figure, plot_style

METHOD = """
Networks of the same width and growing depth learn, in a fixed number of steps, to copy a few symbols: with residual
connections and layer normalisation in the paper's order (post-norm) and before each sub-layer (pre-norm), without
normalisation, without residual connections, and without both. One layer is enough for the task, so a network that
fails is one that its depth keeps from learning. Each is trained at several learning rates; the best counts, chosen on
other texts than those by which the networks are compared. All weights are as Glorot and Bengio (2010) choose them, so
that what a sub-layer adds starts as large as what it is added to. Our networks are not otherwise made so: in them it
starts small, by the square root of the number of sub-layers, and the last line is a network without normalisation that
is made like them.

Then the loss around networks that were trained with and without residual connections, at a depth at which both still
learn: the weights are moved along two random directions, in each of which every row of every matrix has the length of
that row in the network (Li et al. 2018: filter-normalised). On the map, 1 is a move as long as the weights themselves.
Two numbers describe it: the share of the square where the loss is at most half a nat above that of the centre, and how
far from convex it is (the ratio |λ_min| / |λ|_max of the curvatures where one is negative, averaged over the square).
Li et al. say that residual connections smooth the surface. The claim here is about the first number alone: with them
the share is to be larger by a fifth or more, in the mean over several networks and pairs of directions.
"""
LIMITATIONS = """
Small networks on a small task, trained briefly and with a short warm-up, which post-norm needs more than pre-norm does
(Xiong et al. 2020): with more care, some of those that fail here can be trained. That normalisation is not needed where
what is added starts small was found by Zhang et al. (2019, Fixup). Two random directions out of tens of thousands: a
surface that looks smooth on the map need not be so elsewhere. Where a network has learned nothing its surface is a
plain, which looks smooth and means nothing; therefore the surfaces are drawn at a depth at which all have learned. Li
et al. measured convolutional networks for images.
"""


@dataclass(frozen=True)
class Kind:
    """What stands around each sub-layer."""

    residual: bool = True
    norm: Literal["layer", "none"] = "layer"
    order: Literal["post", "pre"] = "post"
    small: bool = False  # what sub-layers add, at first


POST, PRE, NO_NORM, NO_RESIDUAL, NEITHER = "post-norm", "pre-norm", "no normalisation", "no residuals", "neither"
SMALL = "no normalisation, small first steps"
KINDS = {
    POST: Kind(),
    PRE: Kind(order="pre"),
    NO_NORM: Kind(norm="none"),
    NO_RESIDUAL: Kind(residual=False),
    NEITHER: Kind(residual=False, norm="none"),
    SMALL: Kind(norm="none", small=True),
}
MAPS = {
    "post-norm, residuals": Kind(),
    "post-norm, no residuals": Kind(residual=False),
    "pre-norm, residuals": Kind(order="pre"),
    "pre-norm, no residuals": Kind(residual=False, order="pre"),
}
REACH = 1.0  # of the maps: so far that a random number as large as itself was added to every weight
LEVELS = [0.03, 0.1, 0.3, 1.0, 2.0, 4.0]
SYMBOLS, LENGTH = 6, 3
OTHERS = (10**6 + 1, 10**6)  # seeds of texts that are not trained on: those that choose a rate, those that are reported


def run(context: LabContext) -> LabResult:
    """Train at every depth, walk around what was learned, draw."""
    depths = context.by_effort([2, 8], [1, 3, 6, 12], [1, 2, 4, 8, 16])
    rates = context.by_effort([1e-2], [3e-3, 1e-2], [3e-3, 1e-2])
    steps, seeds = context.by_effort(60, 120, 160), context.by_effort(1, 2, 2)
    kinds = context.by_effort([POST, NO_NORM, NO_RESIDUAL, SMALL], [*KINDS], [*KINDS])
    right: dict[str, list[list[float]]] = {}  # by kind: for each seed, at each depth
    for name in kinds:
        best = [_best(KINDS[name], depth, rates, steps, seeds) for depth in depths]
        right[name] = [list(shares) for shares in zip(*best, strict=True)]
        context.log(f"  {name}: {fmean(run[-1] for run in right[name]):.0%} right at {depths[-1]} layers")
    depth, longer, drawn, walks = context.by_effort((4, 80, 2, 1), (4, 240, 2, 2), (4, 300, 3, 2))
    places = torch.linspace(-REACH, REACH, context.by_effort(11, 19, 25))
    maps: dict[str, list[Tensor]] = {}
    centres: dict[str, list[float]] = {}
    for name, kind in list(MAPS.items())[: context.by_effort(2, 4, 4)]:
        maps[name], centres[name] = _maps(kind, depth, longer, drawn, walks, places)
        context.log(f"  the loss around {name}: {fmean(map(basin_fraction, maps[name])):.0%} within half a nat")
    deepest = {name: fmean(run[-1] for run in runs) for name, runs in right.items()}
    shallow = min(fmean(run[0] for run in runs) for runs in right.values())
    both = [deepest[name] for name in (POST, PRE) if name in deepest]
    one = {name: deepest[name] for name in deepest if name not in (POST, PRE, SMALL)}
    widths = {name: [basin_fraction(found) for found in surfaces] for name, surfaces in maps.items()}
    bends = {name: [nonconvexity(found) for found in surfaces] for name, surfaces in maps.items()}
    return LabResult(
        holds=shallow > 0.8
        and max(both) > 0.8
        and min(both) > 1.3 * max(one.values())
        and max(loss for losses in centres.values() for loss in losses) < BASIN_RISE  # all that are mapped have learned
        and all(fmean(widths[on]) > 1.2 * fmean(widths[off]) for on, off in _pairs(widths)),
        summary=f"With {_layers(depths[0])} every network copies {_at_least(shallow)}. With {depths[-1]} layers it is "
        f"{' and '.join(f'{deepest[name]:.0%} ({name})' for name in (POST, PRE) if name in deepest)} with residual "
        f"connections and normalisation, and {', '.join(f'{share:.0%} ({name})' for name, share in one.items())}; "
        f"guessing is {1 / SYMBOLS:.0%} (seeds: {seeds}). Where what is added starts small, a network without "
        f"normalisation copies {deepest[SMALL]:.0%}. {_of_order(deepest)}{_of_surfaces(widths, bends, depth)}",
        numbers={
            "depths": depths,
            "share_right": right,
            "surface_depth": depth,
            "loss_at_the_centre": centres,
            "within_half_a_nat": widths,
            "nonconvexity": bends,
        },
        figures=[_draw_depths(depths, right), _draw_maps({name: found[0] for name, found in maps.items()})],
        tables=[_depth_table(depths, right), _surface_table(centres, widths, bends)],
    )


def _best(kind: Kind, layers: int, rates: list[float], steps: int, seeds: int) -> list[float]:
    """The share of symbols copied by each seed, at the learning rate that is best for all together."""
    return select_learning_rate(
        {rate: [_try(kind, layers, rate, steps, seed) for seed in range(seeds)] for rate in rates}
    ).reported


def _try(kind: Kind, layers: int, rate: float, steps: int, seed: int) -> TrialAccuracy:
    network = _learn(kind, layers, rate, steps, seed)
    return TrialAccuracy(*(accuracy(network, next(copy_task(SYMBOLS, LENGTH, 256, other))) for other in OTHERS))


def _learn(kind: Kind, layers: int, rate: float, steps: int, seed: int) -> Network:
    """A trained network; where training diverged, the network as it was before that."""
    torch.manual_seed(seed)
    config = DecoderOnlyConfig(
        vocab_size=SYMBOLS + FIRST_SYMBOL,
        width=32,
        layers=layers,
        heads=2,
        feed_forward=64,
        positions=RotaryPositionsConfig(),
        residual=kind.residual,
        norm=kind.norm,
        norm_order=kind.order,
        dropout=0.0,
    )
    network = build(config)
    initialize(network, config, scale_residual=kind.small)
    fit(network, copy_task(SYMBOLS, LENGTH, 32, seed), steps, learning_rate=rate)
    return network


def _maps(
    kind: Kind, layers: int, steps: int, seeds: int, walks: int, places: Tensor
) -> tuple[list[Tensor], list[float]]:
    """Surfaces around networks of several seeds, along several pairs of directions, and the loss in their middle."""
    batch = next(copy_task(SYMBOLS, LENGTH, 64, seed=10**6))
    found, centres = list[Tensor](), list[float]()
    for seed in range(seeds):
        network = _learn(kind, layers, 5e-3, steps, seed)
        objective = SymbolPrediction(network.eval())

        def loss(objective: SymbolPrediction = objective) -> float:
            return float(objective(batch).cross_entropy) / batch.targets

        with torch.no_grad():
            centres.append(loss())
        found += [loss_surface(network, loss, places, seed=walk) for walk in range(walks)]
    return found, centres


def _of_order(deepest: dict[str, float]) -> str:
    """Which order of normalisation does better, where it matters."""
    if PRE not in deepest or deepest[POST] > 0.9 * deepest[PRE]:
        return ""
    return "So deep, the paper's own order is the harder one to train, as Xiong et al. (2020) found. "


def _of_surfaces(widths: dict[str, list[float]], bends: dict[str, list[float]], depth: int) -> str:
    """What the maps say, in a sentence for each order of normalisation."""
    said = []
    for on, off in _pairs(widths):
        nearer = "nearer" if fmean(bends[off]) > 1.2 * fmean(bends[on]) else "hardly nearer"
        said.append(
            f"around {on.split(',')[0]} networks of {depth} layers {fmean(widths[on]):.0%} of the square lie within "
            f"half a nat with residual connections and {fmean(widths[off]):.0%} without, and the surface is {nearer} "
            f"to a convex one (a ratio of {fmean(bends[on]):.2f} against {fmean(bends[off]):.2f})"
        )
    sentence = "; ".join(said) + "."
    return sentence[0].upper() + sentence[1:]


def _pairs(maps: Iterable[str]) -> list[tuple[str, str]]:
    """The names of maps with residual connections, each beside that of the same without."""
    names = list(maps)
    return list(zip(names[::2], names[1::2], strict=True))


def _draw_depths(depths: list[int], right: dict[str, list[list[float]]]) -> LabFigure:
    with plot_style():
        figure = new_figure(7, 3.6)
        lines = {name: over_seeds(depths, runs) for name, runs in right.items()}
        line_chart(figure.subplots(), lines, title="share of symbols copied", xlabel="layers", xscale="log")
    ends = (
        f"{name}: {fmean(run[0] for run in runs):.0%}, then {fmean(run[-1] for run in runs):.0%}"
        for name, runs in right.items()
    )
    return LabFigure(
        "depth",
        "What networks of growing depth have learned after the same number of steps, at the best learning rate for "
        f"each; guessing is {1 / SYMBOLS:.2f}.",
        figure,
        f"The share of symbols copied against depth, a line for each kind of network. With {_layers(depths[0])}, then "
        f"with {depths[-1]}: {'; '.join(ends)}.",
    )


def _draw_maps(maps: dict[str, Tensor]) -> LabFigure:
    shares = {name: f"{basin_fraction(found):.0%} within half a nat" for name, found in maps.items()}
    with plot_style():
        rows = len(_pairs(maps))  # residual connections on the left, none on the right
        figure = new_figure(8.4, 4.1 * rows)
        for n, (name, found) in enumerate(maps.items(), start=1):
            edge = float(found[len(found) // 2, len(found) // 2]) + BASIN_RISE
            title = f"{name}: {shares[name]}"
            contour_map(figure.add_subplot(rows, 2, n), interpolate(found), REACH, LEVELS, highlight=edge, title=title)
    return LabFigure(
        "surfaces",
        "The loss in nats around trained networks (+), along two random directions in which 1 is as far as the weights "
        f"are long. Within the thick line it is at most half a nat above that of the network. Measured at {len(found)} "
        f"times {len(found)} places, with smooth curves between them.",
        figure,
        "Maps of the loss around a trained network of each kind, the first of those measured, with lines of equal "
        f"loss. Of the square, {'; '.join(f'{name}: {share}' for name, share in shares.items())}.",
    )


def _depth_table(depths: list[int], right: dict[str, list[list[float]]]) -> LabTable:
    rows = [[name, *(f"{fmean(shares):.0%}" for shares in zip(*runs, strict=True))] for name, runs in right.items()]
    return LabTable("Symbols copied, by layers", ["", *map(str, depths)], rows)


def _surface_table(
    centres: dict[str, list[float]], widths: dict[str, list[float]], bends: dict[str, list[float]]
) -> LabTable:
    rows = [
        [name, f"{fmean(centres[name]):.3f}", f"{fmean(widths[name]):.0%}", f"{fmean(bends[name]):.2f}"]
        for name in centres
    ]
    head = ["", "loss at the centre", "within half a nat", "ratio of curvatures"]
    return LabTable("The loss around trained networks", head, rows)


def _layers(number: int) -> str:
    return "one layer" if number == 1 else f"{number} layers"


def _at_least(share: float) -> str:
    written = f"{share:.0%}"
    return "everything" if written == "100%" else f"{written} or more"
