"""A surface as a map: lines of equal height with their numbers, darker where it is lower."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from regard.drawing.palette import SOFT

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# nearly the palette's blue, paper and ink, which a browser in the dark would exchange: a map is the same at night
LOW, HIGH, MARK = "#2a6fca", "#fefefe", "#1b1c1f"


def contours(ax: "Axes", heights: Tensor, reach: float, levels: Sequence[float], *, title: str) -> None:
    """Draw heights (G, G) over a square from −reach to reach; what is above the last level is left white."""
    from matplotlib.colors import LinearSegmentedColormap

    size = len(heights)
    places = [reach * (2 * n / (size - 1) - 1) for n in range(size)]
    shades = LinearSegmentedColormap.from_list("depth", [LOW, HIGH])
    colours = [shades(n / len(levels)) for n in range(len(levels) + 1)]
    values = heights.clamp(max=levels[-1] * 10).tolist()
    ax.contourf(places, places, values, levels=[-1.0, *levels, levels[-1] * 11], colors=colours)
    lines = ax.contour(places, places, values, levels=levels, colors=SOFT, linewidths=0.7)
    for name in ax.clabel(lines, fontsize=7, colors=MARK, fmt=lambda level: f"{level:g}"):
        name.set_clip_on(True)
    ax.plot([0], [0], marker="+", color=MARK, markersize=8)
    ax.set_aspect("equal")
    ax.set_xticks([-reach, 0, reach])
    ax.set_yticks([-reach, 0, reach])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set_title(title)
