"""Names at the ends of lines, instead of a legend that must be looked up."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GAP = 0.045  # between two names, as a share of the height


def name_ends(
    ax: "Axes", ends: Sequence[tuple[float, float]], names: Sequence[str], colours: Sequence[str], gap: float = GAP
) -> None:
    """Write each name to the right of the axes, at the height where its line ends."""
    ax.autoscale_view()  # which matplotlib would do only when it draws
    across = ax.transAxes.inverted()
    heights = [float(across.transform(ax.transData.transform(end))[1]) for end in ends]
    for name, colour, height in zip(names, colours, apart(heights, gap), strict=True):
        ax.annotate(name, (1.01, height), xycoords="axes fraction", va="center", color=colour)


def apart(heights: Sequence[float], gap: float = GAP) -> list[float]:
    """Heights moved as little as need be so that no two names lie on each other, in the order that they have.

    >>> apart([0.5, 0.5, 0.9], gap=0.1)
    [0.45, 0.55, 0.9]
    """
    order = sorted(range(len(heights)), key=lambda n: heights[n])
    groups: list[tuple[float, list[int]]] = []  # the middle of those that touch, and who they are
    for n in order:
        groups.append((heights[n], [n]))
        while len(groups) > 1 and _top(groups[-2], gap) + gap > _bottom(groups[-1], gap) + 1e-9:
            (_, low), (_, high) = groups[-2:]
            both = low + high
            groups[-2:] = [(sum(heights[m] for m in both) / len(both), both)]
    moved = [0.0] * len(heights)
    for group in groups:
        for place, n in enumerate(group[1]):
            moved[n] = round(_bottom(group, gap) + place * gap, 6)
    return moved


def _bottom(group: tuple[float, list[int]], gap: float) -> float:
    return group[0] - gap * (len(group[1]) - 1) / 2


def _top(group: tuple[float, list[int]], gap: float) -> float:
    return group[0] + gap * (len(group[1]) - 1) / 2
