"""Recall over a distance: which networks learn, in a given number of steps, what lies further and further back."""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import torch

from regard.config import DecoderOnly, ModelConfig, RecurrentLanguageModel
from regard.drawing.style import new_figure, our_style
from regard.labs.charts import Line, chart, over_seeds
from regard.labs.fitting import accuracy, fit
from regard.labs.lab import Bench, Drawing, Outcome, Table
from regard.labs.tasks import FIRST, recalling
from regard.models import build
from regard.models.assembly import sketch

DONE = """
A text is one of eight symbols, then as many others, drawn from the same eight, as the distance says, and a mark; the
network must then write the first symbol. An RNN, an LSTM, a GRU (one layer each) and a Transformer (two layers)
learn this, a network anew for each distance, all for the same number of steps and on the same texts. The widths of the
recurrent networks are chosen so that they have as many parameters as the Transformer, or just less. Each network gets
the learning rate that suits it best at this distance, of those tried.

Accuracy is measured on texts that were not trained on, of the same distance; guessing gives an eighth. A network's
reach is the longest distance up to which nine answers in ten are right, on average over the seeds.
"""
LIMITS = """
The number of steps is what is held equal, and it is small: with more, gated networks learn longer distances, and so
does an RNN with more care. How far a gated network gets also depends much on the learning rate; others than those tried
might suit it better still. What is measured is how hard the task is to learn, not whether a network could hold the
answer. A single symbol at a fixed place is the simplest thing to remember; it also suits attention, which need only
find a position it has seen in training. At distances other than the one that was trained, it might not.
"""

RNN, LSTM, GRU, TRANSFORMER = "RNN", "LSTM", "GRU", "Transformer"
SYMBOLS = 8
MASTERED = 0.9
Runs = dict[int, list[float]]  # by distance, the accuracy of each seed


def run(bench: Bench) -> Outcome:
    """Train, draw."""
    distances = bench.pick([2, 16], [2**n for n in range(1, 7)], [2**n for n in range(1, 8)])
    rates = bench.pick([1e-2], [2e-3, 1e-2], [1e-3, 3e-3, 1e-2])
    steps, seeds = bench.pick(90, 200, 300), bench.pick(1, 3, 3)
    chosen = equally_large(_transformer(bench.pick(24, 32, 32)))
    found: dict[str, Runs] = {}
    best: dict[str, dict[int, float]] = {}
    for name, settings in chosen.items():
        found[name], best[name] = {}, {}
        for distance in distances:
            tried = {rate: [_recall(settings, distance, steps, rate, s, bench) for s in range(seeds)] for rate in rates}
            best[name][distance] = max(tried, key=lambda rate: _mean(tried[rate]))
            found[name][distance] = tried[best[name][distance]]
        told = ", ".join(f"{_mean(runs):.2f} at {distance}" for distance, runs in found[name].items())
        bench.say(f"  {name}: {told}")
    far, guessing = distances[-1], 1 / SYMBOLS
    at_end = {name: _mean(runs[far]) for name, runs in found.items()}
    sizes = {name: parameters(settings) for name, settings in chosen.items()}
    return Outcome(
        holds=all(_mean(runs[distances[0]]) > MASTERED for runs in found.values())
        and min(found[TRANSFORMER][far]) > MASTERED
        and max(found[RNN][far]) < 0.5
        and all(reach(found[RNN]) <= reach(runs) for runs in found.values()),
        said=f"With {min(sizes.values()):,} to {max(sizes.values()):,} parameters and {steps} steps "
        f"{', '.join(f'the {name} {_reached(reach(runs), far)}' for name, runs in found.items())}. Over a distance of "
        f"{far} the RNN is right in {at_end[RNN]:.0%} of texts, the LSTM in {at_end[LSTM]:.0%}, the GRU in "
        f"{at_end[GRU]:.0%} and the Transformer in {at_end[TRANSFORMER]:.0%}, where guessing gives {guessing:.0%} "
        f"(seeds: {seeds}).",
        numbers={
            "distances": distances,
            "accuracy": {name: list(runs.values()) for name, runs in found.items()},
            "learning_rate": {name: list(rate.values()) for name, rate in best.items()},
            "parameters": sizes,
            "width": {name: settings.width for name, settings in chosen.items()},
            "reach": {name: reach(runs) for name, runs in found.items()},
        },
        drawings=[_draw(distances, found)],
        tables=[_table(distances, found, sizes)],
    )


