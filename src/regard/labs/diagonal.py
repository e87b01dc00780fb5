"""The diagonal of self-attention: how often a token attends most to itself, without projections and in trained heads.

N tokens · C width · H heads
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean

import torch
from torch import Tensor

from regard.api import Model
from regard.labs import LabContext, LabFigure, LabResult, LabTable, Verdict
from regard.labs.charts import LineSeries, dots, line_chart
from regard.labs.translators import TRANSLATION_SETUP, train_translator, translation_data
from regard.phrasebook import AlignedPair
from regard.plotting import new_figure, plot_style

TOKENS = 12  # random vectors in a sequence
MIN_PLAIN, MOST = 0.95, 0.5  # share from which the diagonal counts as the maximum without projections; and in a head
METHOD = f"""
The share of rows in which the diagonal is the largest entry: of the scores X Xᵀ, which is self-attention with
Q = K = V = X, and of the attention weights of heads with projections. A row is a query, and its diagonal entry the
token itself.

First for {TOKENS} random tokens with normally distributed vectors of growing width: without projections, without
projections and with vectors of equal norm, and with random projections of queries and keys. Then for test sentences of
a translation model: for X the inputs of its encoder (embeddings and positions), and for every head of the
self-attention of encoder and decoder. The decoder's first row has only one entry and is left out. Chance is the mean of
one divided by the number of entries.

The textbook statement that the values on the diagonal are the highest is supported without projections if this share is
at least {MIN_PLAIN:.0%} for the inputs of the encoder, and for trained heads if it is more than {MOST:.0%} in most of
them. The claim is that the first is true and the second is not.

