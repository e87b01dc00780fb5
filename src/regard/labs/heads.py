"""Multi-head attention: one head against several of equal total size, and what single heads of a translator do."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median

import torch
from torch import Tensor

from regard.api import Model
from regard.config import DecoderOnlyConfig
from regard.labs import LabContext, LabFigure, LabResult, LabTable
from regard.labs.charts import dots, matrix
from regard.labs.translators import (
    TRANSLATION_SETUP,
    comparison_steps,
    reference_perplexity,
    train_for_comparison,
    train_translator,
    translation_data,
)
from regard.labs.trials import FIRST_SYMBOL, SymbolBatch, accuracy, fit
from regard.models import build
from regard.phrasebook import AlignedPair
from regard.plotting import new_figure, plot_style

MIN_DIFFERENCE = 0.25  # mean difference of the attention of two heads that counts as different
METHOD = f"""
Networks differ only in the number of heads: more heads are narrower, so that parameters and FLOPs are equal. Each
number of heads is trained with several seeds. Four heads, a number chosen in advance, are compared with one: they are
better if the worst seed with four heads is better than the best seed with one.

The first task needs two positions at once. A decoder of one layer is given random symbols and predicts, as one token,
the symbol one position back and the symbol three positions back. A single head gives a single average of the values at
both positions, from which they are hard to separate; this is the paper's argument for several heads (§3.2.2). The
second task, except with quick effort, is translation, measured by the perplexity of the references on test sentences.

Then every head of a translation model is described, averaged over sentences: the entropy of its attention, the position
it attends to most, its difference from the other heads of the same sub-layer (half the L1 distance of the weights: 0
for equal weights, 1 for disjoint ones), and the drop in the log-probability of the reference when this head is ablated.
Heads count as different if the mean difference is at least {MIN_DIFFERENCE:.0%}.

