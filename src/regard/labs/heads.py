# ruff: noqa: E501
"""One head or several that cost as much; and what single heads of a translator look at and are needed for."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median

import torch
from torch import Tensor

from regard.api import Model
from regard.config import DecoderOnlyConfig
from regard.labs.charts.bars import dots
from regard.labs.charts.grids import matrix
from regard.labs.lab import LabContext, LabFigure, LabResult, LabTable
from regard.labs.trials.fitting import accuracy, fit
from regard.labs.trials.tasks import FIRST_SYMBOL, SymbolBatch
from regard.labs.trials.translators import (
    TRANSLATION_SETUP,
    comparison_steps,
    reference_perplexity,
    train_for_comparison,
    train_translator,
    translation_data,
)
from regard.models import build
from regard.phrasebook import Pair
from regard.plotting import new_figure, plot_style

LEAST = 0.25  # how much of their attention goes elsewhere, of heads that do different things
METHOD = f"""
Networks that differ in the number of their heads alone: more heads are narrower ones, so that all have the same
parameters and do the same number of multiplications. Each number of heads is tried with several seeds, and four heads,
a number chosen beforehand, are held against one: they are ahead if the worst seed with four is better than the best
seed with one.

The first task needs two places at once. A decoder of one layer reads random symbols, and at each writes the one before
it and the one three places before it, in this order, as one token. Of a single set of weights it gets a single average
of what stands at both places, and which was where is hard to tell; that is the paper's reason for several heads
(§3.2.2). The second task, except in a quick run, is translation, measured by the perplexity of right translations of
sentences that were not seen in training.

Then every head of a translator is looked at, in the mean over sentences: how spread its attention is (entropy), where
it looks most, how much of its attention goes elsewhere than that of the other heads beside it (half the sum of the
differences of their weights: 0 if they look alike, 1 if nothing that one looks at is looked at by the other), and by
how much the log-probability of right translations falls when this one head is switched off. Heads are said to do
different things if at least {LEAST:.0%} of their attention goes elsewhere than that of another of the same sub-layer.