{TRANSLATION_SETUP}
"""
LIMITATIONS = """
Without projections the diagonal is the square of a norm, which is the largest entry of its row if all norms are equal
(Cauchy–Schwarz); a token of small norm next to a similar one of larger norm is an exception, so that the share is below
100% for narrow vectors. Some trained heads do attend to the token itself. One small model for one language pair; the
share of a head is an average over sentences. The largest weight does not say how large it is.
"""
PLAIN, EQUAL_NORM, PROJECTED = "Q = K = X", "Q = K = X, equal norms", "random projections"


def run(context: LabContext) -> LabResult:
    """Measure random vectors and the heads of a trained model."""
    widths, draws = [2**n for n in range(1, context.by_effort(8, 10, 10))], context.by_effort(50, 200, 500)
    random_shares: dict[str, list[float]] = defaultdict(list)
    for width in widths:
        for name, share in random_vectors(width, draws).items():
            random_shares[name].append(share)
    model = train_translator(context, {}, "a translation model")
    pairs = translation_data(context).test[: context.by_effort(24, 60, 100)]
    inputs, heads, chance = trained_shares(model, pairs)
    above = [name for name, share in heads.items() if share > MOST]
    plain, learned = inputs >= MIN_PLAIN, len(above) > len(heads) / 2
    highest, lowest = max(heads, key=heads.__getitem__), min(heads, key=heads.__getitem__)
    return LabResult(
        holds=plain and not learned,
        summary=f"Without projections the diagonal is the largest entry in {inputs:.1%} of the rows of the encoder's "
        f"inputs, and in {random_shares[PLAIN][0]:.0%} (width {widths[0]}) to {random_shares[PLAIN][-1]:.0%} (width "
        f"{widths[-1]}) of those of random vectors; with random projections of width {widths[-1]} in "
        f"{random_shares[PROJECTED][-1]:.0%} (chance: {1 / TOKENS:.0%}). In the {len(heads)} heads of the trained "
        f"model it is {fmean(heads.values()):.0%} on average (chance: {chance:.0%}), from {heads[lowest]:.0%} "
        f"({lowest}) to {heads[highest]:.0%} ({highest}); {len(above)} {'head is' if len(above) == 1 else 'heads are'} "
        f"above {MOST:.0%}.",
        numbers={
            "widths": widths,
            "random_vectors": dict(random_shares),
            "encoder_inputs": inputs,
            "heads": heads,
            "chance": chance,
            "sentences": len(pairs),
        },
        figures=[_figure(widths, random_shares, heads)],
        tables=[_table(heads, inputs, chance)],
        verdicts=[
            Verdict("without projections (Q = K = X) the values on the diagonal are the highest", plain),
            Verdict("in most trained heads the values on the diagonal are the highest", learned),
        ],
    )


def diagonal_rows(scores: Tensor) -> Tensor:
    """Return for each row of scores (..., N, N) whether its diagonal entry is larger than all others.

    >>> diagonal_rows(torch.tensor([[3.0, 1.0], [2.0, 2.0]])).tolist()
    [True, False]
    """
    others = scores.masked_fill(torch.eye(scores.size(-1), dtype=torch.bool), -math.inf)
    return scores.diagonal(dim1=-2, dim2=-1) > others.amax(-1)


def random_vectors(width: int, draws: int) -> dict[str, float]:
    """Return the share of rows with the largest entry on the diagonal, for random vectors of this width."""
    generator = torch.Generator().manual_seed(width)
    x = torch.randn(draws, TOKENS, width, generator=generator, dtype=torch.double)
    queries, keys = (
        x @ torch.randn(draws, width, width, generator=generator, dtype=torch.double) for _ in ("queries", "keys")
    )
    unit = x / x.norm(dim=-1, keepdim=True)
    scores = {PLAIN: x @ x.mT, EQUAL_NORM: unit @ unit.mT, PROJECTED: queries @ keys.mT}
    return {name: float(diagonal_rows(values).double().mean()) for name, values in scores.items()}


def trained_shares(model: Model, pairs: Sequence[AlignedPair]) -> tuple[float, dict[str, float], float]:
    """Return the share for the encoder's inputs without projections and for each head, and chance."""
    inputs: list[Tensor] = []
    heads: dict[str, list[Tensor]] = defaultdict(list)
    chances: list[Tensor] = []
    for pair in pairs:
        trace = model.look(pair.source, target=pair.target)
        x = trace.activation("encoder.embedding.sum").double()  # (N, C)
        inputs.append(diagonal_rows(x @ x.T))
        for point in trace.points.values():
            if point.part == "attention" and point.point == "weights":
                weights, causal = trace.activation(point.name), point.stack == "decoder"  # (H, N, N)
                for head, rows in enumerate(diagonal_rows(weights)):
                    heads[f"{point.name.removesuffix('.weights')}[{head}]"].append(rows[int(causal) :])
                    counts = torch.arange(1, len(rows) + 1) if causal else torch.full((len(rows),), len(rows))
                    chances.append(1 / counts[int(causal) :])
    shares = {name: _share(rows) for name, rows in heads.items()}
    return _share(inputs), shares, _share(chances)


def _share(rows: Sequence[Tensor]) -> float:
    return float(torch.cat(list(rows)).double().mean())


def _figure(
    widths: Sequence[int], random_shares: Mapping[str, Sequence[float]], heads: Mapping[str, float]
) -> LabFigure:
    with plot_style():
        figure = new_figure(11, 1 + 0.36 * len(heads))
        left, right = figure.subplots(1, 2)
        lines = {name: LineSeries(widths, shares) for name, shares in random_shares.items()}
        title = f"rows with the largest entry on the diagonal, {TOKENS} tokens"
        description = line_chart(left, lines, title=title, xlabel="width of random vectors", xscale="log")
        rows = {name: [share] for name, share in heads.items()}
        dots(right, rows, title="the same in trained heads", number_format=".0%")
    descriptions = ", ".join(f"{name} {share:.0%}" for name, share in heads.items())
    return LabFigure(
        "diagonal",
        "Share of rows in which the diagonal is the largest entry: random vectors, and the heads of a trained model.",
        figure,
        f"A line chart and a row of dots. {description} In trained heads: {descriptions}.",
    )


def _table(heads: Mapping[str, float], inputs: float, chance: float) -> LabTable:
    rows = [[f"{PLAIN}, encoder inputs", f"{inputs:.1%}"]]
    rows += [[name, f"{share:.1%}"] for name, share in heads.items()]
    rows.append(["chance", f"{chance:.1%}"])
    return LabTable("Rows with the largest entry on the diagonal", ["head", "share"], rows)
