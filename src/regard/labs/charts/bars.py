"""Horizontal bars and dot plots with one row per variant, the mean over seeds and the range of the seeds."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from regard.plotting import BLUE, COLORS, FAINT, INK, SOFT, minimal_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HATCHES = ("", "///", "...", "xxx")  # distinguish the bars without color
Groups = Mapping[str, Mapping[str, Sequence[float]]]


def bars(ax: "Axes", groups: Groups, *, title: str, number_format: str = "{:.2f}") -> None:
    """Draw groups of horizontal bars, each labeled with its mean over seeds and its name.

    A thin line spans the seeds. A name has the same color in every group.
    """
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    y, centers = 0.0, []
    maximum = max(max(values) for group in groups.values() for values in group.values())
    for group in groups.values():
        centers.append(y + (len(group) - 1) / 2)
        for name, values in group.items():
            mean, n = fmean(values), names.index(name)
            color, hatch = COLORS[n % len(COLORS)], HATCHES[n % len(HATCHES)]
            ax.barh(y, mean, color=color, hatch=hatch, edgecolor="white", linewidth=0, height=0.8)
            ax.plot([min(values), max(values)], [y, y], color=SOFT, linewidth=1.2)
            label_x = max(mean, *values) + 0.015 * maximum
            ax.text(label_x, y, f"{number_format.format(mean)}  {name}", va="center", color=color)
            y += 1
        y += 0.7
    ax.set_yticks(centers, list(groups))
    ax.invert_yaxis()
    ax.set_title(title)
    _hide_x_axis(ax)
    ax.set_xlim(0, maximum * 1.55)


def dots(ax: "Axes", rows: Mapping[str, Sequence[float]], *, title: str, number_format: str = ".4g") -> None:
    """Draw a row per variant, the first on top: a dot with its number at the mean and a line that spans the seeds.

    The numbers replace the ticks of the axis; the faint vertical line is at the mean of the first row.
    """
    for y, values in enumerate(rows.values()):
        mean = fmean(values)
        ax.plot([min(values), max(values)], [y, y], color=BLUE, linewidth=2.2, alpha=0.45, solid_capstyle="round")
        ax.plot(mean, y, marker="o", markersize=6, color=BLUE)
        ax.annotate(
            format(mean, number_format),
            (mean, y),
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
    _hide_x_axis(ax)


def _hide_x_axis(ax: "Axes") -> None:
    minimal_axes(ax)
    ax.grid(visible=False)
    ax.set_xticks([])
    ax.spines["bottom"].set_visible(False)
