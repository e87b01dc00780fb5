"""The charts of the labs: lines with their names at their ends, and how far seeds lie apart as a band."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from regard.drawing.names import name_ends
from regard.drawing.palette import COLOURS, DASHES, MARKERS
from regard.drawing.style import bare
from regard.labs.magnitudes import magnitude

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

Scale = Literal["linear", "log"]


@dataclass(frozen=True)
class Line:
    """A value at each place, and if there were several seeds, the lowest and the highest of them."""

    xs: Sequence[float]
    ys: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None


def over_seeds(xs: Sequence[float], runs: Sequence[Sequence[float]]) -> Line:
    """The mean of several runs, with the lowest and the highest.

    >>> over_seeds([1, 2], [[0.0, 1.0], [1.0, 3.0]])
    Line(xs=[1, 2], ys=[0.5, 2.0], low=[0.0, 1.0], high=[1.0, 3.0])
    """
    columns = list(zip(*runs, strict=True))
    means = [sum(column) / len(column) for column in columns]
    return Line(xs, means, [min(column) for column in columns], [max(column) for column in columns])


def chart(
    ax: "Axes",
    lines: Mapping[str, Line],
    *,
    title: str,
    across: str,
    x: Scale = "linear",
    y: Scale = "linear",
    markers: bool = True,
) -> None:
    """Draw lines by name, each with a colour, a dash and a mark of its own, and its name at its end.

    The title says what the height means and in which unit, so that no one must turn the head.
    """
    ax.set_xscale(x)
    ax.set_yscale(y)
    for n, line in enumerate(lines.values()):
        colour, dashes, mark = COLOURS[n % len(COLOURS)], DASHES[n % len(DASHES)], MARKERS[n % len(MARKERS)]
        dots: Any = {"marker": mark, "markersize": 4} if markers else {}
        ax.plot(line.xs, line.ys, color=colour, linestyle=dashes, linewidth=1.8, **dots)
        if line.low is not None and line.high is not None:
            ax.fill_between(line.xs, line.low, line.high, color=colour, alpha=0.15, linewidth=0)
    ax.set_title(title)
    ax.set_xlabel(across)
    bare(ax)
    ax.autoscale_view()
    for axis, scale in ((ax.xaxis, x), (ax.yaxis, y)):
        if scale == "log":
            _plain_numbers(axis)
    ends = [(line.xs[-1], line.ys[-1]) for line in lines.values()]
    colours = [COLOURS[n % len(COLOURS)] for n in range(len(lines))]
    name_ends(ax, ends, list(lines), colours, gap=0.07)


def _plain_numbers(axis: "Axis") -> None:
    """Write 1,000 and 0.01 at an axis by powers rather than 10³ and 10⁻²; on a short one also 2 and 5."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    if high < 200 * low:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: magnitude(value)))
    axis.set_minor_formatter(NullFormatter())
