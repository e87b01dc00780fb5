"""matplotlib figures of a trace: attention weights, word alignment, head costs."""

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from numpy.typing import ArrayLike

from regard.errors import InputError
from regard.interpret.attribution import align, head_costs
from regard.interpret.forward_pass import ForwardPass
from regard.interpret.interventions import Intervention
from regard.plotting import BLUE, INK, ORANGE, new_figure, plot_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@plot_style()
def plot_attention(trace: ForwardPass, at: str | None = None) -> "Figure":
    """Plot the weights of all heads of one attention, or of one head such as `decoder.1.cross_attention[2]`.

    Without `at`, the last cross-attention, or else the last self-attention.
    """
    place = Intervention.parse(at) if at is not None else _last_attention(trace)
    name = f"{replace(place, head=None)}.weights"
    weights = trace.activation(name)  # (H, T, S)
    axes = trace.points[name].axes
    rows, columns = (trace.labels(axis) or [str(n) for n in range(weights.size(-1))] for axis in axes[1:])
    if place.head is not None and place.head >= len(weights):
        raise InputError(f"{place}: there is no head {place.head}; the heads are 0 to {len(weights) - 1}.")
    heads = [place.head] if place.head is not None else list(range(len(weights)))
    across = min(len(heads), 4)
    down = math.ceil(len(heads) / across)
    size = max(2.0, 0.24 * max(len(rows), len(columns)))
    figure = new_figure(across * (size + 0.9) + 0.4, down * (size + 0.9) + 0.5)
    for n, head in enumerate(heads):
        ax = figure.add_subplot(down, across, n + 1)
        _draw_matrix(ax, weights[head].detach().cpu().float().numpy(), rows, columns, maximum=1.0)
        ax.set_title(f"head {head}")
    figure.suptitle(f"{name}: one row per query", x=0.01, ha="left", fontsize=11)
    return figure


@plot_style()
def plot_alignment(trace: ForwardPass) -> "Figure":
    """Plot the attention of the chosen head between words, next to the cost of leaving each word out."""
    alignment = align(trace)
    rows = [word.text for word in alignment.target]
    columns = [word.text for word in alignment.source]
    size = max(2.4, 0.36 * max(len(rows), len(columns)))
    figure = new_figure(2 * (size + 1.3), size + 1.6)
    left, right = figure.subplots(1, 2)
    _draw_matrix(left, alignment.weights.numpy(), rows, columns, maximum=1.0)
    left.set_title(f"attention of {alignment.chosen.point.removesuffix('.weights')}[{alignment.chosen.head}]")
    costs = alignment.costs.clamp(min=0).numpy()
    _draw_matrix(right, costs, rows, columns, maximum=float(costs.max()) or 1.0, color=ORANGE)
    right.set_title("cost of leaving the word out, in log p")
    figure.suptitle(
        "Attention is not explanation: the right panel shows what the output depends on", x=0.01, ha="left", fontsize=11
    )
    return figure


@plot_style()
def plot_head_costs(trace: ForwardPass) -> "Figure":
    """Plot the entropy of every head and, if the network predicts something, the cost of switching it off."""
    heads = head_costs(trace)
    if not heads:
        raise InputError("This network has no attention, so it has no heads to plot.")
    costs = [head.cost for head in heads if head.cost is not None]
    panels = [("drop in log p when off", costs, BLUE)] if costs else []
    panels.append(("entropy of its attention, nats", [head.entropy for head in heads], ORANGE))
    figure = new_figure(1.2 + 3.0 * len(panels), max(2.0, 0.22 * len(heads) + 1.0))
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    positions = list(range(len(heads)))[::-1]
    axes[0].set_yticks(positions, [str(head.intervention) for head in heads])
    for ax, (title, values, color) in zip(axes, panels, strict=True):
        ax.barh(positions, values, color=color, height=0.7)
        ax.set_title(title)
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(length=0)
    return figure


def _draw_matrix(
    ax: "Axes", values: ArrayLike, rows: list[str], columns: list[str], *, maximum: float, color: str = BLUE
) -> None:
    import numpy as np
    from matplotlib.colors import LinearSegmentedColormap

    values = np.asarray(values)
    colors = LinearSegmentedColormap.from_list("weights", ["#ffffff", color])
    ax.imshow(values, cmap=colors, vmin=0, vmax=maximum, aspect="equal")
    ax.set_xticks(range(len(columns)), columns, rotation=60, ha="left", rotation_mode="anchor")
    ax.set_yticks(range(len(rows)), rows)
    ax.xaxis.tick_top()
    ax.tick_params(length=0)
    if len(rows) * len(columns) <= 400:
        for row in range(len(rows)):
            for column in range(len(columns)):
                value = float(values[row, column])
                if value >= 0.05 * maximum:
                    text_color = "white" if value > 0.55 * maximum else INK
                    ax.text(column, row, f"{value:.1f}", ha="center", va="center", fontsize=6, color=text_color)


def _last_attention(trace: ForwardPass) -> Intervention:
    points = [point for point in trace.points.values() if point.point == "weights"]
    if not points:
        raise InputError("This network has no attention, so it has no weights to plot.")
    cross = [point for point in points if point.part == "cross_attention"]
    last = (cross or points)[-1]
    return Intervention(last.stack, last.layer, last.part)
