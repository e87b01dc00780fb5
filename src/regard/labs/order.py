"""Four words in all their orders: what self-attention makes of them with and without positions.

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
from regard.labs import LabContext, LabFigure, LabResult, LabTable
from regard.labs.charts import heat_map, line_chart, over_seeds, two_digits
from regard.labs.trials import fit
from regard.models import build
from regard.models.network import EncoderNetwork, Network
from regard.plotting import new_figure, plot_style
from regard.training.batches import LabelBatch
from regard.training.losses import LabelObjective

METHOD = """
The four words of "man eats small dinosaur" are put into all 24 orders, and each order is encoded by an untrained
encoder of two layers, without positions and with sinusoidal positions. The outputs are compared with those of the first
order in two ways: by word, wherever the word is now (equal outputs mean permutation equivariance), and by position
(equal outputs would mean permutation invariance). The same is done for a decoder without positions, whose causal mask
distinguishes positions.

Then a classifier on the mean of the outputs learns which of the 24 orders it is given. Every batch has all orders, so
there is no generalization to test: the classifier only has to distinguish them. The measure is the probability of the
correct order after training.
"""
LIMITATIONS = """
Four words and two small layers. Permutation equivariance without positions follows from the formulas for any number of
words and layers; the experiment only confirms it. How well position schemes work in practice is the subject of the lab
`positions`. A readout of a fixed position, such as the first token, can tell which word is there, because the outputs
move with the words.
"""

ORDERED_WORDS = ("man", "eats", "small", "dinosaur")
ORDERS = torch.tensor(list(permutations(range(len(ORDERED_WORDS)))))  # (N, T)
SHOWN_ORDER = ORDERS.tolist().index([2, 3, 1, 0])  # small dinosaur eats man
WIDTH = 32
ROUNDING = 1e-5  # rounding error of single precision, relative to the norm of a vector
NONE, SINUSOIDAL, CAUSAL, ALIBI = "no positions", "sinusoidal", "no positions, causal mask", "ALiBi"
ENCODER_POSITIONS: dict[str, PositionsConfig] = {
    NONE: NoPositionsConfig(),
    SINUSOIDAL: SinusoidalPositionsConfig(),
    "learned": LearnedPositionsConfig(max_length=len(ORDERED_WORDS)),
    "relative": RelativePositionsConfig(max_distance=len(ORDERED_WORDS)),
    "rotary": RotaryPositionsConfig(),
    ALIBI: AlibiPositionsConfig(),
}
OutputChange = dict[str, float]  # "by_word" and "by_position"


def run(context: LabContext) -> LabResult:
    """Encode all orders, and train classifiers to distinguish them."""
    outputs = {name: _outputs(name) for name in (NONE, SINUSOIDAL, CAUSAL)}
    changes = {name: output_change(vectors) for name, vectors in outputs.items()}
    schemes = context.by_effort([NONE, SINUSOIDAL], [*ENCODER_POSITIONS], [*ENCODER_POSITIONS])
    steps, seeds = context.by_effort(150, 300, 600), context.by_effort(1, 3, 5)
    probabilities: dict[str, list[float]] = {}
    curves: dict[str, list[list[float]]] = {}
    for name in schemes:
        runs = [_train_classifier(ENCODER_POSITIONS[name], steps, seed) for seed in range(seeds)]
        curves[name], probabilities[name] = [losses for losses, _ in runs], [correct for _, correct in runs]
        context.log(f"  {name}: probability of the correct order {fmean(probabilities[name]):.1%} after {steps} steps")
    orders = len(ORDERS)
    alibi = (
        " ALiBi in an encoder is symmetric in distance, so an order and its reverse are indistinguishable: "
        f"{fmean(probabilities[ALIBI]):.1%}."
        if ALIBI in probabilities
        else ""
    )
    return LabResult(
        holds=changes[NONE]["by_word"] < ROUNDING
        and min(changes[NONE]["by_position"], changes[SINUSOIDAL]["by_word"]) > 0.1
        and max(probabilities[NONE]) < 2 / orders
        and min(probabilities[SINUSOIDAL]) > 0.9,
        summary=f"Without positions the output of a word changes by at most "
        f"{two_digits(changes[NONE]['by_word'])} of its norm over the {orders} orders, and the output at a position "
        f"by up to {changes[NONE]['by_position']:.0%}{_symmetry(changes[NONE])}. With sinusoidal positions the output "
        f"of a word changes by up to {changes[SINUSOIDAL]['by_word']:.0%}, and with a causal mask and no positions by "
        f"up to {changes[CAUSAL]['by_word']:.0%}. The classifier gives the correct order a probability of "
        f"{fmean(probabilities[SINUSOIDAL]):.1%} with sinusoidal positions and {fmean(probabilities[NONE]):.1%} "
        f"without positions; chance is {1 / orders:.1%} (seeds: {seeds}).{alibi}",
        numbers={
            "output_change": changes,
            "correct_order_probability": probabilities,
            "final_loss": {name: [losses[-1] for losses in runs] for name, runs in curves.items()},
        },
        figures=[_outputs_figure(outputs), _learning_figure(curves)],
        tables=[_change_table(changes), _probability_table(probabilities, curves)],
    )


def output_change(outputs: Tensor) -> OutputChange:
    """Return the largest difference of `outputs` (N, T, C) from the first order, relative to the mean norm.

    `by_word` compares the same word, `by_position` the same position.
    """
    words = torch.stack([outputs[n, order.argsort()] for n, order in enumerate(ORDERS)])  # (N, T, C) word by word
    norm = outputs.norm(dim=-1).mean()
    by_word, by_position = (float((vectors - outputs[0]).norm(dim=-1).max() / norm) for vectors in (words, outputs))
    return {"by_word": by_word, "by_position": by_position}


def _symmetry(change: OutputChange) -> str:
    """Return whether the outputs are permutation-equivariant or invariant, if they are."""
    if change["by_word"] >= ROUNDING:
        return ""
    invariant = "and also invariant" if change["by_position"] < ROUNDING else "not invariant"
    return f": up to rounding, self-attention is permutation-equivariant, {invariant}"


@torch.no_grad()
def _outputs(name: str) -> Tensor:
    """Return the outputs of an untrained network for each order (N, T, C)."""
    network = _decoder() if name == CAUSAL else _encoder(ENCODER_POSITIONS[name], seed=0)
    network.eval()
    return network.decode(ORDERS) if name == CAUSAL else network.encode(ORDERS).states


def _encoder(positions: PositionsConfig, seed: int) -> EncoderNetwork:
    torch.manual_seed(seed)
    head = ClassHeadConfig(
        labels=tuple(" ".join(ORDERED_WORDS[n] for n in order) for order in ORDERS.tolist()), dropout=0.0
    )
    network = build(
        EncoderOnlyConfig(
            vocab_size=len(ORDERED_WORDS),
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
            vocab_size=len(ORDERED_WORDS),
            width=WIDTH,
            layers=2,
            heads=4,
            feed_forward=2 * WIDTH,
            dropout=0.0,
            positions=NoPositionsConfig(),
        )
    )


def _train_classifier(positions: PositionsConfig, steps: int, seed: int) -> tuple[list[float], float]:
    """Return the losses, and the mean probability of the correct order after training."""
    network = _encoder(positions, seed)
    batch = LabelBatch(ORDERS, torch.ones_like(ORDERS, dtype=torch.bool), torch.arange(len(ORDERS))[:, None])
    objective = LabelObjective(network, 0.0, per_word=False)
    losses = fit(network, repeat(batch), steps, objective=objective, learning_rate=5e-3).losses
    with torch.no_grad():
        states, _ = objective.states(batch)
        probabilities = network.logits(states).softmax(-1)  # (N, N) order given, order predicted
    return losses, float(probabilities.diagonal().mean())


def _outputs_figure(outputs: dict[str, Tensor]) -> LabFigure:
    orders = [ORDERS[0].tolist(), ORDERS[SHOWN_ORDER].tolist()]
    with plot_style():
        figure = new_figure(9.5, 3.4)
        for n, name in enumerate((NONE, SINUSOIDAL)):
            for m, (order, index) in enumerate(zip(orders, (0, SHOWN_ORDER), strict=True)):
                ax = figure.add_subplot(2, 2, 1 + 2 * n + m)
                words = [ORDERED_WORDS[word] for word in order]
                heat_map(ax, outputs[name][index], words, title=f"{name}: {' '.join(words)}", limit=2.0)
    return LabFigure(
        "vectors",
        "Outputs for two orders, 32 values per word (dark blue positive, light orange negative). Without positions the "
        "rows of a word are equal in both orders.",
        figure,
        "Four heat maps with a row per word: outputs for two orders, without positions and with sinusoidal positions. "
        f"{_describe_rows(outputs)}",
    )


def _describe_rows(outputs: dict[str, Tensor]) -> str:
    """Return the largest difference between the rows of the same word in the two orders shown."""
    first, second = ORDERS[0].argsort(), ORDERS[SHOWN_ORDER].argsort()
    differences = {
        name: float((outputs[name][0, first] - outputs[name][SHOWN_ORDER, second]).abs().max())
        for name in (NONE, SINUSOIDAL)
    }
    texts = " and ".join(f"{two_digits(value)} ({name})" for name, value in differences.items())
    return f"The values of a word differ between the two orders by at most {texts}."


def _learning_figure(curves: dict[str, list[list[float]]]) -> LabFigure:
    with plot_style():
        figure = new_figure(7, 3.4)
        steps = range(1, len(curves[NONE][0]) + 1)
        lines = {name: over_seeds(steps, runs) for name, runs in curves.items()}
        title = "loss of classifying 24 orders (nats)"
        description = line_chart(figure.subplots(), lines, title=title, xlabel="step", markers=False)
    return LabFigure(
        "learning",
        "Training loss of a classifier of the 24 orders of four words; chance is log 24 = 3.18 nats.",
        figure,
        f"A line chart. {description}",
    )


def _change_table(changes: dict[str, OutputChange]) -> LabTable:
    rows = [
        [name, two_digits(change["by_word"]), two_digits(change["by_position"])] for name, change in changes.items()
    ]
    header = ["", "same word", "same position"]
    return LabTable("Largest change of the outputs over the orders, relative to their norm", header, rows)


def _probability_table(probabilities: dict[str, list[float]], curves: dict[str, list[list[float]]]) -> LabTable:
    rows = [
        [name, f"{fmean(values):.1%}", f"{fmean([losses[-1] for losses in curves[name]]):.3f}"]
        for name, values in probabilities.items()
    ]
    return LabTable("Classifying the orders", ["positions", "probability of the correct order", "loss (nats)"], rows)
