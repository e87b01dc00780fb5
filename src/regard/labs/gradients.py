# ruff: noqa: E501
"""The last state's gradient by each token before it: through recurrence, gates and attention."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Literal

import torch
from torch import Tensor

from regard.config import DecoderOnlyConfig, ModelConfig, RecurrentLanguageModelConfig
from regard.interpret.recording import thread_hooks
from regard.labs.charts.lines import format_number, line_chart, over_seeds
from regard.labs.lab import LabContext, LabFigure, LabResult, LabTable
from regard.models import build
from regard.models.network import Network
from regard.nn.recurrent import RecurrentLayer
from regard.plotting import new_figure, plot_style

METHOD = """
Networks of one layer, as they are before any training, read random tokens. What comes out at the last token is
multiplied by random numbers and added up, and the gradient of this sum by the vector of each token before it is taken.
Measured is its norm, as the root of the mean square over texts and random numbers, against how many steps the token
lies back. Numbers have double precision, so that nothing is lost because it is small.

The RNN comes with its recurrent matrix as we initialise it, which is orthogonal, and with four times that. The LSTM
comes as we initialise it, with a bias of 1 on its forget gate (σ(1) = 0.73), and with a bias of 5, which leaves that
gate all but open (σ(5) = 0.99). Both are measured a second time with their recurrent matrix at zero, so that only the
gate is left between one step and the next. The factor in the table is what one step more does to the gradient: the
slope of the straight line that fits the logarithms best, from an eighth of the way to its end.
"""
LIMITATIONS = """
These are networks before training, and training moves them: an LSTM that must remember learns to open its forget gate,
and an RNN may learn weights that keep some directions alive. Between one and four times lies a size of weights at which
an RNN's gradient neither vanishes nor explodes for a while; it must be hit, and it differs from input to input. Through
attention the gradient is shared out among all tokens: at first each of n gets about an n-th of it. Deep stacks, in
which gradients also pass from layer to layer, are another matter.
"""

LEVEL = 0.02  # a factor nearer to one than this, over the seeds, leaves the gradient about as it is
SMALL, LARGE = "RNN", "RNN, weights × 4"
LSTM, OPEN, GRU, TRANSFORMER = "LSTM", "LSTM, gate open", "GRU", "Transformer"
VOCABULARY, TEXTS = 64, 16


@dataclass(frozen=True)
class Subject:
    """A network to measure: its settings, and what is done to its weights after they are initialised."""

    settings: Callable[[int], ModelConfig]  # by width
    change: Callable[[RecurrentLayer], None] = lambda layer: None


def run(context: LabContext) -> LabResult:
    """Measure, draw."""
    length, width, seeds = context.by_effort((48, 32, 2), (64, 128, 5), (128, 256, 10))
    norms: dict[str, list[list[float]]] = {}
    for name, subject in SUBJECTS.items():
        norms[name] = [gradient_norms(_network(subject, width, seed), length, seed) for seed in range(seeds)]
        context.log(f"  {name}: × {per_step(norms[name][0]):.2f} with each step")
    factors = {name: [per_step(run) for run in runs] for name, runs in norms.items()}
    usual = {name: geometric_mean(found) for name, found in factors.items()}
    kept = {name: geometric_mean([run[-1] / run[1] for run in runs]) for name, runs in norms.items()}
    gates = {
        name: geometric_mean([per_step(gradient_norms(_network(subject, width, n), length, n)) for n in range(seeds)])
        for name, subject in THROUGH_THE_GATE.items()
    }
    return LabResult(
        holds=max(factors[SMALL]) < 0.8
        and min(factors[LARGE]) > 1.2
        and min(factors[LSTM]) > max(factors[SMALL])
        and min(factors[OPEN]) > max(factors[LSTM])
        and all(0.95 < factor < 1.05 for factor in factors[TRANSFORMER]),
        summary=f"One step further back multiplies the gradient by {usual[SMALL]:.2f} in the RNN, by {usual[LARGE]:.2f} "
        f"in the RNN with four times the weights, by {usual[LSTM]:.2f} in the LSTM, by {usual[GRU]:.2f} in the GRU, "
        f"and by {usual[TRANSFORMER]:.2f} in the Transformer. What lies {length - 1} steps back therefore has "
        f"{format_number(kept[SMALL])}, {format_number(kept[LARGE])}, {format_number(kept[LSTM])}, {format_number(kept[GRU])} and "
        f"{format_number(kept[TRANSFORMER])} times the gradient of the token before the last. As it is initialised, the "
        f"LSTM's {_course(usual[LSTM])}; through its forget gate alone the factor would be {gates[LSTM]:.2f}, and the "
        f"way through its state {'adds to' if usual[LSTM] > gates[LSTM] else 'takes from'} that. With the "
        f"gate all but open the factor is {usual[OPEN]:.2f}, and the gradient {_course(usual[OPEN])} (through the gate "
        f"alone {gates[OPEN]:.2f}): the gates make it possible to remember, they do not remember by themselves (seeds: "
        f"{seeds}).",
        numbers={
            "steps_back": list(range(length)),
            "gradient_norm": norms,
            "factor_per_step": factors,
            "factor_through_the_gate_alone": gates,
        },
        figures=[_draw(norms)],
        tables=[_table(norms, usual)],
    )


def gradient_norms(network: Network, length: int, seed: int) -> list[float]:
    """The norm of the gradient of the last state by the token so many steps back, from 0 on."""
    random = torch.Generator().manual_seed(seed)
    ids = torch.randint(VOCABULARY, (TEXTS, length), generator=random)
    embedded: list[Tensor] = []

    def cut(_: Tensor, vectors: Tensor) -> Tensor:
        embedded.append(vectors.detach().requires_grad_())
        return embedded[0]

    with thread_hooks([(network.taps["decoder.embedding.sum"], cut)]):
        last = network.decode(ids)[:, -1]  # (B, C)
    mixed = last * torch.randn(last.shape, generator=random, dtype=last.dtype)
    (gradient,) = torch.autograd.grad(mixed.sum() / math.sqrt(last.size(-1)), embedded)  # (B, T, C)
    norms: list[float] = gradient.square().sum(-1).mean(0).sqrt().flip(0).tolist()
    return norms


def per_step(norms: Sequence[float]) -> float:
    """By what one step more multiplies the norms: the slope of the line that fits their logarithms best.

    >>> round(per_step([8.0, 4.0, 2.0, 1.0]), 3)
    0.5
    """
    logs = torch.tensor(norms, dtype=torch.float64).log()[len(norms) // 8 :]
    places = torch.arange(len(logs), dtype=torch.float64)
    places -= places.mean()
    return math.exp(float((places @ logs) / (places @ places)))


def _network(subject: Subject, width: int, seed: int) -> Network:
    torch.manual_seed(seed)
    network = build(subject.settings(width)).double().eval()
    with torch.no_grad():
        for layer in (part for part in network.modules() if isinstance(part, RecurrentLayer)):
            subject.change(layer)
    return network


def _recurrent(cell: Literal["rnn", "lstm", "gru"]) -> Callable[[int], ModelConfig]:
    return lambda width: RecurrentLanguageModelConfig(vocab_size=VOCABULARY, width=width, layers=1, cell=cell)


def _transformer(width: int) -> ModelConfig:
    return DecoderOnlyConfig(vocab_size=VOCABULARY, width=width, layers=1, heads=4, feed_forward=4 * width)


def _enlarge(layer: RecurrentLayer) -> None:
    _, h_weight, _, _ = layer.weights()
    h_weight *= 4


def _open_the_forget_gate(layer: RecurrentLayer) -> None:
    _, _, x_bias, _ = layer.weights()
    x_bias[layer.width : 2 * layer.width] = 5.0  # the second of the gates, in PyTorch's order


def _cut_the_recurrence(layer: RecurrentLayer) -> None:
    _, h_weight, _, _ = layer.weights()
    h_weight *= 0


def _leave_the_open_gate(layer: RecurrentLayer) -> None:
    _open_the_forget_gate(layer)
    _cut_the_recurrence(layer)


SUBJECTS = {
    SMALL: Subject(_recurrent("rnn")),
    LARGE: Subject(_recurrent("rnn"), _enlarge),
    LSTM: Subject(_recurrent("lstm")),
    OPEN: Subject(_recurrent("lstm"), _open_the_forget_gate),
    GRU: Subject(_recurrent("gru")),
    TRANSFORMER: Subject(_transformer),
}
THROUGH_THE_GATE = {
    LSTM: Subject(_recurrent("lstm"), _cut_the_recurrence),
    OPEN: Subject(_recurrent("lstm"), _leave_the_open_gate),
}


def _draw(norms: Mapping[str, list[list[float]]]) -> LabFigure:
    with plot_style():
        figure = new_figure(11, 4.6)
        places = range(len(norms[SMALL][0]))
        lines = {name: over_seeds(places, runs, mean=geometric_mean) for name, runs in norms.items()}
        title, across = "norm of the gradient of the last state by a token's vector", "steps back from the last token"
        said = line_chart(figure.subplots(), lines, title=title, xlabel=across, yscale="log", markers=False)
    return LabFigure(
        "gradients",
        "By powers: how strongly the last state depends on tokens further and further back, before training. "
        "Lines are geometric means over seeds; bands reach from the lowest to the highest.",
        figure,
        f"A chart, its height by powers. {said}",
    )


def _course(factor: float) -> str:
    if abs(factor - 1) < LEVEL:
        return "stays about as it is"
    return "falls" if factor < 1 else "grows"


def _table(norms: Mapping[str, list[list[float]]], usual: Mapping[str, float]) -> LabTable:
    length = len(norms[SMALL][0])
    places = [1, *(length * part // 4 for part in (1, 2, 3)), length - 1]
    rows = [
        [name, *(format_number(geometric_mean([run[place] for run in runs])) for place in places), f"{usual[name]:.2f}"]
        for name, runs in norms.items()
    ]
    return LabTable("Norm of the gradient", ["steps back", *map(str, places), "× with each step"], rows)