{TRANSLATION_SETUP}
"""
LIMITATIONS = """
How many heads are best depends on size, data and how long one trains: the paper's own differences are small as well
(24.9 BLEU with one head, 25.8 with eight or sixteen, 25.4 with 32). That one layer needs several heads to look at two
places does not mean that a deeper network does: it can look at them one after the other. That a head is not needed when
all others are there does not mean that it was not needed for learning, nor that several could be switched off at once.
Where a head looks is an average over sentences, and what it does with what it sees is another matter.
"""

SYMBOLS, PLACES, LENGTH = 4, (1, 3), 8  # of the task of two places
ONE, SEVERAL = 1, 4


@dataclass(frozen=True)
class Part:
    """What one head does, in the mean over sentences."""

    place: str
    head: int
    entropy: float
    cost: float  # nats that a right translation loses without it
    elsewhere: float  # how much of its attention goes elsewhere than that of the heads beside it
    looks_at: str
    share: float  # how much of its attention goes there

    @property
    def name(self) -> str:
        """The head as addresses have it."""
        return f"{self.place}[{self.head}]"


def run(context: LabContext) -> LabResult:
    """Train with few and many heads, look at each, draw."""
    counts, seeds = context.by_effort([ONE, SEVERAL], [1, 2, 4, 8, 16], [1, 2, 4, 8, 16]), range(1, 4)
    right = {count: [two_places(context, count, seed) for seed in seeds] for count in counts}
    context.log(f"  two places at once: {_means(right, '.0%')}")
    tried = context.by_effort([], [ONE, SEVERAL, 16], [ONE, SEVERAL, 16])
    pairs = translation_data(context).test[: context.by_effort(80, 200, 300)]
    worth: dict[int, list[float]] = {}
    for count in tried:
        models = [
            train_for_comparison(context, {"model": {"heads": count}}, f"a translator, heads: {count}", n)
            for n in seeds
        ]
        worth[count] = [reference_perplexity(model, pairs) for model in models]
    if worth:
        context.log(f"  perplexity: {_means(worth, '.3f')}")
    parts = what_heads_do(train_translator(context, {}, "a translator"), pairs[: context.by_effort(16, 40, 60)])
    differ = fmean(part.elsewhere for part in parts)
    costs = [part.cost for part in parts]
    needed, spare = max(parts, key=lambda part: part.cost), min(parts, key=lambda part: part.cost)
    ahead = min(right[SEVERAL]) > max(right[ONE])
    translates = not worth or max(worth[SEVERAL]) < min(worth[ONE])
    return LabResult(
        holds=ahead and translates and differ >= LEAST,
        summary=f"Asked for two places at once, a layer with one head is right at {fmean(right[ONE]):.0%} of the places, "
        f"with {SEVERAL} at {fmean(right[SEVERAL]):.0%} (guessing: {SYMBOLS**-2:.0%}; seeds: {len(seeds)}): "
        f"{_ahead(ahead)}.{_translated(worth, comparison_steps(context), translates)} Of the {len(parts)} heads of one translator, "
        f"two of the same sub-layer give {differ:.0%} of their attention to other places. {needed.name} is "
        f"needed most: without it a translation loses {needed.cost:.1f} nats; the median head is worth "
        f"{_signed(median(costs), 2)}, and {spare.name} {_signed(spare.cost, 2)}.",
        numbers={
            "right at two places": {str(count): each for count, each in right.items()},
            "perplexity": {str(count): each for count, each in worth.items()},
            "elsewhere": differ,
            "heads": [asdict(part) for part in parts],
        },
        figures=[_draw(right, worth, parts)],
        tables=[_table(parts)],
    )


def two_places(context: LabContext, heads: int, seed: int) -> float:
    """How often a layer with so many heads is right, after training, about the symbols at two places before."""
    torch.manual_seed(seed)
    settings = {"width": 32, "layers": 1, "heads": heads, "feed_forward": 64, "norm_order": "pre"}
    network = build(
        DecoderOnlyConfig.model_validate({"vocab_size": SYMBOLS**2 + FIRST_SYMBOL, "dropout": 0.0, **settings})
    )
    fit(network, paired(32, seed), context.by_effort(250, 400, 600), learning_rate=1e-2)
    return accuracy(network, next(paired(256, seed + 1000)))


def paired(batch: int, seed: int) -> Iterator[SymbolBatch]:
    """Rows of symbols; at each the two that stood PLACES before it are asked for, in their order, as one token."""
    random = torch.Generator().manual_seed(seed)
    near, far = PLACES
    while True:
        given = torch.randint(SYMBOLS, (batch, LENGTH), generator=random)
        wanted = given.roll(near, 1) * SYMBOLS + given.roll(far, 1)
        asked = torch.ones(batch, LENGTH, dtype=torch.bool)
        asked[:, :far] = False
        yield SymbolBatch(FIRST_SYMBOL + given, FIRST_SYMBOL + wanted, asked)


def what_heads_do(model: Model, pairs: Sequence[Pair]) -> list[Part]:
    """Every head of a translator, in the mean over pairs that it is made to read."""
    seen: dict[tuple[str, int], list[tuple[float, float, float, dict[str, float]]]] = defaultdict(list)
    for pair in pairs:
        trace = model.look(pair.source, target=pair.target)
        for one in trace.head_costs():
            place = f"{one.stack}.{one.layer}.{one.part}"
            weights = trace.activation(f"{place}.weights")  # (heads, queries, keys)
            looks = where(weights[one.head], crossing=one.part == "cross_attention")
            seen[place, one.head].append((one.entropy, one.cost or 0.0, elsewhere(weights, one.head), looks))
    parts = []
    for (place, head), found in seen.items():
        entropies, costs, others, looked = zip(*found, strict=True)
        shares = {name: fmean(one[name] for one in looked) for name in looked[0]}
        most = max(shares, key=shares.__getitem__)
        parts.append(Part(place, head, fmean(entropies), fmean(costs), fmean(others), most, shares[most]))
    return parts


def elsewhere(weights: Tensor, head: int) -> float:
    """How much of a head's attention goes elsewhere than that of another, the mean over all others.

    weights (heads, queries, keys), whose rows sum to one.

    >>> import torch
    >>> elsewhere(torch.stack([torch.eye(3), torch.eye(3).roll(1, 0)]), 0)
    1.0
    """
    moved = (weights - weights[head]).abs().sum(-1).mean(-1) / 2  # (heads)
    return float(moved.sum()) / max(1, len(weights) - 1)


def where(weights: Tensor, *, crossing: bool) -> dict[str, float]:
    """How much of a head's attention goes to places that have a name; weights (queries, keys).

    >>> import torch
    >>> where(torch.eye(3), crossing=False)["itself"]
    1.0
    """
    rows = len(weights)
    looks = {"the first": float(weights[:, 0].mean()), "the last": float(weights[:, -1].mean())}
    if not crossing:
        looks["itself"] = float(weights.diagonal().mean())
        looks["the one before"] = float(weights.diagonal(-1).sum()) / rows
        looks["the one after"] = float(weights.diagonal(1).sum()) / rows
    else:
        looks["the same place"] = float(weights.diagonal().sum()) / rows
    return looks


def _means(found: Mapping[int, Sequence[float]], shape: str) -> str:
    return ", ".join(f"{format(fmean(each), shape)} with {count}" for count, each in found.items())


def _ahead(ahead: bool) -> str:
    return "every seed with several is ahead of every seed with one" if ahead else "the seeds overlap"


def _translated(worth: Mapping[int, Sequence[float]], steps: int, ahead: bool) -> str:
    if not worth:
        return ""
    return (
        f" In translation the perplexity after {steps} steps is {fmean(worth[ONE]):.3f} with one head (seeds: "
        f"{min(worth[ONE]):.3f} to {max(worth[ONE]):.3f}) and {fmean(worth[SEVERAL]):.3f} with {SEVERAL} "
        f"({min(worth[SEVERAL]):.3f} to {max(worth[SEVERAL]):.3f}): {_ahead(ahead)}."
    )


def _signed(value: float, digits: int) -> str:
    """A number that may be negative, with a true minus, and zero without one.

    >>> _signed(-0.04, 1), _signed(-1.26, 1)
    ('0.0', '−1.3')
    """
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def _draw(
    right: Mapping[int, Sequence[float]], worth: Mapping[int, Sequence[float]], parts: Sequence[Part]
) -> LabFigure:
    places = list(dict.fromkeys(part.place for part in parts))
    costs = [[part.cost for part in parts if part.place == place] for place in places]
    most = max(max(row) for row in costs)
    charts = [("right about two places at once", right, ".0%")]
    if worth:
        charts.append(("perplexity of translations; less is better", worth, ".3f"))
    with plot_style():
        figure = new_figure(11, 3.6)
        *axes, last = figure.subplots(1, len(charts) + 1, width_ratios=[1] * len(charts) + [1.4])
        for ax, (title, found, shape) in zip(axes, charts, strict=True):
            dots(ax, {_heads(count): each for count, each in found.items()}, title=title, number_format=shape)
        matrix(
            last,
            [[max(0.0, cost) / most for cost in row] for row in costs],
            places,
            [f"head {n}" for n in range(len(costs[0]))],
            title="nats that a translation loses without a head",
            texts=[[_signed(cost, 1) for cost in row] for row in costs],
        )
        last.set_aspect("auto")
        for label in last.get_xticklabels():
            label.set(rotation=0, ha="center")
    translators = "perplexity of translators by their number of heads; " if worth else ""
    return LabFigure(
        "heads",
        "Networks with few and many heads that cost the same, lines from the lowest seed to the highest; and each head "
        "of a translator, switched off alone.",
        figure,
        f"How often a layer is right about two places at once, by its number of heads: {_means(right, '.0%')}; "
        f"{translators}and a matrix of what it costs a translation to switch off each head of a translator, "
        f"from {_signed(min(map(min, costs)), 1)} to {most:.1f} nats.",
    )


def _heads(count: int) -> str:
    return f"{count} head{'s' if count > 1 else ''}"


def _table(parts: Sequence[Part]) -> LabTable:
    rows = [
        [
            part.name,
            f"{part.entropy:.2f}",
            _signed(part.cost, 2),
            f"{part.looks_at} ({part.share:.0%})",
            f"{part.elsewhere:.0%}",
        ]
        for part in parts
    ]
    head = ["head", "entropy, nats", "cost, nats", "looks most at", "elsewhere than others"]
    return LabTable("Every head of a translator", head, rows)
