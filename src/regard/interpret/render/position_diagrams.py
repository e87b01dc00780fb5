"""Figures of position schemes: the vectors that are added to embeddings, or what is added to the scores.

The numbers come from the hooks of the scheme that networks run.

T positions · D width of a query or key · C model width · H heads
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.config import TransformerConfig
from regard.errors import InputError
from regard.models import Network
from regard.nn import Positions, SelfAttention, Stack, make_layout
from regard.plotting import BLUE, GREEN, INK, ORANGE, SOFT, heat_map, new_figure, plot_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN_HEADS = 4


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
