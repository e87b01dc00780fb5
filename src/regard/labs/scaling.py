"""Scaled and unscaled dot products: saturation of the softmax, its gradient, and what a network learns."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor

from regard.config import DecoderOnlyConfig
from regard.labs import LabContext, LabFigure, LabResult, LabTable
from regard.labs.charts import LineSeries, line_chart, over_seeds, two_digits
from regard.labs.trials import FIRST_SYMBOL, FitResult, copy_task, fit
from regard.models import build
from regard.plotting import new_figure, plot_style

METHOD = """
Queries and keys are drawn from a standard normal distribution, as the paper assumes, with 32 keys per query. For each
key width d_k the softmax is applied to the scores with and without the division by √d_k. Two things are measured: the
entropy of the attention weights (log 32 = 3.47 nats if they are uniform, 0 if one key has all the weight), and the norm
of the gradient ∂ weights / ∂ query, including the factor 1/√d_k. The gradient differs between queries; the line shows
the median query and the band the interquartile range.

Then two networks that differ only in the scaling learn to copy symbols, with one head whose keys are as wide as the
model. Their final loss is the mean over the last tenth of the steps.
"""
LIMITATIONS = """
Real queries and keys are not independent normal numbers: training can make them small where the scaling is missing. The
gradient is that of a single softmax; it does not say how much gradient a network needs or tolerates. Other remedies,
such as normalized queries and keys, are not tested.
"""

KEYS = 32
SCALING_NAMES = {True: "scaled", False: "unscaled"}
QUERY_BATCH = 128  # queries at a time, to limit memory
VANISHED = 0.01  # fraction of the median gradient of the scaled softmax


@dataclass(frozen=True)
class SoftmaxStats:
    """Of each query (N,): the entropy of its attention weights, and the norm of their gradient."""

    entropy: Tensor
    gradient: Tensor

    @property
    def mean_entropy(self) -> float:
        """The mean entropy over queries."""
        return float(self.entropy.mean())

    @property
    def median(self) -> float:
        """The gradient norm of the median query."""
        return float(self.gradient.median())

    @property
    def mean(self) -> float:
        """The mean gradient norm."""
        return float(self.gradient.mean())

    @property
    def top_quarter_fraction(self) -> float:
        """The fraction of the sum of all gradient norms that is in the largest quarter of them."""
        return float(self.gradient.sort(descending=True).values[: len(self.gradient) // 4].sum() / self.gradient.sum())

    def quantile(self, fraction: float) -> float:
        """Return a quantile of the gradient norm."""
        return float(self.gradient.quantile(fraction))

    def fraction_below(self, bound: float) -> float:
        """Return the fraction of queries whose gradient norm is below a bound."""
        return float((self.gradient < bound).double().mean())


def run(context: LabContext) -> LabResult:
    """Measure the softmax, and train with and without scaling."""
    widths = context.by_effort([4, 16, 64, 256, 1024], [2**n for n in range(1, 12)], [2**n for n in range(1, 12)])
    queries = context.by_effort(256, 1024, 4096)
    by_width = [softmax_stats(width, queries) for width in widths]
    stats = {scaled: [pair[scaled] for pair in by_width] for scaled in SCALING_NAMES}
    steps, seeds = context.by_effort(250, 400, 600), context.by_effort(1, 3, 5)
    fits: dict[bool, list[FitResult]] = {}
    final: dict[bool, list[float]] = {}
    for scaled in SCALING_NAMES:
        fits[scaled] = [_learn_copying(scaled, steps, seed, context) for seed in range(seeds)]
        final[scaled] = [fitted.final_loss for fitted in fits[scaled]]
        context.log(f"  {SCALING_NAMES[scaled]}: loss {fmean(final[scaled]):.3f} nats after {steps} steps")
    scaled_stats, unscaled_stats = (stats[scaled][-1] for scaled in SCALING_NAMES)
    return LabResult(
        holds=unscaled_stats.mean_entropy < 0.25 * scaled_stats.mean_entropy
        and unscaled_stats.median < 0.1 * scaled_stats.median
        and max(final[True]) < 0.5 * min(final[False]),
        summary=f"{_softmax_summary(widths, stats)} After {steps} steps of learning to copy with d_k = "
        f"{_task(context)[-1]}, the loss is {fmean(final[True]):.2f} nats with scaling and {fmean(final[False]):.2f} "
        f"without (seeds: {seeds}).",
        numbers={
            "d_k": widths,
            "entropy": _by_name(stats, lambda stat: stat.mean_entropy),
            "gradient_median": _by_name(stats, lambda stat: stat.median),
            "gradient_lower_quartile": _by_name(stats, lambda stat: stat.quantile(0.25)),
            "gradient_upper_quartile": _by_name(stats, lambda stat: stat.quantile(0.75)),
            "gradient_mean": _by_name(stats, lambda stat: stat.mean),
            "final_loss": {SCALING_NAMES[scaled]: losses for scaled, losses in final.items()},
        },
        figures=[_figure(widths, stats, fits)],
        tables=[_table(widths, stats)],
    )


def softmax_stats(width: int, queries: int) -> dict[bool, SoftmaxStats]:
    """Return the statistics for keys of this width, scaled (True) and unscaled (False)."""
    generator = torch.Generator().manual_seed(width)
    batches: dict[bool, list[SoftmaxStats]] = {scaled: [] for scaled in SCALING_NAMES}
    for _ in range(0, queries, QUERY_BATCH):
        query = torch.randn(QUERY_BATCH, width, generator=generator)
        keys = torch.randn(QUERY_BATCH, KEYS, width, generator=generator)
        for scaled in SCALING_NAMES:
            batches[scaled].append(batch_stats(query, keys, 1 / math.sqrt(width) if scaled else 1.0))
    return {
        scaled: SoftmaxStats(
            torch.cat([batch.entropy for batch in parts]), torch.cat([batch.gradient for batch in parts])
        )
        for scaled, parts in batches.items()
    }


def batch_stats(query: Tensor, keys: Tensor, scale: float) -> SoftmaxStats:
    """Return the statistics of query (N, D) and keys (N, K, D); in double precision, to keep small values."""
    scores = torch.einsum("nd,nkd->nk", query, keys).double() * scale
    weights = scores.softmax(-1)
    by_scores = torch.diag_embed(weights) - weights[:, :, None] * weights[:, None, :]  # (N, K, K)
    by_query = scale * by_scores @ keys.double()  # (N, K, D)
    return SoftmaxStats(torch.special.entr(weights).sum(-1), by_query.flatten(1).norm(dim=1))


def _softmax_summary(widths: list[int], stats: dict[bool, list[SoftmaxStats]]) -> str:
    """Return the statistics of the widest keys, and up to which width the gradient is larger without scaling."""
    scaled, unscaled = (stats[name][-1] for name in SCALING_NAMES)
    larger_unscaled = [
        width
        for width, with_scaling, without in zip(widths, stats[True], stats[False], strict=True)
        if without.median > with_scaling.median
    ]
    short_keys = (
        f" Up to d_k = {max(larger_unscaled)} the median gradient is larger without scaling." if larger_unscaled else ""
    )
    return (
        f"At d_k = {widths[-1]:,} the entropy of the weights is {scaled.mean_entropy:.2f} nats with scaling and "
        f"{unscaled.mean_entropy:.2f} without. The median gradient norm is {two_digits(scaled.median)} with scaling "
        f"and {two_digits(unscaled.median)} without; {unscaled.fraction_below(VANISHED * scaled.median):.0%} of the "
        f"queries get less than 1% of the scaled median. The mean is {two_digits(scaled.mean)} with scaling and "
        f"{two_digits(unscaled.mean)} without: the quarter of the queries with the largest gradients, those whose "
        f"two best keys have similar scores, holds {unscaled.top_quarter_fraction:.0%} of the sum without scaling and "
        f"{scaled.top_quarter_fraction:.0%} with it.{short_keys}"
    )


def _task(context: LabContext) -> tuple[int, int, int]:
    """Return the number of symbols, the length to copy, and the width of the network and its keys."""
    return context.by_effort((8, 4, 64), (16, 12, 128), (16, 12, 128))


def _learn_copying(scaled: bool, steps: int, seed: int, context: LabContext) -> FitResult:
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


def _figure(widths: list[int], stats: dict[bool, list[SoftmaxStats]], fits: dict[bool, list[FitResult]]) -> LabFigure:
    xlabel = "key width d_k"
    with plot_style():
        figure = new_figure(11, 3.4)
        left, middle, right = figure.subplots(1, 3)
        lines = {
            SCALING_NAMES[scaled]: LineSeries(widths, [stat.mean_entropy for stat in row])
            for scaled, row in stats.items()
        }
        entropy = line_chart(left, lines, title="entropy of the weights (nats)", xlabel=xlabel, xscale="log")
        lines = {SCALING_NAMES[scaled]: _interquartile_line(widths, row) for scaled, row in stats.items()}
        title = "norm of ∂ weights / ∂ query"
        gradient = line_chart(middle, lines, title=title, xlabel=xlabel, xscale="log", yscale="log")
        steps = range(1, len(fits[True][0].losses) + 1)
        curves = {
            SCALING_NAMES[scaled]: over_seeds(steps, [stat.losses for stat in runs]) for scaled, runs in fits.items()
        }
        loss = line_chart(right, curves, title="loss of the copy task (nats)", xlabel="step", markers=False)
    return LabFigure(
        "scaling",
        "Softmax over 32 keys with and without division by √d_k (bands: interquartile range of the queries), and two "
        "networks that learn to copy.",
        figure,
        f"Three line charts. {entropy} {gradient} {loss}",
    )


def _interquartile_line(widths: list[int], row: list[SoftmaxStats]) -> LineSeries:
    low, high = ([stat.quantile(fraction) for stat in row] for fraction in (0.25, 0.75))
    return LineSeries(widths, [stat.median for stat in row], low, high)


def _by_name(stats: dict[bool, list[SoftmaxStats]], value: Callable[[SoftmaxStats], float]) -> dict[str, list[float]]:
    return {SCALING_NAMES[scaled]: [value(stat) for stat in row] for scaled, row in stats.items()}


def _table(widths: list[int], stats: dict[bool, list[SoftmaxStats]]) -> LabTable:
    rows = [
        [
            f"{width:,}",
            *(f"{stat.mean_entropy:.2f}" for stat in pair),
            *(_quartiles(stat) for stat in pair),
            *(two_digits(stat.mean) for stat in pair),
        ]
        for width, *pair in zip(widths, stats[True], stats[False], strict=True)
    ]
    header = [
        "d_k",
        *(f"{what}, {name}" for what in ("entropy", "gradient", "mean gradient") for name in SCALING_NAMES.values()),
    ]
    return LabTable("Softmax over 32 keys; gradient: median, quartiles and mean", header, rows)


def _quartiles(stat: SoftmaxStats) -> str:
    low, high = two_digits(stat.quantile(0.25)), two_digits(stat.quantile(0.75))
    return f"{two_digits(stat.median)} ({low} to {high})"
