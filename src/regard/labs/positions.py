"""Length extrapolation of position schemes: trained at one length, tested at twice that length."""

from collections.abc import Mapping, Sequence
from statistics import fmean

import torch

from regard.config import DecoderOnlyConfig
from regard.errors import InputError
from regard.labs import LabContext, LabFigure, LabResult, LabTable
from regard.labs.charts import line_chart, over_seeds
from regard.labs.trials import FIRST_SYMBOL, delayed_copy_task, fit
from regard.models import build
from regard.models.network import Network
from regard.plotting import SOFT, new_figure, plot_style

METHOD = """
Decoders of one layer that differ only in their position scheme learn to predict, at each of a sequence of random
symbols, the symbol two positions back: only positions matter. They are trained on sequences of one length and tested on
sequences of twice that length, with several seeds; the accuracy is measured at each position. A scheme extrapolates if
its accuracy beyond the trained length is more than 80% of that in the last quarter of the trained length, and the
latter is more than twice chance. The first positions are not used as a baseline because they have few distractors.

Learned positions are a table with a row per position. A table as long as the training sequences rejects longer ones,
which is tested; to see more than the error, the decoder that is measured has a table of twice that length whose second
half is never trained.
"""
LIMITATIONS = """
The task is about relative positions; a task about absolute positions would favor other schemes. A single layer with
ALiBi, whose scores decrease monotonically with distance, can select a single distance only by combining heads, so its
accuracy here says little about ALiBi in deeper networks. How far sinusoidal and rotary positions extrapolate depends on
the task, the length and the training time. The paper chose sinusoids because they "may allow" extrapolation (§3.5), and
found no difference from learned positions at the trained lengths.
"""

NONE = "no positions"
POSITION_SETTINGS: dict[str, dict[str, object]] = {
    "sinusoidal": {"kind": "sinusoidal"},
    "learned": {"kind": "learned"},
    "relative": {"kind": "relative", "max_distance": 8},
    "rotary": {"kind": "rotary"},
    "ALiBi": {"kind": "alibi"},
    NONE: {"kind": "none"},
}
SYMBOLS, DELAY = 8, 2
EXPECTED_TO_EXTRAPOLATE = ("relative", "ALiBi")
MIN_KEPT = 0.8  # of the accuracy at the end of the trained length, by a scheme that extrapolates


def run(context: LabContext) -> LabResult:
    """Train at one length and test at twice that length."""
    names = context.by_effort(
        ["sinusoidal", "learned", "relative", "rotary", "ALiBi"], list(POSITION_SETTINGS), list(POSITION_SETTINGS)
    )
    length, seeds = context.by_effort(12, 20, 32), context.by_effort(1, 3, 4)
    curves: dict[str, list[list[float]]] = {}
    for name in names:
        curves[name] = [_train(context, name, length, seed) for seed in range(seeds)]
        trained, longer = _mean_accuracy(curves[name], DELAY, length), _mean_accuracy(curves[name], length)
        context.log(f"  {name}: accuracy {trained:.0%} within and {longer:.0%} beyond the trained length")
    last_quarter = length - length // 4
    within = {name: _mean_accuracy(curve, DELAY, length) for name, curve in curves.items()}
    last = {name: _mean_accuracy(curve, last_quarter, length) for name, curve in curves.items()}
    beyond = {name: _mean_accuracy(curve, length) for name, curve in curves.items()}
    rejected, chance = _rejects_longer(length), 1 / SYMBOLS
    extrapolates = {
        name: last[name] > 2 * chance and beyond[name] > MIN_KEPT * last[name] for name in names if name != NONE
    }
    others = ", ".join(f"{name} {last[name]:.0%} and {beyond[name]:.0%}" for name in names if name != "learned")
    return LabResult(
        holds=rejected
        and last["learned"] > 0.9
        and beyond["learned"] < 0.5 * last["learned"]
        and last["relative"] > 0.9
        and all(extrapolates[name] for name in EXPECTED_TO_EXTRAPOLATE),
        summary=f"Trained on sequences of {length}, the decoder with learned positions has an accuracy of "
        f"{last['learned']:.0%} at positions {last_quarter + 1} to {length} and of {beyond['learned']:.0%} beyond, up "
        f"to {2 * length} (chance: {chance:.0%}); a table of {length} rows {'rejects' if rejected else 'accepts'} "
        f"longer sequences. The other schemes at these two ranges: {others} (seeds: {seeds}). "
        f"{_extrapolation_summary(extrapolates)}",
        numbers={
            "train_length": length,
            "accuracy_within": within,
            "accuracy_last_quarter": last,
            "accuracy_beyond": beyond,
            "extrapolates": extrapolates,
            "accuracy_by_position": curves,
            "learned_rejects_longer": rejected,
        },
        figures=[_figure(curves, length, last, beyond)],
        tables=[_table(within, last, beyond, length, last_quarter, rejected)],
    )


