"""Names at the ends of lines, instead of a legend that must be looked up."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GAP = 0.045  # between two names, as a share of the height
WIDE = 7  # letters of names that stand side by side, for each inch of the axes' width


def name_ends(
    ax: "Axes", ends: Sequence[tuple[float, float]], names: Sequence[str], colours: Sequence[str], gap: float = GAP
) -> None:
    """Write each name to the right of the axes, at the height where its line ends.

    Names of lines that end at the same height stand side by side, each in its own colour.
    """
    ax.autoscale_view()  # which matplotlib would do only when it draws
    across = ax.transAxes.inverted()
    heights = [float(across.transform(ax.transData.transform(end))[1]) for end in ends]
    room = int(WIDE * ax.bbox.width / ax.figure.dpi)
    rows = together(heights, names, room, gap)
    for (_, row), height in zip(rows, apart([height for height, _ in rows], gap), strict=True):
        _side_by_side(ax, height, [names[n] for n in row], [colours[n] for n in row])


def together(
    heights: Sequence[float], names: Sequence[str], room: int, gap: float = GAP
) -> list[tuple[float, list[int]]]:
    """Which names stand side by side, and where: those at the same height, as far as the eye can tell.

    Where there is no room for the letters of all of them they have several rows, the lowest first.

    >>> together([0.101, 0.9, 0.1], ["learned", "none", "rotary"], room=20)
    [(0.1, [0, 2]), (0.9, [1])]
    """
    groups: list[list[int]] = []
    for n in sorted(range(len(heights)), key=lambda n: heights[n]):
        if groups and heights[n] - heights[groups[-1][0]] < gap / 4:
            groups[-1].append(n)
        else:
            groups.append([n])
    return [(heights[group[0]], row) for group in groups for row in reversed(_filled(sorted(group), names, room))]


def _filled(members: Sequence[int], names: Sequence[str], room: int) -> list[list[int]]:
    rows: list[list[int]] = []
    left = 0
    for n in members:
        left -= len(names[n])
        if rows and left >= 0:
            rows[-1].append(n)
        else:
            rows.append([n])
            left = room - len(names[n])
    return rows


def apart(heights: Sequence[float], gap: float = GAP) -> list[float]:
    """Heights moved as little as need be so that no two names lie on each other, in the order that they have.

    They stay between the bottom of the axes, 0, and their top, 1.

    >>> apart([0.5, 0.5, 0.9], gap=0.1)
    [0.45, 0.55, 0.9]
    >>> apart([0.0, 0.0, 0.0], gap=0.1)
    [0.0, 0.1, 0.2]
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
    middle, members = group
    height = gap * (len(members) - 1)
    return max(0.0, min(middle - height / 2, 1 - height))


def _top(group: tuple[float, list[int]], gap: float) -> float:
    return _bottom(group, gap) + gap * (len(group[1]) - 1)


def _side_by_side(ax: "Axes", height: float, names: Sequence[str], colours: Sequence[str]) -> None:
    before = ax.annotate(names[0], (1.01, height), xycoords="axes fraction", va="center", color=colours[0])
    for name, colour in zip(names[1:], colours[1:], strict=True):
        before.set_text(f"{before.get_text()},")
        before = ax.annotate(
            name, (1, 0), xycoords=before, xytext=(3, 0), textcoords="offset points", va="bottom", color=colour
        )
