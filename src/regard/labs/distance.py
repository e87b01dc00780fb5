"""Recall over a distance: which networks learn long-range dependencies in a fixed number of steps."""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Literal

import torch

from regard.config import DecoderOnlyConfig, ModelConfig, RecurrentLanguageModelConfig
from regard.labs import LabContext, LabFigure, LabResult, LabTable
from regard.labs.charts import LineSeries, line_chart, over_seeds
from regard.labs.trials import (
    FIRST_SYMBOL,
    TrialAccuracy,
    accuracy,
    count_parameters,
    fit,
    recall_task,
    select_learning_rate,
)
from regard.models import build
from regard.models.assembly import build_meta
from regard.plotting import new_figure, plot_style

METHOD = """
A sequence is one of eight symbols, then `distance` distractors from the same eight symbols, then a separator; the
network has to predict the first symbol. An RNN, an LSTM and a GRU (one layer each) and a Transformer (two layers) are
trained from scratch for each distance, all for the same number of steps on the same sequences. The widths of the
recurrent networks are the largest with at most as many parameters as the Transformer. For each network and distance the
best of the tried learning rates is used.

Accuracy is measured on new sequences of the same distance, other than those that selected the learning rate; chance is
1/8. The reach of a network is the longest distance up to which its accuracy, averaged over seeds, is at least 90%. The
claim is supported if all networks learn the shortest distance, the Transformer also learns the longest, not every gated
network does, and the reach of the RNN is shorter than that of all others.
"""
LIMITATIONS = """
The number of steps is fixed and small: with more steps gated networks learn longer distances, and so does an RNN with
careful tuning. The reach of a gated network also depends on the learning rate, and others than those tried might be
better. The lab measures how hard the task is to learn, not whether a network could store the answer. Recalling one
symbol from a fixed position is the simplest memory task and suits attention, which only has to find a position seen in
training; other distances than the trained one are not tested.
"""

RNN, LSTM, GRU, TRANSFORMER = "RNN", "LSTM", "GRU", "Transformer"
GATED = (LSTM, GRU)
SYMBOLS = 8
LEARNED = 0.9  # accuracy from which a distance counts as learned
TEST_SEED_OFFSETS = (2000, 1000)  # of test data: for selecting the learning rate, and for reporting
AccuracyByDistance = dict[int, list[float]]  # the accuracy of each seed


def run(context: LabContext) -> LabResult:
    """Train every network for every distance."""
    distances = context.by_effort([2, 6, 40], [2, 4, 8, 16, 32, 64], [2, 4, 6, 8, 12, 16, 32, 64, 128])
    rates = context.by_effort([1e-2], [5e-3, 2e-2], [1e-2, 2e-2])
    steps, seeds = context.by_effort(140, 200, 200), context.by_effort(1, 3, 3)
    configs = equal_size_configs(_transformer(context.by_effort(24, 32, 32)))
    accuracies: dict[str, AccuracyByDistance] = {}
    best_rates: dict[str, list[float]] = {}
    reach_by_rate: dict[str, dict[float, int]] = {}  # the reach with one learning rate for all distances
    for name, config in configs.items():
        trials = {
            distance: {
                rate: [_recall(config, distance, steps, rate, seed, context) for seed in range(seeds)] for rate in rates
            }
            for distance in distances
        }
        best_rates[name] = [select_learning_rate(runs).learning_rate for runs in trials.values()]
        accuracies[name] = {distance: select_learning_rate(runs).reported for distance, runs in trials.items()}
        reach_by_rate[name] = {
            rate: reach({distance: [trial.reported for trial in runs[rate]] for distance, runs in trials.items()})
            for rate in rates
        }
        means = ", ".join(f"{fmean(runs):.2f} at {distance}" for distance, runs in accuracies[name].items())
        context.log(f"  {name}: accuracy {means}")
    longest, chance = distances[-1], 1 / SYMBOLS
    at_longest = {name: fmean(runs[longest]) for name, runs in accuracies.items()}
    reached = {name: reach(runs) for name, runs in accuracies.items()}
    sizes = {name: count_parameters(build_meta(config)) for name, config in configs.items()}
    return LabResult(
        holds=all(fmean(runs[distances[0]]) > LEARNED for runs in accuracies.values())
        and min(accuracies[TRANSFORMER][longest]) > LEARNED
        and reached[TRANSFORMER] == longest
        and max(accuracies[RNN][longest]) < 0.5
        and reached[RNN] < min(reached[name] for name in GATED)
        and min(reached[name] for name in GATED) < longest,
        summary=f"With {min(sizes.values()):,} to {max(sizes.values()):,} parameters and {steps} steps, the reach is "
        f"{', '.join(f'{distance} ({name})' for name, distance in reached.items())}, of {longest} tested. At distance "
        f"{longest} the accuracy is {at_longest[RNN]:.0%} (RNN), {at_longest[LSTM]:.0%} (LSTM), {at_longest[GRU]:.0%} "
        f"(GRU) and {at_longest[TRANSFORMER]:.0%} (Transformer); chance is {chance:.0%} (seeds: {seeds})."
        f"{_rate_dependence(reach_by_rate)}",
        numbers={
            "distances": distances,
            "accuracy": {name: list(runs.values()) for name, runs in accuracies.items()},
            "learning_rate": best_rates,
            "parameters": sizes,
            "width": {name: config.width for name, config in configs.items()},
            "reach": reached,
            "reach_by_learning_rate": reach_by_rate,
        },
        figures=[_figure(distances, accuracies, reached)],
        tables=[
            _accuracy_table(distances, accuracies, sizes),
            *([_rate_table(reach_by_rate)] if len(rates) > 1 else []),
        ],
    )


