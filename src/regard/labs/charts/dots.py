"""Rows of dots: one named row for each variant, a dot for its mean, and a line from the lowest seed to the highest."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from regard.drawing.palette import BLUE, FAINT, INK
from regard.drawing.style import bare

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def dots(ax: "Axes", rows: Mapping[str, Sequence[float]], *, title: str, shape: str = ".4g") -> None:
    """Draw the values of each row, the first row on top, with the mean written beside it.

    What is written is read, so that the axis has no numbers of its own; the faint line is the first row's mean.
    """
    for place, values in enumerate(rows.values()):
        mean = fmean(values)
        ax.plot(
            [min(values), max(values)], [place, place], color=BLUE, linewidth=2.2, alpha=0.45, solid_capstyle="round"
        )
        ax.plot(mean, place, marker="o", markersize=6, color=BLUE)
        ax.annotate(
            format(mean, shape),
            (mean, place),
            xytext=(0, 7),
            textcoords="offset points",
            ha="center",
            color=INK,
            size=8,
        )
    ax.axvline(fmean(next(iter(rows.values()))), color=FAINT, linewidth=1, zorder=0)
    ax.set_yticks(range(len(rows)), list(rows))
    ax.set_ylim(len(rows) - 0.5, -0.7)
    ax.set_title(title)
    ax.margins(x=0.2)
    bare(ax)
    ax.grid(visible=False)
    ax.set_xticks([])
    ax.spines["bottom"].set_visible(False)
