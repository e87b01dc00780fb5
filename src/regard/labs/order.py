"""Four words in all their orders: what self-attention makes of them with positions and without.

N orders · T words · C model width
"""

from itertools import permutations, repeat
from statistics import fmean

import torch
from torch import Tensor

from regard.config import ClassHeadConfig, DecoderOnlyConfig, EncoderOnlyConfig
from regard.config.positions import (
    AlibiPositionsConfig,
    LearnedPositionsConfig,
    NoPositionsConfig,
    PositionsConfig,
    RelativePositionsConfig,
    RotaryPositionsConfig,
    SinusoidalPositionsConfig,
)
from regard.labs.charts.grids import heat_map
from regard.labs.charts.lines import format_number, line_chart, over_seeds
from regard.labs.lab import LabContext, LabFigure, LabResult, LabTable
from regard.labs.trials.fitting import fit
from regard.models import build
from regard.models.network import EncoderNetwork, Network
from regard.plotting import new_figure, plot_style
from regard.training.labels import LabelBatch, PredictLabels

METHOD = """
The four words of "man eats small dinosaur" are put into all of their 24 orders, and each order is read by an encoder
of two layers that was not trained, once without positions and once with the paper's sinusoids. The vectors that come
out are compared with those of the first order in two ways: word by word, wherever the word stands now (do the outputs
move along with the words? that is equivariance), and place by place (do the outputs stay where they are? that would be
invariance). The same is done for a decoder without positions, whose look-ahead mask treats places differently.

Then a classifier, which sees the mean over the words, learns to tell which of the 24 orders it has been given. All
orders are in every batch, so that there is nothing to generalise: it only has to tell them apart. Measured is the
probability that it gives to the right order in the end.
"""
LIMITATIONS = """
Four words in two small layers. That without positions outputs move along with their words follows from the arithmetic,
for any number of words and layers, and so needs no experiment; how well the schemes of position do in practice is the
subject of another lab. A readout that looks at a place (the first token's vector, say) can of course tell which word
stands there: the outputs do move.
"""

WORDS = ("man", "eats", "small", "dinosaur")
ORDERS = torch.tensor(list(permutations(range(len(WORDS)))))  # (N, T)
SHOWN = ORDERS.tolist().index([2, 3, 1, 0])  # small dinosaur eats man
WIDTH = 32
ROUNDING = 1e-5  # of a vector's length: what single precision may lose on the way
NONE, SINUSOIDAL, MASKED, ALIBI = "no positions", "sinusoidal", "no positions, look-ahead mask", "ALiBi"
SCHEMES: dict[str, PositionsConfig] = {
    NONE: NoPositionsConfig(),
    SINUSOIDAL: SinusoidalPositionsConfig(),
    "learned": LearnedPositionsConfig(max_length=len(WORDS)),
    "relative": RelativePositionsConfig(max_distance=len(WORDS)),
    "rotary": RotaryPositionsConfig(),
    ALIBI: AlibiPositionsConfig(),
}
Moved = dict[str, float]  # how far the outputs lie from those of the first order, by word and by place


def run(context: LabContext) -> LabResult:
    """Read all orders, learn to tell them apart, draw."""
    vectors = {name: _vectors(name) for name in (NONE, SINUSOIDAL, MASKED)}
    moved = {name: moved_by(found) for name, found in vectors.items()}
    schemes = context.by_effort([NONE, SINUSOIDAL], [*SCHEMES], [*SCHEMES])
    steps, seeds = context.by_effort(150, 300, 600), context.by_effort(1, 3, 5)
    told: dict[str, list[float]] = {}
    curves: dict[str, list[list[float]]] = {}
    for name in schemes:
        runs = [_learn(SCHEMES[name], steps, seed) for seed in range(seeds)]
        curves[name], told[name] = [losses for losses, _ in runs], [share for _, share in runs]
        context.log(f"  {name}: {fmean(told[name]):.1%} for the right order after {steps} steps")
    orders = len(ORDERS)
    alibi = (
        f" ALiBi in an encoder takes the same from scores to both sides, so that an order and its mirror image should "
        f"be one to it: {fmean(told[ALIBI]):.1%}."
        if ALIBI in told
        else ""
    )
    return LabResult(
        holds=moved[NONE]["by word"] < ROUNDING
        and min(moved[NONE]["by place"], moved[SINUSOIDAL]["by word"]) > 0.1
        and max(told[NONE]) < 2 / orders
        and min(told[SINUSOIDAL]) > 0.9,
        summary=f"Without positions a word's vector differs between the {orders} orders by at most "
        f"{format_number(moved[NONE]['by word'])} of its length, and what stands at a place by up to "
        f"{moved[NONE]['by place']:.0%}{_nature(moved[NONE])}. With sinusoids a word's vector changes by up to "
        f"{moved[SINUSOIDAL]['by word']:.0%} with the order, and under a look-ahead mask without any positions by up "
        f"to {moved[MASKED]['by word']:.0%}. The classifier gives the right order {fmean(told[SINUSOIDAL]):.1%} of "
        f"the probability with sinusoids and {fmean(told[NONE]):.1%} without positions; guessing gives "
        f"{1 / orders:.1%} (seeds: {seeds}).{alibi}",
        numbers={
            "moved": moved,
            "probability_of_the_right_order": told,
            "final_loss": {name: [losses[-1] for losses in runs] for name, runs in curves.items()},
        },
        figures=[_draw_vectors(vectors), _draw_learning(curves)],
        tables=[_moved_table(moved), _told_table(told, curves)],
    )


