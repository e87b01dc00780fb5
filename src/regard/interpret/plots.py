"""Pictures of a trace, by matplotlib: attention weights, the alignment of words, what all heads are worth."""

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from regard.errors import InputError
from regard.interpret.ablation import Change
from regard.interpret.heads import heads as all_heads
from regard.interpret.trace import Trace
from regard.plotting import BLUE, INK, ORANGE, new_figure, plot_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@plot_style()
def attention(trace: Trace, at: str | None = None) -> "Figure":
    """The weights of all heads of one attention, or of one head: `decoder.1.cross_attention[2]`.

    Without a place, the last cross-attention, else the last self-attention.
    """
    place = Change.parse(at) if at is not None else _last(trace)
    name = f"{replace(place, head=None)}.weights"
    weights = trace.whole(name)  # (H, T, S)
    axes = trace.points[name].axes
    rows, columns = (trace.labels(axis) or [str(n) for n in range(weights.size(-1))] for axis in axes[1:])
    if place.head is not None and place.head >= len(weights):
        raise InputError(f"{place}: there is no head {place.head}; the heads are 0 to {len(weights) - 1}.")
    shown = [place.head] if place.head is not None else list(range(len(weights)))
    across = min(len(shown), 4)
    down = math.ceil(len(shown) / across)
    size = max(2.0, 0.24 * max(len(rows), len(columns)))
    figure = new_figure(across * (size + 0.9) + 0.4, down * (size + 0.9) + 0.5)
    for n, head in enumerate(shown):
        ax = figure.add_subplot(down, across, n + 1)
        _matrix(ax, weights[head].detach().cpu().float().numpy(), rows, columns, most=1.0)
        ax.set_title(f"head {head}")
    figure.suptitle(f"{name}: row by row, where each token looks", x=0.01, ha="left", fontsize=11)
    return figure


@plot_style()
def alignment(trace: Trace) -> "Figure":
    """What the chosen head looks at, word by word, beside what leaving each word out costs."""
    found = trace.alignment()
    rows = [word.text for word in found.target]
    columns = [word.text for word in found.source]
    size = max(2.4, 0.36 * max(len(rows), len(columns)))
    figure = new_figure(2 * (size + 1.3), size + 1.6)
    left, right = figure.subplots(1, 2)
    _matrix(left, found.weights.numpy(), rows, columns, most=1.0)
    left.set_title(f"attention of {found.chosen.point.removesuffix('.weights')}[{found.chosen.head}]")
    costs = found.costs.clamp(min=0).numpy()
    _matrix(right, costs, rows, columns, most=float(costs.max()) or 1.0, colour=ORANGE)
    right.set_title("cost of leaving the word out, in log p")
    figure.suptitle(
        "Attention is not explanation: what the output depends on is on the right", x=0.01, ha="left", fontsize=11
    )
    return figure


@plot_style()
def heads(trace: Trace) -> "Figure":
    """Every head by how spread its attention is, and by what it costs to switch it off where something is predicted."""
    found = all_heads(trace)
    if not found:
        raise InputError("This network has no attention, so it has no heads to plot.")
    costs = [head.cost for head in found if head.cost is not None]
    drawn = [("log p lost when it is off", costs, BLUE)] if costs else []
    drawn.append(("entropy of its attention, nats", [head.entropy for head in found], ORANGE))
    figure = new_figure(1.2 + 3.0 * len(drawn), max(2.0, 0.22 * len(found) + 1.0))
    panels = figure.subplots(1, len(drawn), sharey=True, squeeze=False)[0]
    places = list(range(len(found)))[::-1]
    panels[0].set_yticks(places, [str(head.change) for head in found])
    for ax, (title, values, colour) in zip(panels, drawn, strict=True):
        ax.barh(places, values, color=colour, height=0.7)
        ax.set_title(title)
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(length=0)
    return figure


def _matrix(ax: Any, values: Any, rows: list[str], columns: list[str], *, most: float, colour: str = BLUE) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    shades = LinearSegmentedColormap.from_list("share", ["#ffffff", colour])
    ax.imshow(values, cmap=shades, vmin=0, vmax=most, aspect="equal")
    ax.set_xticks(range(len(columns)), columns, rotation=60, ha="left", rotation_mode="anchor")
    ax.set_yticks(range(len(rows)), rows)
    ax.xaxis.tick_top()
    ax.tick_params(length=0)
    if len(rows) * len(columns) <= 400:
        for row in range(len(rows)):
            for column in range(len(columns)):
                value = float(values[row, column])
                if value >= 0.05 * most:
                    shade = "white" if value > 0.55 * most else INK
                    ax.text(column, row, f"{value:.1f}", ha="center", va="center", fontsize=6, color=shade)


def _last(trace: Trace) -> Change:
    names = [point for point in trace.points.values() if point.point == "weights"]
    if not names:
        raise InputError("This network has no attention, so it has no weights to plot.")
    across = [point for point in names if point.part == "cross_attention"]
    last = (across or names)[-1]
    return Change(last.stack, last.layer, last.part)
