"""matplotlib figures of a trace (attention weights, word alignment, head costs) and of position schemes.

A position scheme is shown by the vectors that are added to embeddings, or by what is added to the scores. These numbers
come from the hooks of the scheme that networks run.

T positions · D width of a query or key · C model width · H heads
"""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from regard.config import TransformerConfig
from regard.errors import InputError
from regard.interpret.attribution import align, head_costs
from regard.interpret.forward_pass import ForwardPass
from regard.interpret.interventions import Intervention
from regard.models import Network
from regard.nn import Positions, SelfAttention, Stack, make_layout
from regard.plotting import BLUE, GREEN, INK, ORANGE, SOFT, heat_map, new_figure, plot_style, value_grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN_HEADS = 4
MAX_NUMBERS = 400  # cells of a matrix that has numbers in them


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
        _draw_matrix(ax, weights[head].detach().cpu().float().numpy(), rows, columns, title=f"head {head}", maximum=1.0)
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
    title = f"attention of {alignment.chosen.point.removesuffix('.weights')}[{alignment.chosen.head}]"
    _draw_matrix(left, alignment.weights.numpy(), rows, columns, title=title, maximum=1.0)
    costs = alignment.costs.clamp(min=0).numpy()
    title, largest = "cost of leaving the word out, in log p", float(costs.max()) or 1.0
    _draw_matrix(right, costs, rows, columns, title=title, maximum=largest, color=ORANGE)
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
    ax: "Axes",
    values: ArrayLike,
    rows: list[str],
    columns: list[str],
    *,
    title: str,
    maximum: float,
    color: str = BLUE,
) -> None:
    """Draw weights as a grid of cells, with numbers where there is room for them."""
    import numpy as np

    values = np.asarray(values, dtype=float)
    has_numbers = values.size <= MAX_NUMBERS
    texts = [[f"{value:.1f}" if value >= 0.05 * maximum else "" for value in row] for row in values]
    shades = (values / maximum).tolist()
    value_grid(ax, shades, rows, columns, title=title, texts=texts if has_numbers else (), color=color, font_size=6)
    ax.set_aspect("equal")
    ax.tick_params(axis="x", rotation=60)
    for label in ax.get_xticklabels():
        label.set(ha="left", rotation_mode="anchor")


def _last_attention(trace: ForwardPass) -> Intervention:
    points = [point for point in trace.points.values() if point.point == "weights"]
    if not points:
        raise InputError("This network has no attention, so it has no weights to plot.")
    cross = [point for point in points if point.part == "cross_attention"]
    last = (cross or points)[-1]
    return Intervention(last.stack, last.layer, last.part)


@dataclass(frozen=True)
class PositionEffects:
    """What a position scheme does at each position; None where it does nothing."""

    vectors: Tensor | None  # (T, C) added to the embeddings
    products: Tensor | None  # (T, T) rotated query · rotated key, for equal vectors of length 1
    biases: Tensor | None  # (H, T, T) added to the scaled scores of a query of ones


@torch.no_grad()
def position_effects(positions: Positions, layer: Positions, model: TransformerConfig, length: int) -> PositionEffects:
    """Return what the hooks of a scheme do in a row of `length` tokens; `layer` is its object in one layer."""
    layout = make_layout(torch.zeros(1, length, dtype=torch.long))
    zeros = torch.zeros(1, length, model.width)
    vectors = positions.embed(zeros, layout.queries)[0]
    size = model.key_width or model.head_width
    ones = torch.ones(1, model.heads, length, size)
    rotated = layer.rotate(ones / math.sqrt(size), layout.queries)
    bias = layer.bias(ones, layout)
    return PositionEffects(
        vectors if bool(vectors.any()) else None,
        (rotated @ rotated.mT)[0, 0] if not torch.equal(rotated, ones / math.sqrt(size)) else None,
        None if bias is None else bias.expand(1, model.heads, length, length)[0],
    )


def build_positions(model: TransformerConfig) -> tuple[Positions, Positions]:
    """Build the position scheme of these settings with seeded weights, and its object in one layer."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        positions: Positions = model.positions.build(model, encoder=True)
        key_width = model.key_width or model.head_width
        return positions, positions.for_layer(model.heads, key_width, model.head_width, 1 / math.sqrt(key_width))


@plot_style()
def plot_positions(model: TransformerConfig, length: int, built: tuple[Positions, Positions] | None = None) -> "Figure":
    """Plot the position vectors of a scheme as a heat map, or what it adds to the scores.

    `built` are the scheme of a network and its object in the first layer; by default they are built from the settings.
    """
    kind = model.positions.kind
    if model.positions.needs_parses:
        raise InputError(f"Positions of the kind {kind} depend on a parse, not on the place alone; plot another kind.")
    effects = position_effects(*(built or build_positions(model)), model, length)
    if effects.vectors is not None:
        return _vectors_figure(effects.vectors, kind)
    panels: list[tuple[str, Tensor]] = []
    if effects.products is not None:
        panels.append(("rotated query · rotated key, equal before", effects.products))
    if effects.biases is not None:
        same = bool((effects.biases == effects.biases[:1]).all())
        shown = effects.biases[: 1 if same else SHOWN_HEADS]
        panels += [(f"added to scaled scores, {'all heads' if same else f'head {n}'}", b) for n, b in enumerate(shown)]
    if not panels:
        raise InputError(f"Positions of the kind {kind} add nothing, so there is nothing to plot; choose another kind.")
    figure = new_figure(max(4.5, 3.4 * len(panels)), 3.9)
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for ax, (title, values) in zip(axes, panels, strict=True):
        heat_map(ax, values.tolist(), title=title, xlabel="position of the key", ylabel="position of the query")
    figure.suptitle(f"{kind} positions: {length} positions", x=0.01, ha="left", fontsize=11)
    return figure


def _vectors_figure(vectors: Tensor, kind: str) -> "Figure":
    length, width = vectors.shape
    figure = new_figure(9, 6.4)
    upper, lower = figure.subplots(2, 1, height_ratios=[2.2, 1])
    heat_map(
        upper,
        vectors.tolist(),
        title="the vector of each position is added to its embedding",
        xlabel="dimension",
        ylabel="position",
    )
    upper.set_aspect("auto")
    shown = sorted({min(width - 1, n) for n in (0, 1, width // 8, width // 4, width // 2)})
    for n, color in zip(shown, (BLUE, ORANGE, GREEN, SOFT, INK), strict=False):
        lower.plot(range(length), vectors[:, n].tolist(), color=color, label=f"dimension {n}", linewidth=1.2)
    lower.set_xlabel("position")
    lower.spines[["top", "right"]].set_visible(False)
    lower.legend(frameon=False, fontsize=8, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=len(shown), borderpad=0)
    figure.suptitle(f"{kind} positions: {length} positions, width {width}", x=0.01, ha="left", fontsize=11)
    return figure


def network_positions(network: Network) -> tuple[Positions, Positions]:
    """Return the position scheme of a Transformer's last stack, and its object in the first layer."""
    stack = next(part for name in ("decoder", "encoder") if isinstance(part := getattr(network, name, None), Stack))
    attention = stack.layers[0].attention
    assert isinstance(attention, SelfAttention)
    return stack.embedding.positions, attention.positions
