"""Recall over a distance: which networks learn, in a given number of steps, what lies further and further back."""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Literal

import torch

from regard.config import DecoderOnlyConfig, ModelConfig, RecurrentLanguageModelConfig
from regard.labs.charts.lines import LineSeries, line_chart, over_seeds
from regard.labs.lab import LabContext, LabFigure, LabResult, LabTable
from regard.labs.trials.fitting import TrialAccuracy, accuracy, count_parameters, fit, select_learning_rate
from regard.labs.trials.tasks import FIRST_SYMBOL, recall_task
from regard.models import build
from regard.models.assembly import build_meta
from regard.plotting import new_figure, plot_style

METHOD = """
A text is one of eight symbols, then as many others, drawn from the same eight, as the distance says, and a mark; the
network must then write the first symbol. An RNN, an LSTM, a GRU (one layer each) and a Transformer (two layers)
learn this, a network anew for each distance, all for the same number of steps and on the same texts. The widths of the
recurrent networks are chosen so that they have as many parameters as the Transformer, or just less. Each network gets
the learning rate that suits it best at this distance, of those tried.

Accuracy is measured on texts that were not trained on, of the same distance, and that had no part in choosing the
learning rate; guessing gives an eighth. A network's reach is the longest distance up to which nine answers in ten are
right, on average over the seeds. The claim holds if all learn the shortest distance, the Transformer the longest too,
not every gated network does so, and the RNN's reach is shorter than that of each of the others.
"""
LIMITATIONS = """
The number of steps is what is held equal, and it is small: with more, gated networks learn longer distances, and so
does an RNN with more care. How far a gated network gets also depends much on the learning rate; others than those tried
might suit it better still. What is measured is how hard the task is to learn, not whether a network could hold the
answer. A single symbol at a fixed place is the simplest thing to remember; it also suits attention, which need only
find a position it has seen in training. At distances other than the one that was trained, it might not.
"""

RNN, LSTM, GRU, TRANSFORMER = "RNN", "LSTM", "GRU", "Transformer"
GATED = (LSTM, GRU)
SYMBOLS = 8
MASTERED = 0.9
OTHERS = (2000, 1000)  # seeds of texts that are not trained on: those that choose a rate, and those that are reported
Runs = dict[int, list[float]]  # by distance, the accuracy of each seed


def run(context: LabContext) -> LabResult:
    """Train, draw."""
    distances = context.by_effort([2, 6, 40], [2, 4, 8, 16, 32, 64], [2, 4, 6, 8, 12, 16, 32, 64, 128])
    rates = context.by_effort([1e-2], [5e-3, 2e-2], [1e-2, 2e-2])
    steps, seeds = context.by_effort(140, 200, 200), context.by_effort(1, 3, 3)
    chosen = equally_large(_transformer(context.by_effort(24, 32, 32)))
    found: dict[str, Runs] = {}
    best: dict[str, list[float]] = {}
    by_rate: dict[str, dict[float, int]] = {}  # the reach with one rate at all distances
    for name, settings in chosen.items():
        tried = {
            distance: {
                rate: [_recall(settings, distance, steps, rate, seed, context) for seed in range(seeds)]
                for rate in rates
            }
            for distance in distances
        }
        best[name] = [select_learning_rate(runs).learning_rate for runs in tried.values()]
        found[name] = {distance: select_learning_rate(runs).reported for distance, runs in tried.items()}
        by_rate[name] = {
            rate: reach({distance: [one.reported for one in runs[rate]] for distance, runs in tried.items()})
            for rate in rates
        }
        told = ", ".join(f"{fmean(runs):.2f} at {distance}" for distance, runs in found[name].items())
        context.log(f"  {name}: {told}")
    far, guessing = distances[-1], 1 / SYMBOLS
    at_end = {name: fmean(runs[far]) for name, runs in found.items()}
    reached = {name: reach(runs) for name, runs in found.items()}
    sizes = {name: count_parameters(build_meta(settings)) for name, settings in chosen.items()}
    return LabResult(
        holds=all(fmean(runs[distances[0]]) > MASTERED for runs in found.values())
        and min(found[TRANSFORMER][far]) > MASTERED
        and reached[TRANSFORMER] == far
        and max(found[RNN][far]) < 0.5
        and reached[RNN] < min(reached[name] for name in GATED)
        and min(reached[name] for name in GATED) < far,
        summary=f"With {min(sizes.values()):,} to {max(sizes.values()):,} parameters and {steps} steps "
        f"{', '.join(f'the {name} {_reached(one, far)}' for name, one in reached.items())}. Over a distance of "
        f"{far} the RNN is right in {at_end[RNN]:.0%} of texts, the LSTM in {at_end[LSTM]:.0%}, the GRU in "
        f"{at_end[GRU]:.0%} and the Transformer in {at_end[TRANSFORMER]:.0%}, where guessing gives {guessing:.0%} "
        f"(seeds: {seeds}).{_of_rates(by_rate)}",
        numbers={
            "distances": distances,
            "accuracy": {name: list(runs.values()) for name, runs in found.items()},
            "learning_rate": best,
            "count_parameters": sizes,
            "width": {name: settings.width for name, settings in chosen.items()},
            "reach": reached,
            "reach_by_learning_rate": by_rate,
        },
        figures=[_draw(distances, found, reached)],
        tables=[_table(distances, found, sizes), *([_table_of_rates(by_rate)] if len(rates) > 1 else [])],
    )