def moved_by(vectors: Tensor) -> Moved:
    """The largest difference from the first order, in lengths of a vector: of the same word, and of the same place.

    `vectors` (N, T, C) are those of the places, in each order.
    """
    words = torch.stack([vectors[n, order.argsort()] for n, order in enumerate(ORDERS)])  # (N, T, C) word by word
    length = vectors.norm(dim=-1).mean()
    by_word, by_place = (float((found - vectors[0]).norm(dim=-1).max() / length) for found in (words, vectors))
    return {"by word": by_word, "by place": by_place}


def _nature(moved: Moved) -> str:
    """What it is called if outputs move along with the words, or stay where they are."""
    if moved["by word"] >= ROUNDING:
        return ""
    invariant = "it is invariant as well" if moved["by place"] < ROUNDING else "it is not invariant"
    return (
        f": to rounding, the outputs move along with the words. Self-attention is permutation-equivariant; {invariant}"
    )


@torch.no_grad()
def _vectors(name: str) -> Tensor:
    """What an untrained network makes of each order (N, T, C)."""
    network = _decoder() if name == MASKED else _encoder(SCHEMES[name], seed=0)
    network.eval()
    return network.decode(ORDERS) if name == MASKED else network.encode(ORDERS).states


def _encoder(positions: PositionsConfig, seed: int) -> EncoderNetwork:
    torch.manual_seed(seed)
    head = ClassHeadConfig(labels=tuple(" ".join(WORDS[n] for n in order) for order in ORDERS.tolist()), dropout=0.0)
    network = build(
        EncoderOnlyConfig(
            vocab_size=len(WORDS),
            width=WIDTH,
            layers=2,
            heads=4,
            feed_forward=2 * WIDTH,
            dropout=0.0,
            positions=positions,
            head=head,
        )
    )
    assert isinstance(network, EncoderNetwork)
    return network


def _decoder() -> Network:
    torch.manual_seed(0)
    return build(
        DecoderOnlyConfig(
            vocab_size=len(WORDS),
            width=WIDTH,
            layers=2,
            heads=4,
            feed_forward=2 * WIDTH,
            dropout=0.0,
            positions=NoPositionsConfig(),
        )
    )


def _learn(positions: PositionsConfig, steps: int, seed: int) -> tuple[list[float], float]:
    """The losses, and the mean probability of the right order in the end."""
    network = _encoder(positions, seed)
    batch = LabelBatch(ORDERS, torch.ones_like(ORDERS, dtype=torch.bool), torch.arange(len(ORDERS))[:, None])
    objective = PredictLabels(network, 0.0, words=False)
    losses = fit(network, repeat(batch), steps, objective=objective, learning_rate=5e-3).losses
    with torch.no_grad():
        states, _ = objective.states(batch)
        probabilities = network.logits(states).softmax(-1)  # of each order (rows), to be each order (columns)
    return losses, float(probabilities.diagonal().mean())


def _draw_vectors(vectors: dict[str, Tensor]) -> LabFigure:
    orders = [ORDERS[0].tolist(), ORDERS[SHOWN].tolist()]
    with plot_style():
        figure = new_figure(9.5, 3.4)
        for n, name in enumerate((NONE, SINUSOIDAL)):
            for m, (order, place) in enumerate(zip(orders, (0, SHOWN), strict=True)):
                ax = figure.add_subplot(2, 2, 1 + 2 * n + m)
                words = [WORDS[word] for word in order]
                heat_map(ax, vectors[name][place], words, title=f"{name}: {' '.join(words)}", limit=2.0)
    return LabFigure(
        "vectors",
        "What comes out for two orders, a row of 32 numbers for each word (dark blue above zero, light orange below): "
        "are a word's numbers the same in both?",
        figure,
        f"Four matrices, a row for each word: what comes out for two orders of the words, without positions and with "
        f"sinusoidal ones. {_rows_said(vectors)}",
    )


def _rows_said(vectors: dict[str, Tensor]) -> str:
    """How far the rows that are drawn lie from each other."""
    first, second = ORDERS[0].argsort(), ORDERS[SHOWN].argsort()
    apart = {
        name: float((vectors[name][0, first] - vectors[name][SHOWN, second]).abs().max()) for name in (NONE, SINUSOIDAL)
    }
    said = " and ".join(f"{format_number(value)} ({name})" for name, value in apart.items())
    return f"Numbers of the same word differ between the two orders by at most {said}."


def _draw_learning(curves: dict[str, list[list[float]]]) -> LabFigure:
    with plot_style():
        figure = new_figure(7, 3.4)
        places = range(1, len(curves[NONE][0]) + 1)
        lines = {name: over_seeds(places, runs) for name, runs in curves.items()}
        title = "loss of telling 24 orders apart, nats"
        said = line_chart(figure.subplots(), lines, title=title, xlabel="step", markers=False)
    return LabFigure(
        "learning",
        "A classifier learns which of the 24 orders of four words it sees; guessing costs log 24 = 3.18 nats.",
        figure,
        f"A chart. {said}",
    )


def _moved_table(moved: dict[str, Moved]) -> LabTable:
    rows = [[name, format_number(one["by word"]), format_number(one["by place"])] for name, one in moved.items()]
    head = ["", "of the same word", "of the same place"]
    return LabTable("The largest difference from the first order, in lengths of a vector", head, rows)


def _told_table(told: dict[str, list[float]], curves: dict[str, list[list[float]]]) -> LabTable:
    rows = [
        [name, f"{fmean(shares):.1%}", f"{fmean([losses[-1] for losses in curves[name]]):.3f}"]
        for name, shares in told.items()
    ]
    return LabTable("Telling the orders apart", ["positions", "probability of the right order", "loss, nats"], rows)
