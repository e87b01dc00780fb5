"""Bars that lie, in groups, each with its number and its name at its end; how far seeds lie apart as a thin line."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from regard.drawing.palette import COLOURS, SOFT
from regard.drawing.style import bare

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HATCHES = ("", "///", "...", "xxx")  # so that bars can be told apart in grey
Groups = Mapping[str, Mapping[str, Sequence[float]]]


def bars(ax: "Axes", groups: Groups, *, title: str, form: str = "{:.2f}") -> None:
    """Draw groups of bars; a bar is the mean over seeds. A name has the same colour in every group."""
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    place, middles = 0.0, []
    most = max(max(values) for group in groups.values() for values in group.values())
    for group in groups.values():
        middles.append(place + (len(group) - 1) / 2)
        for name, values in group.items():
            mean, n = fmean(values), names.index(name)
            colour, hatch = COLOURS[n % len(COLOURS)], HATCHES[n % len(HATCHES)]
            ax.barh(place, mean, color=colour, hatch=hatch, edgecolor="white", linewidth=0, height=0.8)
            ax.plot([min(values), max(values)], [place, place], color=SOFT, linewidth=1.2)
            beyond = max(mean, *values) + 0.015 * most
            ax.text(beyond, place, f"{form.format(mean)}  {name}", va="center", color=colour)
            place += 1
        place += 0.7
    ax.set_yticks(middles, list(groups))
    ax.invert_yaxis()
    ax.set_title(title)
    bare(ax)
    ax.grid(visible=False)
    ax.set_xticks([])
    ax.spines["bottom"].set_visible(False)
    ax.set_xlim(0, most * 1.55)