def _extrapolation_summary(extrapolates: Mapping[str, bool]) -> str:
    yes, no = (
        ", ".join(name for name, value in extrapolates.items() if value is wanted) or "none" for wanted in (True, False)
    )
    return f"Extrapolate: {yes}. Do not extrapolate: {no}."


def _network(name: str, max_length: int, width: int) -> Network:
    positions = {**POSITION_SETTINGS[name], **({"max_length": max_length} if name == "learned" else {})}
    settings = {"positions": positions, "width": width, "layers": 1, "heads": 4, "feed_forward": 2 * width}
    vocab_size = SYMBOLS + FIRST_SYMBOL
    return build(
        DecoderOnlyConfig.model_validate({"vocab_size": vocab_size, "norm_order": "pre", "dropout": 0.0, **settings})
    )


def _train(context: LabContext, name: str, length: int, seed: int) -> list[float]:
    """Train at `length` and return the accuracy at each position of sequences of twice that length."""
    steps, learning_rate = context.by_effort(150, 400, 700), context.by_effort(1e-2, 8e-3, 5e-3)
    torch.manual_seed(seed)
    network = _network(name, 2 * length, context.by_effort(32, 48, 64))
    fit(network, delayed_copy_task(SYMBOLS, DELAY, length, 32, seed), steps, learning_rate=learning_rate)
    batch = next(delayed_copy_task(SYMBOLS, DELAY, 2 * length, 512, seed + 1000))
    with torch.no_grad():
        correct = network.logits(network.decode(batch.inputs)).argmax(-1) == batch.labels  # (B, T)
    return correct.float().mean(0)[DELAY:].tolist()


def _rejects_longer(length: int) -> bool:
    """Return whether a network with learned positions rejects a sequence longer than its table."""
    network = _network("learned", length, 16).eval()
    try:
        network.decode(torch.full((1, length + 1), FIRST_SYMBOL))
    except InputError:
        return True
    return False


def _mean_accuracy(curves: Sequence[Sequence[float]], start: int, stop: int | None = None) -> float:
    """Return the mean accuracy from position `start` to `stop`; curves start at position DELAY."""
    return fmean(value for curve in curves for value in curve[start - DELAY : None if stop is None else stop - DELAY])


def _figure(
    curves: Mapping[str, Sequence[Sequence[float]]], length: int, last: Mapping[str, float], beyond: Mapping[str, float]
) -> LabFigure:
    positions = range(DELAY + 1, 2 * length + 1)
    with plot_style():
        figure = new_figure(9, 3.8)
        ax = figure.subplots()
        ax.set_ylim(0, 1.03)
        lines = {name: over_seeds(positions, runs) for name, runs in curves.items()}
        ax.axvline(length + 0.5, color=SOFT, linewidth=1, linestyle=":")
        line_chart(ax, lines, title="accuracy", xlabel="position", markers=False)
        ax.annotate(f"trained up to {length}", (length + 0.2, 0.03), ha="right", color=SOFT)
    return LabFigure(
        "positions",
        "Accuracy by position; the training sequences end at the dotted line. Lines are means over seeds, bands their "
        "range.",
        figure,
        "Accuracy by position, a line for each scheme. In the last quarter of the trained length, then beyond it: "
        + "; ".join(f"{name} {last[name]:.0%}, then {beyond[name]:.0%}" for name in curves)
        + ".",
    )


def _table(
    within: Mapping[str, float],
    last: Mapping[str, float],
    beyond: Mapping[str, float],
    length: int,
    last_quarter: int,
    rejected: bool,
) -> LabTable:
    header = [
        "scheme",
        f"positions up to {length}",
        f"positions {last_quarter + 1} to {length}",
        f"positions {length + 1} to {2 * length}",
        "longer than its table",
    ]
    learned = "rejected" if rejected else "accepted"
    rows = [
        [
            name,
            f"{within[name]:.1%}",
            f"{last[name]:.1%}",
            f"{beyond[name]:.1%}",
            learned if name == "learned" else "no table",
        ]
        for name in within
    ]
    return LabTable("Accuracy by position", header, rows)
