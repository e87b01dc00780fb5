"""Figures of recurrent networks with the numbers of one text: an LSTM cell with its gates, and a network unrolled.

The numbers are those of a trace. Without a model of your own, `seeded_language_model` is a small untrained one.

T steps · W width of a state
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.config import Config, RecurrentLanguageModelConfig, TokenizerConfig
from regard.data.tokenizer import WORD_START, train_tokenizer
from regard.errors import InputError
from regard.interpret.decode import TracedModel
from regard.interpret.forward_pass import ForwardPass
from regard.interpret.predictions import Step, decoding_steps
from regard.models import build
from regard.nn.taps import Point
from regard.plotting import BLUE, FAINT, GREEN, INK, ORANGE, PAPER, PURPLE, SOFT, new_figure, plot_style, value_grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN_NUMBERS = 4  # of a vector
MAX_STEPS = 12  # of an unrolled network
GATES = ("forget_gate", "input_gate", "output_gate")
MONOSPACE = "DejaVu Sans Mono"


def seeded_language_model(text: str, cell: str) -> TracedModel:
    """Return an untrained language model of width 4 whose vocabulary is the words of a text, always the same."""
    tokenizer = train_tokenizer([text], TokenizerConfig(kind="word"))
    model = RecurrentLanguageModelConfig.model_validate(
        {"vocab_size": len(tokenizer), "width": 4, "layers": 1, "cell": cell, "dropout": 0.0}
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = build(model).eval()
    return TracedModel(network, Config(model=model), tokenizer, tokenizer, f"untrained {cell.upper()} of width 4")


# --- LSTM cell --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CellValues:
    """The numbers of an LSTM cell at all steps of a text; `before` are the states that each step starts from."""

    layer: str  # decoder.0.forwards
    tokens: list[str]
    x: Tensor  # (T, C) inputs
    gates: dict[str, Tensor]  # (T, W) each: forget, input and output gate
    candidate: Tensor  # (T, W)
    cell: Tensor  # (T, W)
    hidden: Tensor  # (T, W)
    cell_before: Tensor  # (T, W); NaN in a first step that starts from the encoder's state
    hidden_before: Tensor  # (T, W)


def lstm_values(trace: ForwardPass, at: str | None = None) -> CellValues:
    """Return the numbers of one LSTM layer, such as `decoder.0.forwards`; by default of the first."""
    places = [_place(point) for point in trace.points.values() if point.point == "forget_gate"]
    if not places:
        raise InputError("This network has no LSTM, so it has no gates to plot; train one with model.cell = 'lstm'.")
    layer = at or places[0]
    if layer not in places:
        raise InputError(f"{layer}: is not an LSTM layer of this network; the layers are {', '.join(places)}.")
    stack, number, direction = layer.split(".")
    values = {
        name: trace.activation(f"{layer}.{name}").float().cpu() for name in (*GATES, "candidate", "cell", "hidden")
    }
    from_encoder = stack == "decoder" and trace.source is not None
    backwards = direction == "backwards"
    tokens = trace.labels("source" if stack == "encoder" else "target") or []
    return CellValues(
        layer,
        [token.removeprefix(WORD_START) or token for token in tokens],
        _inputs(trace, stack, int(number)),
        {name: values[name] for name in GATES},
        values["candidate"],
        values["cell"],
        values["hidden"],
        _before(values["cell"], backwards, from_encoder),
        _before(values["hidden"], backwards, from_encoder),
    )


def _place(point: Point) -> str:
    return point.name.rpartition(".")[0]


def _inputs(trace: ForwardPass, stack: str, layer: int) -> Tensor:
    """The embeddings, or the states of both directions of the layer below."""
    if layer == 0:
        return trace.activation(f"{stack}.embedding.sum").float().cpu()
    below = [f"{stack}.{layer - 1}.{direction}.hidden" for direction in ("forwards", "backwards")]
    return torch.cat([trace.activation(name).float().cpu() for name in below if name in trace.points], dim=-1)


def _before(states: Tensor, backwards: bool, from_encoder: bool) -> Tensor:
    """The states one step earlier; the first step starts from zero, or from the encoder, whose state is not here."""
    first = states.new_full((1, states.size(1)), math.nan if from_encoder else 0.0)
    return torch.cat([states[1:], first]) if backwards else torch.cat([first, states[:-1]])


@plot_style()
def plot_lstm(trace: ForwardPass, at: str | None = None, step: int | None = None) -> "Figure":
    """Plot an LSTM cell with its gates and the numbers of one step, and the gates at all tokens below it."""
    values = lstm_values(trace, at)
    count = len(values.tokens)
    step = count - 1 if step is None else step
    if not 0 <= step < count:
        raise InputError(f"--step {step}: there is no such step; the steps are 0 to {count - 1}.")
    figure = new_figure(max(11.0, 1.0 * count + 2), 8.6)
    upper, lower = figure.subplots(2, 1, height_ratios=[3.3, 1.0])
    _draw_cell(upper, values, step)
    _draw_gates(lower, values, step)
    title = f"LSTM cell at {values.tokens[step]!r}, step {step} of {values.layer} in {trace.model.name}"
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure


def _draw_cell(ax: "Axes", values: CellValues, step: int) -> None:
    from matplotlib.patches import FancyBboxPatch

    ax.set_xlim(0, 14)
    ax.set_ylim(0, 7.4)
    ax.axis("off")
    style = "round,pad=0,rounding_size=0.3"
    ax.add_patch(FancyBboxPatch((2.4, 1.1), 9.2, 5.6, style, facecolor="none", edgecolor=SOFT, linewidth=1.2))
    forget, enter, leave = (values.gates[name][step] for name in GATES)
    bus, line = 1.7, 6.0
    for points in (
        [(1.3, line), (3.6, line), (6.7, line), (12.7, line)],  # cell state
        [(1.3, bus), (9.3, bus)],  # hidden state and input, to all gates
        [(2.9, 0.75), (2.9, bus)],
    ):
        _arrow(ax, points)
    for x in (3.6, 5.5, 7.9, 9.3):
        _arrow(ax, [(x, bus), (x, 2.5)])
    _arrow(ax, [(3.6, 3.0), (3.6, line - 0.2)])
    _arrow(ax, [(5.5, 3.0), (5.5, 4.5), (6.5, 4.5)])
    _arrow(ax, [(7.9, 3.0), (7.9, 4.5), (6.9, 4.5)])
    _arrow(ax, [(6.7, 4.7), (6.7, line - 0.2)])
    _arrow(ax, [(10.8, line), (10.8, 5.25)])
    _arrow(ax, [(10.8, 4.75), (10.8, 3.9)])
    _arrow(ax, [(9.3, 3.0), (9.3, 3.7), (10.6, 3.7)])
    _arrow(ax, [(10.8, 3.5), (10.8, bus), (12.7, bus)])
    for x, y, sign in ((3.6, line, "×"), (6.7, line, "+"), (6.7, 4.5, "×"), (10.8, 3.7, "×")):
        _circle(ax, x, y, sign)
    gates = ((3.6, "σ", "forget gate f", ORANGE), (5.5, "σ", "input gate i", BLUE), (9.3, "σ", "output gate o", PURPLE))
    for x, function, name, color in (*gates, (7.9, "tanh", "candidate C̃", GREEN)):
        _box(ax, x, 2.75, function, color, size=11)
        ax.text(x, 2.1, name, ha="center", va="center", fontsize=8, color=INK, bbox=_PAPER_BOX)
    _box(ax, 10.8, 5.0, "tanh", SOFT, size=11)
    _numbers(ax, 3.75, 4.35, forget, ORANGE)
    _numbers(ax, 4.7, 3.95, enter, BLUE)
    _numbers(ax, 8.05, 3.95, values.candidate[step], GREEN)
    _numbers(ax, 9.45, 4.45, leave, PURPLE)
    for x, y, name, vector in (
        (0.65, line, "C before", values.cell_before[step]),
        (13.3, line, "C = f·C + i·C̃", values.cell[step]),
        (0.65, bus, "h before", values.hidden_before[step]),
        (13.3, bus, "h = o·tanh(C)", values.hidden[step]),
    ):
        ax.text(x, y + 0.6, name, ha="center", va="center", fontsize=9, color=INK)
        _numbers(ax, x, y, vector, INK, centered=True)
    ax.text(2.9, 0.45, f"x: {values.tokens[step]}", ha="center", va="center", fontsize=9, color=INK)
    _numbers(ax, 3.6, 0.45, values.x[step], INK, across=True)


def _draw_gates(ax: "Axes", values: CellValues, step: int) -> None:
    """The mean of each gate over units, and the norms of both states, at every token."""
    rows = {name.replace("_", " "): gate.mean(-1) for name, gate in values.gates.items()}
    norms = {"|C|": values.cell.norm(dim=-1), "|h|": values.hidden.norm(dim=-1)}
    shades = [*(row.tolist() for row in rows.values()), *((row / (row.max() or 1)).tolist() for row in norms.values())]
    texts = [[f"{value:.2f}" for value in row.tolist()] for row in (*rows.values(), *norms.values())]
    names, columns = [*rows, *norms], [f"{token}" for token in values.tokens]
    value_grid(ax, shades, names, columns, title="", texts=texts)
    ax.tick_params(axis="x", labelsize=8, rotation=60 if len(columns) > 14 else 0)
    ax.axvspan(step, step + 1, facecolor="none", edgecolor=ORANGE, linewidth=1.6)
    ax.set_xlabel("mean of each gate over units, and norm of each state", labelpad=4)


# --- unrolled network -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class UnrolledNetwork:
    """The states of a recurrent network at each step, and what it predicts from them."""

    cell: str  # rnn, lstm or gru
    layer: str
    hidden: Tensor  # (T, W)
    steps: list[Step]
    start: str  # what the first step starts from

    @property
    def losses(self) -> list[float]:
        """−log p of the next token at each step."""
        return [-step.log_probability for step in self.steps]


def unrolled_network(trace: ForwardPass) -> UnrolledNetwork:
    """Return the last layer of a recurrent decoder, step by step."""
    layers = [_place(point) for point in trace.points.values() if point.point == "hidden" and point.part == "forwards"]
    layers = [layer for layer in layers if layer.startswith("decoder")]
    if not layers:
        raise InputError("This network has no recurrent decoder to unroll; pass a recurrent model, or only a text.")
    steps = decoding_steps(trace)
    if len(steps) > MAX_STEPS:
        raise InputError(f"The text has {len(steps)} steps, and the figure has room for {MAX_STEPS}; shorten it.")
    hidden = trace.activation(f"{layers[-1]}.hidden").float().cpu()
    start = "0" if trace.source is None else "encoder"
    return UnrolledNetwork(str(getattr(trace.model.config.model, "cell", "")), layers[-1], hidden, steps, start)


@plot_style()
def plot_graph(trace: ForwardPass) -> "Figure":
    """Plot a recurrent network unrolled as a computational graph: inputs, states, predictions and losses."""
    network = unrolled_network(trace)
    count, losses = len(network.steps), network.losses
    figure = new_figure(1.5 * count + 1.6, 5.4)
    ax = figure.subplots()
    ax.set_xlim(-1.2, count - 0.5)
    ax.set_ylim(-0.75, 4.9)
    ax.axis("off")
    _box(ax, -0.95, 1.3, f"h₀\n{network.start}", SOFT)
    for n, step in enumerate(network.steps):
        vector = "\n".join(f"{value: .2f}" for value in network.hidden[n][:SHOWN_NUMBERS].tolist())
        more = "\n   …" if network.hidden.size(1) > SHOWN_NUMBERS else ""
        _box(ax, n, 1.3, f"h{_subscript(n + 1)}\n{vector}{more}".replace("-", "−"), BLUE, font=MONOSPACE)
        _box(ax, n, 0.0, f"x{_subscript(n + 1)}\n{_word(step.input_token)}", SOFT)
        _box(ax, n, 2.75, f"y{_subscript(n + 1)}: {_word(step.token)}\np {step.probability:.3f}", GREEN)
        _box(ax, n, 3.75, f"L{_subscript(n + 1)} {losses[n]:.2f}", ORANGE)
        _arrow(ax, [(n, 0.24), (n, 0.86)], label="W_xh")
        _arrow(ax, [(n, 1.74), (n, 2.52)], label="W_hy")
        _arrow(ax, [(n, 2.98), (n, 3.6)])
        _arrow(ax, [(n - 0.82, 1.3), (n - 0.19, 1.3)], label="W_hh", above=True)
        _arrow(ax, [(n, 3.9), (n, 4.45)], head=False)
    ax.plot([0, count - 1], [4.45, 4.45], color=SOFT, linewidth=1.2)
    mean = math.fsum(losses) / count
    ax.text((count - 1) / 2, 4.62, f"loss = mean of all L = {mean:.2f}", ha="center", va="bottom", fontsize=10)
    ax.text(-0.95, -0.6, "The weights W_xh, W_hh and W_hy are the same at every step.", fontsize=9, color=SOFT)
    title = f"{network.cell.upper()} unrolled: {network.layer} of {trace.model.name}"
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure


# --- shapes -----------------------------------------------------------------------------------------------------------

_PAPER_BOX = {"boxstyle": "round,pad=0.12", "facecolor": PAPER, "edgecolor": "none"}


def _word(token: str) -> str:
    return token.removeprefix(WORD_START) or token


def _subscript(number: int) -> str:
    return "".join("₀₁₂₃₄₅₆₇₈₉"[int(digit)] for digit in str(number))


def _arrow(
    ax: "Axes", points: list[tuple[float, float]], *, label: str = "", above: bool = False, head: bool = True
) -> None:
    """Draw a line through points with an arrow head at its end."""
    xs, ys = zip(*points, strict=True)
    ax.plot(xs[:-1], ys[:-1], color=SOFT, linewidth=1.2, zorder=0)
    style = "-|>" if head else "-"
    arrow = {"arrowstyle": style, "color": SOFT, "linewidth": 1.2, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 9}
    ax.annotate("", xy=points[-1], xytext=points[-2], arrowprops=arrow, zorder=0)
    if label:
        (x0, y0), (x1, y1) = points[0], points[-1]
        offset = (0.0, 0.13) if above else (0.06, 0.0)
        align = "center" if above else "left"
        x, y = (x0 + x1) / 2 + offset[0], (y0 + y1) / 2 + offset[1]
        ax.text(x, y, label, ha=align, va="center", fontsize=7, color=SOFT)


def _box(ax: "Axes", x: float, y: float, text: str, color: str, *, font: str | None = None, size: float = 8) -> None:
    box = {"boxstyle": "round,pad=0.4", "facecolor": PAPER, "edgecolor": color, "linewidth": 1.4}
    ax.text(x, y, text, ha="center", va="center", fontsize=size, color=INK, bbox=box, family=font)


def _circle(ax: "Axes", x: float, y: float, sign: str) -> None:
    box = {"boxstyle": "circle,pad=0.25", "facecolor": FAINT, "edgecolor": SOFT, "linewidth": 1.0}
    ax.text(x, y, sign, ha="center", va="center", fontsize=11, color=INK, bbox=box)


def _numbers(
    ax: "Axes", x: float, y: float, vector: Tensor, color: str, *, centered: bool = False, across: bool = False
) -> None:
    """Write the first numbers of a vector, one below the other or `across`."""
    numbers = [f"{value: .2f}".replace("-", "−") for value in vector[:SHOWN_NUMBERS].tolist()]
    if any("nan" in number for number in numbers):
        numbers = ["of the", "encoder"]
    elif len(vector) > SHOWN_NUMBERS:
        numbers.append(" …")
    text = " ".join(numbers) if across else "\n".join(numbers)
    align = "center" if centered else "left"
    ax.text(x, y, text, ha=align, va="center", fontsize=7.5, color=color, family=MONOSPACE, bbox=_PAPER_BOX)
