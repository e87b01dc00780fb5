"""A surface as a map: lines of equal height with their numbers, darker where it is lower."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from regard.drawing.palette import SOFT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.contour import QuadContourSet

# nearly the palette's blue, paper and ink, which a browser in the dark would exchange: a map is the same at night
LOW, HIGH, MARK = "#2a6fca", "#fefefe", "#1b1c1f"
INNER = 0.85  # of the map: a number nearer to its border would be cut
TURN = math.radians(110)  # from the number of one line to that of the next, so that they do not stand side by side


def contours(ax: "Axes", heights: Tensor, reach: float, levels: Sequence[float], *, edge: float, title: str) -> None:
    """Draw heights (G, G) over a square from −reach to reach; what is above the last level is left white.

    A thick line runs at the height `edge`.
    """
    from matplotlib.colors import LinearSegmentedColormap

    size = len(heights)
    places = [reach * (2 * n / (size - 1) - 1) for n in range(size)]
    shades = LinearSegmentedColormap.from_list("depth", [LOW, HIGH])
    colours = [shades(n / len(levels)) for n in range(len(levels) + 1)]
    values = heights.clamp(max=levels[-1] * 10).tolist()
    ax.contourf(places, places, values, levels=[-1.0, *levels, levels[-1] * 11], colors=colours)
    lines = ax.contour(places, places, values, levels=levels, colors=SOFT, linewidths=0.7)
    ax.contour(places, places, values, levels=[edge], colors=MARK, linewidths=1.6)
    ax.clabel(lines, fontsize=7, colors=MARK, fmt=lambda level: f"{level:g}", manual=_where_numbers_fit(lines, reach))
    ax.plot([0], [0], marker="+", color=MARK, markersize=8)
    ax.set_aspect("equal")
    ax.set_xticks([-reach, 0, reach])
    ax.set_yticks([-reach, 0, reach])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set_title(title)


def _where_numbers_fit(lines: "QuadContourSet", reach: float) -> list[tuple[float, float]]:
    """A point of each line, away from the border if it has one there, each in another direction from the middle."""
    found = []
    for n, pieces in enumerate(lines.allsegs):
        points = [(float(x), float(y)) for piece in pieces for x, y in piece]
        inside = [point for point in points if max(map(abs, point)) < INNER * reach]
        if inside:
            found.append(max(inside, key=lambda point: math.cos(math.atan2(point[1], point[0]) - n * TURN)))
    return found