{TRANSLATION_SETUP}
"""
LIMITATIONS = """
The best number of heads depends on model size, data and training time: the differences in the paper are small as well
(24.9 BLEU with one head, 25.8 with eight or sixteen, 25.4 with 32). One layer needs several heads for two positions,
but a deeper network can attend to them one after the other. A head that can be ablated alone may have been needed
during training, and several heads may not be removable together. Attention is averaged over sentences, and where a head
attends does not say what it does with the values.
"""

SYMBOLS, OFFSETS, LENGTH = 4, (1, 3), 8  # of the two-position task
SINGLE, MULTIPLE = 1, 4


@dataclass(frozen=True)
class HeadDescription:
    """Description of a head, averaged over sentences."""

    module: str
    head: int
    entropy: float
    cost: float  # drop in the log-probability of the reference, in nats, when the head is ablated
    difference: float  # from the other heads of the sub-layer
    attends_to: str
    attention: float  # weight of that position

    @property
    def name(self) -> str:
        """The address of the head."""
        return f"{self.module}[{self.head}]"


def run(context: LabContext) -> LabResult:
    """Train with few and many heads, and describe every head of a translation model."""
    counts, seeds = context.by_effort([SINGLE, MULTIPLE], [1, 2, 4, 8, 16], [1, 2, 4, 8, 16]), range(1, 4)
    accuracies = {count: [two_position_accuracy(context, count, seed) for seed in seeds] for count in counts}
    context.log(f"  two positions: {_means(accuracies, '.0%')}")
    translated = context.by_effort([], [SINGLE, MULTIPLE, 16], [SINGLE, MULTIPLE, 16])
    pairs = translation_data(context).test[: context.by_effort(80, 200, 300)]
    perplexities: dict[int, list[float]] = {}
    for count in translated:
        settings, name = {"model": {"heads": count}}, f"a translation model with {count} heads"
        models = [train_for_comparison(context, settings, name, seed) for seed in seeds]
        perplexities[count] = [reference_perplexity(model, pairs) for model in models]
    if perplexities:
        context.log(f"  perplexity: {_means(perplexities, '.3f')}")
    model = train_translator(context, {}, "a translation model")
    heads = describe_heads(model, pairs[: context.by_effort(16, 40, 60)])
    difference = fmean(head.difference for head in heads)
    costs = [head.cost for head in heads]
    highest, lowest = max(heads, key=lambda head: head.cost), min(heads, key=lambda head: head.cost)
    better = min(accuracies[MULTIPLE]) > max(accuracies[SINGLE])
    better_translation = not perplexities or max(perplexities[MULTIPLE]) < min(perplexities[SINGLE])
    return LabResult(
        holds=better and better_translation and difference >= MIN_DIFFERENCE,
        summary=f"On the two-position task the accuracy is {fmean(accuracies[SINGLE]):.0%} with one head and "
        f"{fmean(accuracies[MULTIPLE]):.0%} with {MULTIPLE} (chance: {SYMBOLS**-2:.0%}; seeds: {len(seeds)}): "
        f"{_comparison(better)}.{_translation_summary(perplexities, comparison_steps(context), better_translation)} "
        f"The attention of two heads of the same sub-layer differs by {difference:.0%} on average ({len(heads)} heads "
        f"of one translation model). Ablating {highest.name} costs the most, {highest.cost:.1f} nats per translation; "
        f"the median over heads is {_signed(median(costs), 2)}, and {lowest.name} costs {_signed(lowest.cost, 2)}.",
        numbers={
            "two_position_accuracy": {str(count): values for count, values in accuracies.items()},
            "perplexity": {str(count): values for count, values in perplexities.items()},
            "mean_head_difference": difference,
            "heads": [asdict(head) for head in heads],
        },
        figures=[_figure(accuracies, perplexities, heads)],
        tables=[_table(heads)],
    )


def two_position_accuracy(context: LabContext, heads: int, seed: int) -> float:
    """Train a layer with this number of heads on the two-position task and return its accuracy."""
    torch.manual_seed(seed)
    settings = {"width": 32, "layers": 1, "heads": heads, "feed_forward": 64, "norm_order": "pre"}
    config = DecoderOnlyConfig.model_validate({"vocab_size": SYMBOLS**2 + FIRST_SYMBOL, "dropout": 0.0, **settings})
    network = build(config)
    fit(network, two_position_task(32, seed), context.by_effort(250, 400, 600), learning_rate=1e-2)
    return accuracy(network, next(two_position_task(256, seed + 1000)))


def two_position_task(batch: int, seed: int) -> Iterator[SymbolBatch]:
    """Yield symbols whose labels combine the two symbols OFFSETS back, in order, into one token."""
    generator = torch.Generator().manual_seed(seed)
    near, far = OFFSETS
    while True:
        symbols = torch.randint(SYMBOLS, (batch, LENGTH), generator=generator)
        labels = symbols.roll(near, 1) * SYMBOLS + symbols.roll(far, 1)
        label_mask = torch.ones(batch, LENGTH, dtype=torch.bool)
        label_mask[:, :far] = False
        yield SymbolBatch(FIRST_SYMBOL + symbols, FIRST_SYMBOL + labels, label_mask)


def describe_heads(model: Model, pairs: Sequence[AlignedPair]) -> list[HeadDescription]:
    """Return a description of every head of a translation model, averaged over pairs with forced targets."""
    values: dict[tuple[str, int], list[tuple[float, float, float, dict[str, float]]]] = defaultdict(list)
    for pair in pairs:
        trace = model.look(pair.source, target=pair.target)
        for head in trace.head_costs():
            module = f"{head.stack}.{head.layer}.{head.part}"
            weights = trace.activation(f"{module}.weights")  # (heads, queries, keys)
            attention = attention_by_position(weights[head.head], cross=head.part == "cross_attention")
            difference = head_difference(weights, head.head)
            values[module, head.head].append((head.entropy, head.cost or 0.0, difference, attention))
    heads = []
    for (module, index), rows in values.items():
        entropies, costs, differences, attentions = zip(*rows, strict=True)
        attention = {name: fmean(row[name] for row in attentions) for name in attentions[0]}
        most = max(attention, key=attention.__getitem__)
        means = fmean(entropies), fmean(costs), fmean(differences)
        heads.append(HeadDescription(module, index, *means, most, attention[most]))
    return heads


def head_difference(weights: Tensor, head: int) -> float:
    """Return half the L1 distance of the weights of a head to those of the others, averaged over queries and heads.

    weights (heads, queries, keys), whose rows sum to one.

    >>> import torch
    >>> head_difference(torch.stack([torch.eye(3), torch.eye(3).roll(1, 0)]), 0)
    1.0
    """
    distances = (weights - weights[head]).abs().sum(-1).mean(-1) / 2  # (heads)
    return float(distances.sum()) / max(1, len(weights) - 1)


def attention_by_position(weights: Tensor, *, cross: bool) -> dict[str, float]:
    """Return the mean attention to the first, last, same and neighboring positions; weights (queries, keys).

    >>> import torch
    >>> attention_by_position(torch.eye(3), cross=False)["itself"]
    1.0
    """
    rows = len(weights)
    attention = {"first": float(weights[:, 0].mean()), "last": float(weights[:, -1].mean())}
    if not cross:
        attention["itself"] = float(weights.diagonal().mean())
        attention["previous"] = float(weights.diagonal(-1).sum()) / rows
        attention["next"] = float(weights.diagonal(1).sum()) / rows
    else:
        attention["same position"] = float(weights.diagonal().sum()) / rows
    return attention


def _means(values: Mapping[int, Sequence[float]], number_format: str) -> str:
    return ", ".join(f"{format(fmean(row), number_format)} with {_heads(count)}" for count, row in values.items())


def _comparison(better: bool) -> str:
    return f"every seed with {MULTIPLE} heads is better than every seed with one" if better else "the seeds overlap"


def _translation_summary(perplexities: Mapping[int, Sequence[float]], steps: int, better: bool) -> str:
    if not perplexities:
        return ""
    single, multiple = perplexities[SINGLE], perplexities[MULTIPLE]
    return (
        f" In translation the perplexity after {steps} steps is {fmean(single):.3f} with one head (seeds: "
        f"{min(single):.3f} to {max(single):.3f}) and {fmean(multiple):.3f} with {MULTIPLE} ({min(multiple):.3f} to "
        f"{max(multiple):.3f}): {_comparison(better)}."
    )


def _signed(value: float, digits: int) -> str:
    """Format a number that may be negative, without a negative zero.

    >>> _signed(-0.04, 1), _signed(-1.26, 1)
    ('0.0', '−1.3')
    """
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def _figure(
    accuracies: Mapping[int, Sequence[float]],
    perplexities: Mapping[int, Sequence[float]],
    heads: Sequence[HeadDescription],
) -> LabFigure:
    modules = list(dict.fromkeys(head.module for head in heads))
    costs = [[head.cost for head in heads if head.module == module] for module in modules]
    maximum = max(max(row) for row in costs)
    charts = [("two-position accuracy", accuracies, ".0%")]
    if perplexities:
        charts.append(("translation perplexity", perplexities, ".3f"))
    with plot_style():
        figure = new_figure(11, 3.6)
        *axes, last = figure.subplots(1, len(charts) + 1, width_ratios=[1] * len(charts) + [1.4])
        for ax, (title, values, number_format) in zip(axes, charts, strict=True):
            dots(ax, {_heads(count): row for count, row in values.items()}, title=title, number_format=number_format)
        matrix(
            last,
            [[max(0.0, cost) / maximum for cost in row] for row in costs],
            modules,
            [f"head {n}" for n in range(len(costs[0]))],
            title="log-probability lost without a head (nats)",
            texts=[[_signed(cost, 1) for cost in row] for row in costs],
        )
        last.set_aspect("auto")
        for label in last.get_xticklabels():
            label.set(rotation=0, ha="center")
    translation = "perplexity of translation models by number of heads; " if perplexities else ""
    return LabFigure(
        "heads",
        "Networks with few and many heads of equal total size (lines: range over seeds), and the cost of ablating each "
        "head of a translation model.",
        figure,
        f"Accuracy of the two-position task by number of heads: {_means(accuracies, '.0%')}; {translation}and a matrix "
        f"of the cost of ablating each head of a translation model, from {_signed(min(map(min, costs)), 1)} to "
        f"{maximum:.1f} nats.",
    )


def _heads(count: int) -> str:
    return f"{count} head{'s' if count > 1 else ''}"


def _table(heads: Sequence[HeadDescription]) -> LabTable:
    rows = [
        [
            head.name,
            f"{head.entropy:.2f}",
            _signed(head.cost, 2),
            f"{head.attends_to} ({head.attention:.0%})",
            f"{head.difference:.0%}",
        ]
        for head in heads
    ]
    header = ["head", "entropy (nats)", "cost (nats)", "attends most to", "difference from others"]
    return LabTable("Heads of a translation model", header, rows)