def equal_size_configs(transformer: ModelConfig) -> dict[str, ModelConfig]:
    """Return a Transformer and the widest recurrent networks with at most as many parameters."""
    budget = count_parameters(build_meta(transformer))
    cells: Mapping[str, Literal["rnn", "lstm", "gru"]] = {RNN: "rnn", LSTM: "lstm", GRU: "gru"}
    recurrent = {name: _widest(_recurrent(cell), budget) for name, cell in cells.items()}
    return {**recurrent, TRANSFORMER: transformer}


def reach(runs: Mapping[int, Sequence[float]]) -> int:
    """Return the longest distance up to which the mean accuracy is high enough; 0 if none is learned.

    >>> reach({2: [1.0], 4: [0.95, 0.9], 8: [0.3], 16: [1.0]})
    4
    """
    longest = 0
    for distance, accuracies in runs.items():
        if fmean(accuracies) < LEARNED:
            break
        longest = distance
    return longest


def _widest(config: Callable[[int], ModelConfig], budget: int) -> ModelConfig:
    widths = range(1, 512)
    size = bisect_right(widths, budget, key=lambda width: count_parameters(build_meta(config(width))))
    return config(widths[size - 1])


def _recurrent(cell: Literal["rnn", "lstm", "gru"]) -> Callable[[int], ModelConfig]:
    return lambda width: RecurrentLanguageModelConfig(
        vocab_size=SYMBOLS + FIRST_SYMBOL, width=width, layers=1, cell=cell, dropout=0.0
    )


def _transformer(width: int) -> ModelConfig:
    return DecoderOnlyConfig(
        vocab_size=SYMBOLS + FIRST_SYMBOL, width=width, layers=2, heads=2, feed_forward=2 * width, dropout=0.0
    )


def _recall(
    config: ModelConfig, distance: int, steps: int, learning_rate: float, seed: int, context: LabContext
) -> TrialAccuracy:
    """Train a network for this distance and return its accuracy."""
    torch.manual_seed(seed)
    network = build(config)
    batch = context.by_effort(16, 32, 32)
    fit(network, recall_task(SYMBOLS, distance, batch, seed), steps, learning_rate=learning_rate)
    tests = (next(recall_task(SYMBOLS, distance, 512, seed=offset + seed)) for offset in TEST_SEED_OFFSETS)
    return TrialAccuracy(*(accuracy(network, test) for test in tests))


def _rate_dependence(reach_by_rate: Mapping[str, Mapping[float, int]]) -> str:
    """Return a sentence for each network whose reach depends on the learning rate."""
    return "".join(
        f" The reach of the {name} depends on the learning rate: "
        f"{', '.join(f'{distance} with {rate:g}' for rate, distance in reached.items())}."
        for name, reached in reach_by_rate.items()
        if len(set(reached.values())) > 1
    )


def _figure(
    distances: list[int], accuracies: Mapping[str, AccuracyByDistance], reached: Mapping[str, int]
) -> LabFigure:
    with plot_style():
        figure = new_figure(11, 4.2)
        lines = {
            name: over_seeds(distances, list(zip(*runs.values(), strict=True))) for name, runs in accuracies.items()
        }
        lines["chance"] = LineSeries(distances, [1 / SYMBOLS] * len(distances))
        line_chart(figure.subplots(), lines, title="recall accuracy", xlabel="distance in tokens", xscale="log")
    return LabFigure(
        "distance",
        "Recall accuracy after the same number of steps, for networks of about equal size. Lines are means over seeds, "
        "bands their range.",
        figure,
        "Accuracy by distance, a line for each network and one for chance. "
        + "; ".join(
            f"{name}: 90% or more up to {reached[name]}, {fmean(runs[distances[-1]]):.0%} at {distances[-1]}"
            for name, runs in accuracies.items()
        )
        + ".",
    )


def _accuracy_table(
    distances: list[int], accuracies: Mapping[str, AccuracyByDistance], sizes: Mapping[str, int]
) -> LabTable:
    rows = [
        [name, f"{sizes[name]:,}", *(f"{fmean(runs[distance]):.2f}" for distance in distances)]
        for name, runs in accuracies.items()
    ]
    return LabTable("Accuracy by distance", ["", "parameters", *map(str, distances)], rows)


def _rate_table(reach_by_rate: Mapping[str, Mapping[float, int]]) -> LabTable:
    rows = [[name, *map(str, reached.values())] for name, reached in reach_by_rate.items()]
    header = ["", *(f"{rate:g}" for rate in reach_by_rate[RNN])]
    return LabTable("Reach with one learning rate for all distances", header, rows)
