"""Networks of growing depth, with and without residual connections and normalisation, and the loss around them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from regard.config import DecoderOnly
from regard.config.positions import RotaryPositions
from regard.drawing.style import new_figure, our_style
from regard.labs.charts import chart, over_seeds
from regard.labs.contours import contours
from regard.labs.fitting import Answering, Asked, accuracy, fit
from regard.labs.lab import Bench, Drawing, Outcome, Table
from regard.labs.surfaces import basin, not_convex, surface
from regard.labs.tasks import FIRST, copying
from regard.models import build
from regard.models.initialise import initialise
from regard.models.network import Network

DONE = """
Networks of the same width and growing depth learn, in a fixed number of steps, to copy a few symbols: with residual
connections and layer normalisation in the paper's order (post-norm) and before each sub-layer (pre-norm), without
normalisation, without residual connections, and without both. One layer is enough for the task, so a network that
fails is one that its depth keeps from learning. Each is trained at several learning rates, and the best of them
counts. All weights are as Glorot and Bengio (2010) choose them, so that what a sub-layer adds starts as large as what
it is added to. Our networks are not otherwise made so: in them it starts small, by the square root of the number of
sub-layers, and the last line is a network without normalisation that is made like them.

Then the loss around networks that were trained with and without residual connections, at a depth at which both still
learn: the weights are moved along two random directions, in each of which every row of every matrix has the length of
that row in the network (Li et al. 2018: filter-normalised). On the map, 1 is a move as long as the weights themselves.
Two numbers describe it: the share of the square where the loss is at most half a nat above that of the centre, and how
far from convex it is (the ratio |λ_min| / |λ|_max of the curvatures where one is negative, averaged over the square).
"""
LIMITS = """
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


def run(bench: Bench) -> Outcome:
    """Train at every depth, walk around what was learned, draw."""
    depths = bench.pick([2, 8], [1, 3, 6, 12], [1, 2, 4, 8, 16])
    rates = bench.pick([1e-2], [3e-3, 1e-2], [1e-3, 3e-3, 1e-2])
    steps, seeds = bench.pick(60, 120, 200), bench.pick(1, 2, 2)
    kinds = bench.pick([POST, NO_NORM, NO_RESIDUAL, SMALL], [*KINDS], [*KINDS])
    right: dict[str, list[list[float]]] = {}  # by kind: for each seed, at each depth
    for name in kinds:
        best = [_best(KINDS[name], depth, rates, steps, seeds) for depth in depths]
        right[name] = [list(shares) for shares in zip(*best, strict=True)]
        bench.say(f"  {name}: {_mean([run[-1] for run in right[name]]):.0%} right at {depths[-1]} layers")
    depth, longer, drawn, walks = bench.pick((2, 60, 1, 1), (4, 240, 2, 2), (4, 400, 2, 3))
    places = torch.linspace(-REACH, REACH, bench.pick(7, 19, 31))
    maps: dict[str, list[Tensor]] = {}
    centres: dict[str, list[float]] = {}
    for name, kind in list(MAPS.items())[: bench.pick(2, 4, 4)]:
        maps[name], centres[name] = _maps(kind, depth, longer, drawn, walks, places)
        bench.say(f"  the loss around {name}: {_mean([basin(one) for one in maps[name]]):.0%} within half a nat")
    deepest = {name: _mean([run[-1] for run in runs]) for name, runs in right.items()}
    shallow = min(_mean([run[0] for run in runs]) for runs in right.values())
    both = [deepest[name] for name in (POST, PRE) if name in deepest]
    one = {name: deepest[name] for name in deepest if name not in (POST, PRE, SMALL)}
    widths = {name: [basin(found) for found in surfaces] for name, surfaces in maps.items()}
    bends = {name: [not_convex(found) for found in surfaces] for name, surfaces in maps.items()}
    return Outcome(
        holds=shallow > 0.8
        and max(both) > 0.8
        and min(both) > 1.3 * max(one.values())
        and all(_mean(widths[on]) > 1.2 * _mean(widths[off]) for on, off in _pairs(widths)),
        said=f"With {_layers(depths[0])} every network copies {shallow:.0%} or more. With {depths[-1]} layers it is "
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
            "not_convex": bends,
        },
        drawings=[_draw_depths(depths, right), _draw_maps({name: found[0] for name, found in maps.items()})],
        tables=[_depth_table(depths, right), _surface_table(centres, widths, bends)],
    )


def _best(kind: Kind, layers: int, rates: list[float], steps: int, seeds: int) -> list[float]:
    """The share of symbols copied by each seed, at the learning rate that is best for all together."""
    runs = [[accuracy(_learn(kind, layers, rate, steps, seed), _test()) for seed in range(seeds)] for rate in rates]
    return max(runs, key=sum)


