"""Scores divided by √d_k and as they are: how sharp softmax gets, what is left of its gradient, what is learned."""

import math

import torch
from torch import Tensor

from regard.config import DecoderOnly
from regard.drawing.style import new_figure, our_style
from regard.labs.charts import Line, chart, over_seeds
from regard.labs.fitting import fit
from regard.labs.lab import Bench, Drawing, Outcome, Table
from regard.labs.tasks import FIRST, copying
from regard.models import build

DONE = """
Queries and keys of independent standard normal numbers, as the paper supposes, meet each other: every query looks at 32
keys. For each length d_k of a key, softmax is applied to the scores as they are and divided by √d_k. Measured are the
entropy of the weights (log 32 = 3.47 nats when all are alike, 0 when one takes all) and how much the weights still move
with the scores: the norm of the softmax's Jacobian, of the query in the middle.

Then two networks that differ in nothing but the division learn to copy symbols, with one head whose keys are as long as
the model is wide.
"""
LIMITS = """
Real queries and keys are not independent normal numbers: training can make them small where the division is missing,
and a network can learn without it, only later. The lab says nothing of other remedies, such as queries and keys that
are normalised.
"""

KEYS = 32
NAMES = {True: "÷ √d_k", False: "as they are"}
Softmax = dict[str, float]  # the entropy of its weights, the norm of its Jacobian


def run(bench: Bench) -> Outcome:
    """Measure, train, draw."""
    widths = bench.pick([4, 16, 64, 256], [2**n for n in range(1, 10)], [2**n for n in range(1, 12)])
    queries = bench.pick(256, 1024, 4096)
    measured = {scaled: [softmax_of(width, scaled, queries) for width in widths] for scaled in NAMES}
    steps, seeds = bench.pick(250, 400, 600), bench.pick(1, 3, 5)
    learned: dict[bool, list[list[float]]] = {}
    for scaled in NAMES:
        learned[scaled] = [_learn(scaled, steps, seed, bench) for seed in range(seeds)]
        bench.say(f"  scores {NAMES[scaled]}: a loss of {learned[scaled][0][-1]:.3f} nats after {steps} steps")
    final = {scaled: [curve[-1] for curve in curves] for scaled, curves in learned.items()}
    divided, plain = (measured[scaled][-1] for scaled in NAMES)
    return Outcome(
        holds=plain["entropy"] < 0.25 * divided["entropy"]
        and plain["jacobian"] < 0.5 * divided["jacobian"]
        and max(final[True]) < min(final[False]),
        said=f"With keys of {widths[-1]} numbers the weights keep {divided['entropy']:.2f} nats of entropy if scores "
        f"are divided and {plain['entropy']:.2f} if not, and {divided['jacobian'] / plain['jacobian']:.0f} times as "
        f"much of the gradient comes through. After {steps} steps of copying the loss is {_mean(final[True]):.2f} nats "
        f"with the division and {_mean(final[False]):.2f} without (seeds: {seeds}).",
        numbers={
            "d_k": widths,
            "entropy": {NAMES[scaled]: [one["entropy"] for one in found] for scaled, found in measured.items()},
            "jacobian": {NAMES[scaled]: [one["jacobian"] for one in found] for scaled, found in measured.items()},
            "final_loss": {NAMES[scaled]: losses for scaled, losses in final.items()},
        },
        drawings=[_draw(widths, measured, learned)],
        tables=[_table(widths, measured)],
    )


def softmax_of(width: int, scaled: bool, queries: int) -> Softmax:
    """The mean entropy of the weights, and the median norm of ∂ weights / ∂ scores, for keys of this length."""
    random = torch.Generator().manual_seed(width)
    query = torch.randn(queries, width, generator=random)
    keys = torch.randn(queries, KEYS, width, generator=random)
    scores = torch.einsum("nd,nkd->nk", query, keys) / (math.sqrt(width) if scaled else 1.0)
    weights = scores.softmax(-1)
    return {"entropy": float(_entropy(weights).mean()), "jacobian": float(_jacobian(weights).median())}


def _entropy(weights: Tensor) -> Tensor:
    return -(weights * weights.clamp(min=1e-30).log()).sum(-1)


def _jacobian(weights: Tensor) -> Tensor:
    """The norm of diag(w) − w wᵀ: 0 where one weight has everything."""
    jacobian = torch.diag_embed(weights) - weights[:, :, None] * weights[:, None, :]
    return jacobian.flatten(1).square().sum(1).sqrt()


def _learn(scaled: bool, steps: int, seed: int, bench: Bench) -> list[float]:
    symbols, length, width = bench.pick((8, 4, 64), (16, 12, 128), (16, 12, 128))
    torch.manual_seed(seed)
    network = build(
        DecoderOnly(
            vocabulary=symbols + FIRST, width=width, layers=2, heads=1, feed_forward=2 * width, scale_scores=scaled
        )
    )
    return fit(network, copying(symbols, length, 32, seed), steps, peak=2e-3).losses


def _draw(widths: list[int], measured: dict[bool, list[Softmax]], learned: dict[bool, list[list[float]]]) -> Drawing:
    with our_style():
        figure = new_figure(11, 3.4)
        left, middle, right = figure.subplots(1, 3)
        for ax, what, title in (
            (left, "entropy", "entropy of the weights, nats"),
            (middle, "jacobian", "norm of ∂ weights / ∂ scores"),
        ):
            lines = {NAMES[scaled]: Line(widths, [one[what] for one in found]) for scaled, found in measured.items()}
            chart(ax, lines, title=title, across="d_k, the length of a key", x="log")
        places = range(1, len(learned[True][0]) + 1)
        curves = {NAMES[scaled]: over_seeds(places, runs) for scaled, runs in learned.items()}
        chart(right, curves, title="loss while learning to copy, nats", across="step", markers=False)
    return Drawing(
        "scaling",
        "Softmax over 32 keys, with scores divided by √d_k and as they are; and two networks that learn to copy.",
        figure,
        "Entropy and gradient stay level with the division and fall towards zero without it as keys grow longer; "
        "the network with the division learns to copy sooner.",
    )


def _table(widths: list[int], measured: dict[bool, list[Softmax]]) -> Table:
    rows = [
        [str(width), *(f"{one[what]:.3f}" for what in ("entropy", "jacobian") for one in (divided, plain))]
        for width, divided, plain in zip(widths, measured[True], measured[False], strict=True)
    ]
    head = ["d_k", "entropy, divided", "entropy, as it is", "gradient, divided", "gradient, as it is"]
    return Table("Softmax over 32 keys", head, rows)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
