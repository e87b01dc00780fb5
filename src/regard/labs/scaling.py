# ruff: noqa: E501
"""Scores divided by √d_k and as they are: how sharp softmax gets, what is left of its gradient, what is learned."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor

from regard.config import DecoderOnlyConfig
from regard.labs.charts.lines import LineSeries, format_number, line_chart, over_seeds
from regard.labs.lab import LabContext, LabFigure, LabResult, LabTable
from regard.labs.trials.fitting import FitResult, fit
from regard.labs.trials.tasks import FIRST_SYMBOL, copy_task
from regard.models import build
from regard.plotting import new_figure, plot_style

METHOD = """
Queries and keys of independent standard normal numbers, as the paper supposes, meet each other: every query looks at 32
keys. For each length d_k of a key, softmax is applied to the scores as they are and divided by √d_k. Measured are the
entropy of the weights (log 32 = 3.47 nats when all are alike, 0 when one takes all) and how much the weights still move
with the query: the norm of ∂ weights / ∂ query, the division included. It differs from query to query, so the line is
that of the query in the middle, and the band reaches over the middle half of them.

Then two networks that differ in nothing but the division learn to copy symbols, with one head whose keys are as long as
the model is wide. Their last loss is the mean over the last tenth of the steps.
"""
LIMITATIONS = """
Real queries and keys are not independent normal numbers: training can make them small where the division is missing.
The gradient by the query is that of one softmax: how much of it a network needs to learn, and how much is too much, it
does not say. The lab says nothing of other remedies, such as queries and keys that are normalised.
"""

KEYS = 32
NAMES = {True: "÷ √d_k", False: "as they are"}
AT_ONCE = 128  # queries: more of them with long keys would fill the memory
DEAD = 0.01  # of what the query in the middle gets with the division


@dataclass(frozen=True)
class Softmax:
    """Of each query (N,): the entropy of its weights, and the norm of their gradient by it."""

    entropy: Tensor
    gradient: Tensor

    @property
    def median(self) -> float:
        """The gradient of the query in the middle."""
        return float(self.gradient.median())

    @property
    def mean(self) -> float:
        """The mean of the gradients."""
        return float(self.gradient.mean())

    @property
    def of_the_upper_quarter(self) -> float:
        """The share of all gradients that the largest quarter of them makes up."""
        return float(self.gradient.sort(descending=True).values[: len(self.gradient) // 4].sum() / self.gradient.sum())

    def quantile(self, share: float) -> float:
        """What this share of the gradients stays below."""
        return float(self.gradient.quantile(share))

    def below(self, bound: float) -> float:
        """The share of the gradients that stay below a bound."""
        return float((self.gradient < bound).double().mean())


def run(context: LabContext) -> LabResult:
    """Measure, train, draw."""
    widths = context.by_effort([4, 16, 64, 256, 1024], [2**n for n in range(1, 12)], [2**n for n in range(1, 12)])
    queries = context.by_effort(256, 1024, 4096)
    found = [softmax_of(width, queries) for width in widths]
    measured = {scaled: [one[scaled] for one in found] for scaled in NAMES}
    steps, seeds = context.by_effort(250, 400, 600), context.by_effort(1, 3, 5)
    learned: dict[bool, list[FitResult]] = {}
    final: dict[bool, list[float]] = {}
    for scaled in NAMES:
        learned[scaled] = [_learn(scaled, steps, seed, context) for seed in range(seeds)]
        final[scaled] = [fitted.final_loss for fitted in learned[scaled]]
        context.log(f"  scores {NAMES[scaled]}: a loss of {fmean(final[scaled]):.3f} nats after {steps} steps")
    divided, plain = (measured[scaled][-1] for scaled in NAMES)
    return LabResult(
        holds=float(plain.entropy.mean()) < 0.25 * float(divided.entropy.mean())
        and plain.median < 0.1 * divided.median
        and max(final[True]) < 0.5 * min(final[False]),
        summary=f"{_said_of_softmax(widths, measured)} After {steps} steps of copying, by networks whose keys "
        f"have {_task(context)[-1]} numbers, the loss is {fmean(final[True]):.2f} nats with the division and "
        f"{fmean(final[False]):.2f} without (seeds: {seeds}).",
        numbers={
            "d_k": widths,
            "entropy": _by_name(measured, lambda one: float(one.entropy.mean())),
            "gradient_median": _by_name(measured, lambda one: one.median),
            "gradient_lower_quartile": _by_name(measured, lambda one: one.quantile(0.25)),
            "gradient_upper_quartile": _by_name(measured, lambda one: one.quantile(0.75)),
            "gradient_mean": _by_name(measured, lambda one: one.mean),
            "final_loss": {NAMES[scaled]: losses for scaled, losses in final.items()},
        },
        figures=[_draw(widths, measured, learned)],
        tables=[_table(widths, measured)],
    )


def softmax_of(width: int, queries: int) -> dict[bool, Softmax]:
    """The softmax of queries that meet keys of this length, with the division (True) and without (False)."""
    random = torch.Generator().manual_seed(width)
    found: dict[bool, list[Softmax]] = {scaled: [] for scaled in NAMES}
    for _ in range(0, queries, AT_ONCE):
        query = torch.randn(AT_ONCE, width, generator=random)
        keys = torch.randn(AT_ONCE, KEYS, width, generator=random)
        for scaled in NAMES:
            found[scaled].append(softmax_over(query, keys, 1 / math.sqrt(width) if scaled else 1.0))
    return {
        scaled: Softmax(torch.cat([one.entropy for one in parts]), torch.cat([one.gradient for one in parts]))
        for scaled, parts in found.items()
    }


def softmax_over(query: Tensor, keys: Tensor, scale: float) -> Softmax:
    """query (N, D), keys (N, K, D); in double precision, so that nothing is lost because it is small."""
    scores = torch.einsum("nd,nkd->nk", query, keys).double() * scale
    weights = scores.softmax(-1)
    by_scores = torch.diag_embed(weights) - weights[:, :, None] * weights[:, None, :]  # (N, K, K)
    by_query = scale * by_scores @ keys.double()  # (N, K, D)
    return Softmax(torch.special.entr(weights).sum(-1), by_query.flatten(1).norm(dim=1))


def _said_of_softmax(widths: list[int], measured: dict[bool, list[Softmax]]) -> str:
    """What the longest keys do, and from which length on the division passes more of the gradient."""
    divided, plain = (measured[scaled][-1] for scaled in NAMES)
    more = [
        width
        for width, with_it, without in zip(widths, measured[True], measured[False], strict=True)
        if without.median > with_it.median
    ]
    short = f" With keys of up to {max(more)} numbers the query in the middle gets more without it." if more else ""
    return (
        f"With keys of {widths[-1]:,} numbers the weights keep {float(divided.entropy.mean()):.2f} nats of entropy if "
        f"scores are divided and {float(plain.entropy.mean()):.2f} if not. The gradient of the weights by the query in "
        f"the middle is then {format_number(divided.median)} with the division and {format_number(plain.median)} without it; "
        f"{plain.below(DEAD * divided.median):.0%} of the queries get less than a hundredth of what is usual with the "
        f"division. The mean is another matter, {format_number(divided.mean)} and {format_number(plain.mean)}: the quarter of "
        f"the queries that gets the most, because its best two keys are about equally good, has "
        f"{plain.of_the_upper_quarter:.0%} of the sum without the division and {divided.of_the_upper_quarter:.0%} "
        f"with it.{short}"
    )


def _task(context: LabContext) -> tuple[int, int, int]:
    """Symbols, how many of them are copied, and the width of the networks, which is that of their keys."""
    return context.by_effort((8, 4, 64), (16, 12, 128), (16, 12, 128))


def _learn(scaled: bool, steps: int, seed: int, context: LabContext) -> FitResult:
    symbols, length, width = _task(context)
    torch.manual_seed(seed)
    network = build(
        DecoderOnlyConfig(
            vocab_size=symbols + FIRST_SYMBOL,
            width=width,
            layers=2,
            heads=1,
            feed_forward=2 * width,
            scale_scores=scaled,
        )
    )
    return fit(network, copy_task(symbols, length, 32, seed), steps, learning_rate=2e-3)


def _draw(widths: list[int], measured: dict[bool, list[Softmax]], learned: dict[bool, list[FitResult]]) -> LabFigure:
    across = "d_k, the length of a key"
    with plot_style():
        figure = new_figure(11, 3.4)
        left, middle, right = figure.subplots(1, 3)
        lines = {
            NAMES[scaled]: LineSeries(widths, [float(one.entropy.mean()) for one in found])
            for scaled, found in measured.items()
        }
        entropy = line_chart(left, lines, title="entropy of the weights, nats", xlabel=across, xscale="log")
        lines = {NAMES[scaled]: _middle_half(widths, found) for scaled, found in measured.items()}
        gradient = line_chart(
            middle, lines, title="norm of ∂ weights / ∂ query", xlabel=across, xscale="log", yscale="log"
        )
        places = range(1, len(learned[True][0].losses) + 1)
        curves = {NAMES[on]: over_seeds(places, [one.losses for one in runs]) for on, runs in learned.items()}
        loss = line_chart(right, curves, title="loss while learning to copy, nats", xlabel="step", markers=False)
    return LabFigure(
        "scaling",
        "Softmax over 32 keys, with scores divided by √d_k and as they are (the bands: the middle half of the "
        "queries); and two networks that learn to copy.",
        figure,
        f"Three charts. {entropy} {gradient} {loss}",
    )


def _middle_half(widths: list[int], found: list[Softmax]) -> LineSeries:
    low, high = ([one.quantile(share) for one in found] for share in (0.25, 0.75))
    return LineSeries(widths, [one.median for one in found], low, high)


def _by_name(measured: dict[bool, list[Softmax]], of: Callable[[Softmax], float]) -> dict[str, list[float]]:
    return {NAMES[scaled]: [of(one) for one in found] for scaled, found in measured.items()}


def _table(widths: list[int], measured: dict[bool, list[Softmax]]) -> LabTable:
    rows = [
        [
            f"{width:,}",
            *(f"{float(one.entropy.mean()):.2f}" for one in (divided, plain)),
            *(_quartiles(one) for one in (divided, plain)),
            *(format_number(one.mean) for one in (divided, plain)),
        ]
        for width, divided, plain in zip(widths, measured[True], measured[False], strict=True)
    ]
    head = [
        "d_k",
        "entropy, divided",
        "entropy, as it is",
        "gradient, divided",
        "gradient, as it is",
        "mean, divided",
        "mean, as it is",
    ]
    return LabTable("Softmax over 32 keys; of the gradient the middle, the quartiles, and the mean", head, rows)


def _quartiles(one: Softmax) -> str:
    return f"{format_number(one.median)} ({format_number(one.quantile(0.25))} to {format_number(one.quantile(0.75))})"
