"""One head or several that cost as much; and what single heads of a translator look at and are needed for."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median

from torch import Tensor

from regard.drawing.style import new_figure, our_style
from regard.labs.cells import cells
from regard.labs.charts import chart, over_seeds
from regard.labs.lab import Bench, Drawing, Outcome, Table
from regard.labs.translators import TAUGHT, book, parameters, perplexity_on, short, trained, training_for
from regard.model import Model
from regard.text.phrasebook import Pair

DONE = f"""
Translators that differ in the number of their heads alone: more heads are narrower ones, so that all have the same
parameters and do the same number of multiplications. They are trained on the same batches with several seeds, and
measured by the perplexity of right translations of sentences that they have not seen.

Then every head of a translator is looked at: how spread its attention is (entropy), where it looks most, and by how
much the log-probability of right translations falls when this one head is switched off, in the mean over sentences.

{TAUGHT}
"""
LIMITS = """
How many heads are best depends on size, data and how long one trains: the paper's own differences are small as well
(24.9 BLEU with one head, 25.8 with eight or sixteen, 25.4 with 32). That a head is not needed when all others are there
does not mean that it was not needed for learning, nor that several could be switched off at once. Where a head looks is
an average over sentences, and what it does with what it sees is another matter.
"""

TOLERATED = {"quick": 1.05, "usual": 1.0, "full": 1.0}  # by how much luck may decide, where there is but one seed


@dataclass(frozen=True)
class Part:
    """What one head does, in the mean over sentences."""

    place: str
    head: int
    entropy: float
    cost: float  # nats that a right translation loses without it
    looks_at: str
    share: float  # how much of its attention goes there


def run(bench: Bench) -> Outcome:
    """Train with few and many heads, look at each, draw."""
    counts, seeds = bench.pick([1, 4], [1, 2, 4, 8, 16], [1, 2, 4, 8, 16]), bench.pick(1, 2, 1)
    steps, pairs = short(bench), book(bench).test[: bench.pick(80, 200, 500)]
    worth: dict[int, list[float]] = {}
    for count in counts:
        models = [
            trained(bench, {"model": {"heads": count}, "training": training_for(steps, seed)}, f"heads: {count}")
            for seed in range(1, seeds + 1)
        ]
        worth[count] = [perplexity_on(model, pairs) for model in models]
        bench.say(f"  heads: {count}, perplexity: {', '.join(f'{one:.3f}' for one in worth[count])}")
    parts = what_heads_do(trained(bench, {}, "a translator"), pairs[: bench.pick(15, 40, 100)])
    means = {count: sum(each) / len(each) for count, each in worth.items()}
    best = min(counts[1:], key=lambda count: means[count])
    costs = sorted(part.cost for part in parts)
    needed, spare = max(parts, key=lambda part: part.cost), min(parts, key=lambda part: part.cost)
    return Outcome(
        holds=means[best] < TOLERATED[bench.effort] * means[1] and costs[-1] > 3 * max(0.0, median(costs)),
        said=f"With one head the perplexity of right translations is {means[1]:.3f}, with {best} it is "
        f"{means[best]:.3f}, at {parameters(models[0]):,} parameters each after {steps} steps (seeds: {seeds}). Of the "
        f"{len(parts)} heads of one translator, {needed.place}[{needed.head}] is needed most: without it a translation "
        f"loses {needed.cost:.1f} nats; the median head is worth {median(costs):.2f}, and without {spare.place}"
        f"[{spare.head}] the loss is {spare.cost:.2f}.",
        numbers={
            "perplexity": {str(count): each for count, each in worth.items()},
            "heads": [asdict(part) for part in parts],
            "steps": steps,
        },
        drawings=[_draw(worth, parts)],
        tables=[_table(parts)],
    )


def what_heads_do(model: Model, pairs: Sequence[Pair]) -> list[Part]:
    """Every head of a translator, in the mean over pairs that it is made to read."""
    seen: dict[tuple[str, int], list[tuple[float, float, dict[str, float]]]] = defaultdict(list)
    for pair in pairs:
        trace = model.look(pair.source, target=pair.target)
        for one in trace.heads():
            place = f"{one.stack}.{one.layer}.{one.part}"
            looks = where(trace.whole(f"{place}.weights")[one.head], crossing=one.part == "cross_attention")
            seen[place, one.head].append((one.entropy, one.cost or 0.0, looks))
    parts = []
    for (place, head), found in seen.items():
        names = found[0][2]
        shares = {name: sum(looks[name] for _, _, looks in found) / len(found) for name in names}
        most = max(shares, key=shares.__getitem__)
        entropy = sum(one for one, _, _ in found) / len(found)
        cost = sum(one for _, one, _ in found) / len(found)
        parts.append(Part(place, head, entropy, cost, most, shares[most]))
    return parts


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


def _draw(worth: Mapping[int, Sequence[float]], parts: Sequence[Part]) -> Drawing:
    places = list(dict.fromkeys(part.place for part in parts))
    costs = [[part.cost for part in parts if part.place == place] for place in places]
    most = max(max(row) for row in costs)
    with our_style():
        figure = new_figure(11, 3.6)
        left, right = figure.subplots(1, 2)
        counts = list(worth)
        lines = {"": over_seeds(counts, list(zip(*worth.values(), strict=True)))}
        chart(left, lines, title="perplexity of right translations", across="heads, at equal cost", x="log")
        left.set_xticks(counts, [str(count) for count in counts])
        cells(
            right,
            [[max(0.0, cost) / most for cost in row] for row in costs],
            places,
            [f"head {n}" for n in range(len(costs[0]))],
            title="nats that a translation loses without a head",
            said=[[f"{cost:.1f}" for cost in row] for row in costs],
        )
        right.set_aspect("auto")
        for label in right.get_xticklabels():
            label.set(rotation=0, ha="center")
    return Drawing(
        "heads",
        "Translators with few and many heads that cost the same; and each head of one, switched off alone.",
        figure,
        "Perplexity against the number of heads; and a matrix of what switching off each head costs, in which a few "
        "heads cost much and most cost little.",
    )


def _table(parts: Sequence[Part]) -> Table:
    rows = [
        [f"{part.place}[{part.head}]", f"{part.entropy:.2f}", f"{part.cost:.2f}", f"{part.looks_at} ({part.share:.0%})"]
        for part in parts
    ]
    return Table("Every head of a translator", ["head", "entropy, nats", "cost, nats", "looks most at"], rows)