def equally_large(transformer: ModelConfig) -> dict[str, ModelConfig]:
    """A Transformer, and recurrent networks with as many parameters or just less."""
    budget = count_parameters(build_meta(transformer))
    cells: Mapping[str, Literal["rnn", "lstm", "gru"]] = {RNN: "rnn", LSTM: "lstm", GRU: "gru"}
    recurrent = {name: _widest(_recurrent(cell), budget) for name, cell in cells.items()}
    return {**recurrent, TRANSFORMER: transformer}


def reach(runs: Mapping[int, Sequence[float]]) -> int:
    """The longest distance up to which the mean accuracy suffices; 0 where not even the shortest is learned.

    >>> reach({2: [1.0], 4: [0.95, 0.9], 8: [0.3], 16: [1.0]})
    4
    """
    reached = 0
    for distance, accuracies in runs.items():
        if fmean(accuracies) < MASTERED:
            break
        reached = distance
    return reached


def _widest(settings: Callable[[int], ModelConfig], budget: int) -> ModelConfig:
    widths = range(1, 512)
    return settings(
        widths[bisect_right(widths, budget, key=lambda width: count_parameters(build_meta(settings(width)))) - 1]
    )


def _recurrent(cell: Literal["rnn", "lstm", "gru"]) -> Callable[[int], ModelConfig]:
    return lambda width: RecurrentLanguageModelConfig(
        vocab_size=SYMBOLS + FIRST_SYMBOL, width=width, layers=1, cell=cell, dropout=0.0
    )


def _transformer(width: int) -> ModelConfig:
    return DecoderOnlyConfig(
        vocab_size=SYMBOLS + FIRST_SYMBOL, width=width, layers=2, heads=2, feed_forward=2 * width, dropout=0.0
    )


def _recall(
    settings: ModelConfig, distance: int, steps: int, rate: float, seed: int, context: LabContext
) -> TrialAccuracy:
    """The accuracy after training over this distance."""
    torch.manual_seed(seed)
    network = build(settings)
    fit(network, recall_task(SYMBOLS, distance, context.by_effort(16, 32, 32), seed), steps, learning_rate=rate)
    return TrialAccuracy(
        *(accuracy(network, next(recall_task(SYMBOLS, distance, 512, seed=other + seed))) for other in OTHERS)
    )


def _reached(reach: int, far: int) -> str:
    return f"masters all distances up to {far}" if reach == far else f"reaches {reach}"


def _of_rates(by_rate: Mapping[str, Mapping[float, int]]) -> str:
    """A sentence for each network whose reach is a matter of the learning rate."""
    return "".join(
        f" The {name}'s reach is a matter of the learning rate: "
        f"{', '.join(f'{one} with {rate:g}' for rate, one in reached.items())}."
        for name, reached in by_rate.items()
        if len(set(reached.values())) > 1
    )


def _draw(distances: list[int], found: Mapping[str, Runs], reached: Mapping[str, int]) -> LabFigure:
    with plot_style():
        figure = new_figure(11, 4.2)
        lines = {name: over_seeds(distances, list(zip(*runs.values(), strict=True))) for name, runs in found.items()}
        lines["guessing"] = LineSeries(distances, [1 / SYMBOLS] * len(distances))
        title = "share of texts whose first symbol is recalled"
        line_chart(figure.subplots(), lines, title=title, xlabel="distance, in tokens", xscale="log")
    return LabFigure(
        "distance",
        "Accuracy of recall after the same number of steps, for networks of about equal size; "
        "lines are means over seeds, bands reach from the worst to the best.",
        figure,
        "Accuracy against distance, a line for each network and one for guessing. "
        + "; ".join(
            f"{name}: nine in ten or more up to {reached[name]}, {fmean(runs[distances[-1]]):.0%} at {distances[-1]}"
            for name, runs in found.items()
        )
        + ".",
    )


def _table(distances: list[int], found: Mapping[str, Runs], sizes: Mapping[str, int]) -> LabTable:
    rows = [
        [name, f"{sizes[name]:,}", *(f"{fmean(runs[distance]):.2f}" for distance in distances)]
        for name, runs in found.items()
    ]
    return LabTable("Accuracy by distance", ["", "count_parameters", *map(str, distances)], rows)


def _table_of_rates(by_rate: Mapping[str, Mapping[float, int]]) -> LabTable:
    rows = [[name, *map(str, reached.values())] for name, reached in by_rate.items()]
    return LabTable(
        "Reach with one learning rate for all distances", ["", *(f"{rate:g}" for rate in by_rate[RNN])], rows
    )