def _learn(kind: Kind, layers: int, rate: float, steps: int, seed: int) -> Network:
    """A trained network; where training diverged, the network as it was before that."""
    torch.manual_seed(seed)
    config = DecoderOnly(
        vocabulary=SYMBOLS + FIRST,
        width=32,
        layers=layers,
        heads=2,
        feed_forward=64,
        positions=RotaryPositions(),
        residual=kind.residual,
        norm=kind.norm,
        norm_order=kind.order,
        dropout=0.0,
    )
    network = build(config)
    initialise(network, config, shrink=kind.small)
    fit(network, copying(SYMBOLS, LENGTH, 32, seed), steps, peak=rate)
    return network


def _test() -> Asked:
    return next(copying(SYMBOLS, LENGTH, 256, seed=10**6))


def _maps(
    kind: Kind, layers: int, steps: int, seeds: int, walks: int, places: Tensor
) -> tuple[list[Tensor], list[float]]:
    """Surfaces around networks of several seeds, along several pairs of directions, and the loss in their middle."""
    batch = next(copying(SYMBOLS, LENGTH, 64, seed=10**6))
    found, centres = list[Tensor](), list[float]()
    for seed in range(seeds):
        network = _learn(kind, layers, 5e-3, steps, seed)
        objective = Answering(network.eval())

        def loss(objective: Answering = objective) -> float:
            return float(objective(batch).plain) / batch.targets

        with torch.no_grad():
            centres.append(loss())
        found += [surface(network, loss, places, seed=walk) for walk in range(walks)]
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
        nearer = "nearer" if _mean(bends[off]) > 1.2 * _mean(bends[on]) else "hardly nearer"
        said.append(
            f"around {on.split(',')[0]} networks of {depth} layers {_mean(widths[on]):.0%} of the square lie within "
            f"half a nat with residual connections and {_mean(widths[off]):.0%} without, and the surface is {nearer} "
            f"to a convex one (a ratio of {_mean(bends[on]):.2f} against {_mean(bends[off]):.2f})"
        )
    sentence = "; ".join(said) + "."
    return sentence[0].upper() + sentence[1:]


def _pairs(maps: Iterable[str]) -> list[tuple[str, str]]:
    """The names of maps with residual connections, each beside that of the same without."""
    names = list(maps)
    return list(zip(names[::2], names[1::2], strict=True))


def _draw_depths(depths: list[int], right: dict[str, list[list[float]]]) -> Drawing:
    with our_style():
        figure = new_figure(7, 3.6)
        ax = figure.subplots()
        lines = {name: over_seeds(depths, runs) for name, runs in right.items()}
        chart(ax, lines, title="share of symbols copied", across="layers", x="log")
        ax.set_xticks(depths, [str(depth) for depth in depths])
    return Drawing(
        "depth",
        "What networks of growing depth have learned after the same number of steps, at the best learning rate for "
        f"each; guessing is {1 / SYMBOLS:.2f}.",
        figure,
        "With residual connections and normalisation networks of all depths copy nearly everything; without either of "
        "them the deep ones do not, unless what sub-layers add starts small.",
    )


def _draw_maps(maps: dict[str, Tensor]) -> Drawing:
    with our_style():
        rows = len(_pairs(maps))  # residual connections on the left, none on the right
        figure = new_figure(8.4, 4.1 * rows)
        for n, (name, found) in enumerate(maps.items(), start=1):
            contours(figure.add_subplot(rows, 2, n), found, REACH, LEVELS, title=name)
    return Drawing(
        "surfaces",
        "The loss in nats around trained networks (+), along two random directions in which 1 is as far as the weights "
        "are long.",
        figure,
        "Maps of the loss: a basin around each trained network, wider with residual connections than without.",
    )


def _depth_table(depths: list[int], right: dict[str, list[list[float]]]) -> Table:
    rows = [
        [name, *(f"{_mean(list(shares)):.0%}" for shares in zip(*runs, strict=True))] for name, runs in right.items()
    ]
    return Table("Symbols copied, by layers", ["", *map(str, depths)], rows)


def _surface_table(
    centres: dict[str, list[float]], widths: dict[str, list[float]], bends: dict[str, list[float]]
) -> Table:
    rows = [
        [name, f"{_mean(centres[name]):.3f}", f"{_mean(widths[name]):.0%}", f"{_mean(bends[name]):.2f}"]
        for name in centres
    ]
    head = ["", "loss at the centre", "within half a nat", "ratio of curvatures"]
    return Table("The loss around trained networks", head, rows)


def _layers(number: int) -> str:
    return "one layer" if number == 1 else f"{number} layers"


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