def equally_large(transformer: ModelConfig) -> dict[str, ModelConfig]:
    """A Transformer, and recurrent networks with as many parameters or just less."""
    budget = parameters(transformer)
    cells: Mapping[str, Literal["rnn", "lstm", "gru"]] = {RNN: "rnn", LSTM: "lstm", GRU: "gru"}
    recurrent = {name: _widest(_recurrent(cell), budget) for name, cell in cells.items()}
    return {**recurrent, TRANSFORMER: transformer}


def parameters(settings: ModelConfig) -> int:
    """How many the network of these settings has."""
    return sum(parameter.numel() for parameter in sketch(settings).parameters())


def reach(runs: Mapping[int, Sequence[float]]) -> int:
    """The longest distance up to which the mean accuracy suffices; 0 where not even the shortest is learned.

    >>> reach({2: [1.0], 4: [0.95, 0.9], 8: [0.3], 16: [1.0]})
    4
    """
    reached = 0
    for distance, accuracies in runs.items():
        if _mean(accuracies) < MASTERED:
            break
        reached = distance
    return reached


def _widest(settings: Callable[[int], ModelConfig], budget: int) -> ModelConfig:
    widths = range(1, 512)
    return settings(widths[bisect_right(widths, budget, key=lambda width: parameters(settings(width))) - 1])


def _recurrent(cell: Literal["rnn", "lstm", "gru"]) -> Callable[[int], ModelConfig]:
    return lambda width: RecurrentLanguageModel(
        vocabulary=SYMBOLS + FIRST, width=width, layers=1, cell=cell, dropout=0.0
    )


def _transformer(width: int) -> ModelConfig:
    return DecoderOnly(vocabulary=SYMBOLS + FIRST, width=width, layers=2, heads=2, feed_forward=2 * width, dropout=0.0)


def _recall(settings: ModelConfig, distance: int, steps: int, rate: float, seed: int, bench: Bench) -> float:
    """The accuracy after training over this distance."""
    torch.manual_seed(seed)
    network = build(settings)
    fit(network, recalling(SYMBOLS, distance, bench.pick(16, 32, 32), seed), steps, peak=rate)
    return accuracy(network, next(recalling(SYMBOLS, distance, 512, seed=1000 + seed)))


def _reached(reach: int, far: int) -> str:
    return f"masters all distances up to {far}" if reach == far else f"reaches {reach}"


def _draw(distances: list[int], found: Mapping[str, Runs]) -> Drawing:
    with our_style():
        figure = new_figure(11, 4.2)
        lines = {name: over_seeds(distances, list(zip(*runs.values(), strict=True))) for name, runs in found.items()}
        lines["guessing"] = Line(distances, [1 / SYMBOLS] * len(distances))
        title = "share of texts whose first symbol is recalled"
        chart(figure.subplots(), lines, title=title, across="distance, in tokens", x="log")
    return Drawing(
        "distance",
        "Accuracy of recall after the same number of steps, for networks of about equal size; "
        "lines are means over seeds, bands reach from the worst to the best.",
        figure,
        "The Transformer's accuracy stays at one over all distances; the recurrent networks' falls to what guessing "
        "gives, the RNN's first.",
    )


def _table(distances: list[int], found: Mapping[str, Runs], sizes: Mapping[str, int]) -> Table:
    rows = [
        [name, f"{sizes[name]:,}", *(f"{_mean(runs[distance]):.2f}" for distance in distances)]
        for name, runs in found.items()
    ]
    return Table("Accuracy by distance", ["", "parameters", *map(str, distances)], rows)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
