"""Rows of dots: one named row for each variant, a dot for its mean, and a line from the lowest seed to the highest."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from regard.drawing.palette import BLUE, FAINT, INK
from regard.drawing.style import bare

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def dots(
    ax: "Axes",
    rows: Mapping[str, Sequence[float]],
    *,
    title: str,
    across: str = "",
    x: str = "linear",
    shape: str = ".3g",
) -> None:
    """Draw the values of each row, the first row on top, with the mean written beside it."""
    from matplotlib.ticker import MaxNLocator

    ax.set_xscale(x)
    for place, values in enumerate(rows.values()):
        mean = sum(values) / len(values)
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
    ax.set_yticks(range(len(rows)), list(rows))
    ax.set_ylim(len(rows) - 0.5, -0.7)
    ax.set_title(title)
    ax.set_xlabel(across)
    ax.margins(x=0.2)
    if x == "linear":
        ax.xaxis.set_major_locator(MaxNLocator(3))
    bare(ax)
    ax.grid(visible=False, axis="y")
    ax.grid(axis="x", color=FAINT, linewidth=0.8)
