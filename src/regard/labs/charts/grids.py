"""Charts on a grid: matrices with labeled cells, heat maps of signed values, and contour maps of a surface."""

import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from regard.plotting import BLUE, FAINT, INK, ORANGE, PAPER, SOFT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.contour import QuadContourSet

# Close to the colors of the palette but not equal: a dark-mode browser swaps the palette's colors, not these. The two
# colors of the heat map differ in brightness too, so that they can be distinguished in grayscale.
HEAT_NEGATIVE, HEAT_ZERO, HEAT_POSITIVE = "#f0a57c", "#fefefe", "#123f80"
CONTOUR_LOW, CONTOUR_HIGH, CONTOUR_MARK = "#2a6fca", "#fefefe", "#1b1c1f"
LABEL_AREA = 0.85  # fraction of a contour map inside which labels are not cut off
LABEL_TURN = math.radians(110)  # angle between the labels of two contour lines, to keep them apart


def matrix(
    ax: "Axes",
    values: Sequence[Sequence[float]],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    title: str,
    framed: Collection[tuple[int, int]] = (),
    texts: Sequence[Sequence[str]] = (),
) -> None:
    """Draw a matrix of values from 0 to 1, darker is larger; `framed` are (row, column), `texts` go into the cells."""
    from matplotlib.patches import Rectangle

    for i, row in enumerate(values):
        for j, value in enumerate(row):
            alpha = min(1.0, max(0.0, value))  # one shape per cell, not an image: it follows dark mode
            ax.add_patch(Rectangle((j, i), 1, 1, facecolor=BLUE, alpha=alpha, linewidth=0))
            ax.add_patch(Rectangle((j, i), 1, 1, fill=False, edgecolor=FAINT, linewidth=0.6))
    for i, j in framed:
        ax.add_patch(Rectangle((j + 0.06, i + 0.06), 0.88, 0.88, fill=False, edgecolor=ORANGE, linewidth=1.6))
    for i, row_texts in enumerate(texts):
        for j, text in enumerate(row_texts):
            ax.text(j + 0.5, i + 0.5, text, ha="center", va="center", color=PAPER if values[i][j] > 0.7 else INK)
    ax.set_xlim(0, len(columns))
    ax.set_ylim(len(rows), 0)
    ax.set_aspect("equal")
    ax.set_xticks([n + 0.5 for n in range(len(columns))], columns, rotation=60, ha="right", rotation_mode="anchor")
    ax.set_yticks([n + 0.5 for n in range(len(rows))], rows)
    _hide_frame(ax, title)


def heat_map(ax: "Axes", values: Tensor, rows: Sequence[str], *, title: str, limit: float = 1.0) -> None:
    """Draw signed values (R, C) as colored squares: orange below zero, blue above; clipped at ±`limit`."""
    from matplotlib.colors import LinearSegmentedColormap

    shades = LinearSegmentedColormap.from_list("signed", [HEAT_NEGATIVE, HEAT_ZERO, HEAT_POSITIVE])
    # squares, not an image: an image inside an SVG would be a separate resource to a browser
    ax.pcolormesh(values.tolist(), cmap=shades, vmin=-limit, vmax=limit, edgecolors="white", linewidth=0.5)
    ax.set_yticks([row + 0.5 for row in range(len(rows))], rows)
    ax.set_xticks([])
    ax.invert_yaxis()
    _hide_frame(ax, title)


def contour_map(
    ax: "Axes", heights: Tensor, extent: float, levels: Sequence[float], *, highlight: float, title: str
) -> None:
    """Draw heights (G, G) over a square from −extent to extent as contour lines, darker is lower.

    Above the last level the map is white. A thick line marks the height `highlight`.
    """
    from matplotlib.colors import LinearSegmentedColormap

    size = len(heights)
    coordinates = [extent * (2 * n / (size - 1) - 1) for n in range(size)]
    shades = LinearSegmentedColormap.from_list("depth", [CONTOUR_LOW, CONTOUR_HIGH])
    colors = [shades(n / len(levels)) for n in range(len(levels) + 1)]
    values = heights.clamp(max=levels[-1] * 10).tolist()
    ax.contourf(coordinates, coordinates, values, levels=[-1.0, *levels, levels[-1] * 11], colors=colors)
    lines = ax.contour(coordinates, coordinates, values, levels=levels, colors=SOFT, linewidths=0.7)
    ax.contour(coordinates, coordinates, values, levels=[highlight], colors=CONTOUR_MARK, linewidths=1.6)
    ax.clabel(
        lines, fontsize=7, colors=CONTOUR_MARK, fmt=lambda level: f"{level:g}", manual=_label_points(lines, extent)
    )
    ax.plot([0], [0], marker="+", color=CONTOUR_MARK, markersize=8)
    ax.set_aspect("equal")
    ax.set_xticks([-extent, 0, extent])
    ax.set_yticks([-extent, 0, extent])
    _hide_frame(ax, title)


def _label_points(lines: "QuadContourSet", extent: float) -> list[tuple[float, float]]:
    """Return a point for the label of each line: inside the label area, each in another direction from the center."""
    labels = []
    for n, segments in enumerate(lines.allsegs):
        points = [(float(x), float(y)) for segment in segments for x, y in segment]
        inside = [point for point in points if max(map(abs, point)) < LABEL_AREA * extent]
        if inside:
            labels.append(max(inside, key=lambda point: math.cos(math.atan2(point[1], point[0]) - n * LABEL_TURN)))
    return labels


def _hide_frame(ax: "Axes", title: str) -> None:
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set_title(title)
