"""Charts of the labs: lines over an axis, bars and dots per variant, and grids (matrices, heat maps, contour maps)."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor

from regard.plotting import (
    BLUE,
    COLORS,
    DASHES,
    FAINT,
    INK,
    MARKERS,
    ORANGE,
    PAPER,
    SOFT,
    label_line_ends,
    minimal_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.contour import QuadContourSet

AxisScale = Literal["linear", "log"]
Groups = Mapping[str, Mapping[str, Sequence[float]]]

MAX_TICKS = 12  # more measured points than this do not get a tick each
CHARACTER_WIDTH = 0.085  # inches
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
HATCHES = ("", "///", "...", "xxx")  # distinguish the bars without color
# Close to the colors of the palette but not equal: a dark-mode browser swaps the palette's colors, not these. The two
# colors of the heat map differ in brightness too, so that they can be distinguished in grayscale.
HEAT_NEGATIVE, HEAT_ZERO, HEAT_POSITIVE = "#f0a57c", "#fefefe", "#123f80"
CONTOUR_LOW, CONTOUR_HIGH, CONTOUR_MARK = "#2a6fca", "#fefefe", "#1b1c1f"
LABEL_AREA = 0.85  # fraction of a contour map inside which labels are not cut off
LABEL_TURN = math.radians(110)  # angle between the labels of two contour lines, to keep them apart


# --- lines ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LineSeries:
    """Points of a line, optionally with a lower and an upper bound at each x (such as the range over seeds)."""

    xs: Sequence[float]
    ys: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None


def over_seeds(
    xs: Sequence[float], runs: Sequence[Sequence[float]], mean: Callable[[Sequence[float]], float] = fmean
) -> LineSeries:
    """Return the mean of several runs with their minimum and maximum.

    >>> over_seeds([1, 2], [[0.0, 1.0], [1.0, 3.0]])
    LineSeries(xs=[1, 2], ys=[0.5, 2.0], low=[0.0, 1.0], high=[1.0, 3.0])
    """
    columns = list(zip(*runs, strict=True))
    means = [mean(column) for column in columns]
    return LineSeries(xs, means, [min(column) for column in columns], [max(column) for column in columns])


def line_chart(
    ax: "Axes",
    lines: Mapping[str, LineSeries],
    *,
    title: str,
    xlabel: str,
    xscale: AxisScale = "linear",
    yscale: AxisScale = "linear",
    markers: bool = True,
) -> str:
    """Draw lines by name, each with its own color, dash and marker, and its name at its end.

    The title names the quantity of the y-axis and its unit. Returns a description of the chart for its alternative
    text.
    """
    ax.set_xscale(xscale)
    ax.set_yscale(yscale)
    for n, line in enumerate(lines.values()):
        color, dashes, marker = COLORS[n % len(COLORS)], DASHES[n % len(DASHES)], MARKERS[n % len(MARKERS)]
        marker_options: Any = {"marker": marker, "markersize": 4} if markers else {}
        ax.plot(line.xs, line.ys, color=color, linestyle=dashes, linewidth=1.8, **marker_options)
        if line.low is not None and line.high is not None:
            ax.fill_between(line.xs, line.low, line.high, color=color, alpha=0.15, linewidth=0)
    ax.set_title(title)
    ax.set_xlabel(xlabel)
    minimal_axes(ax)
    ax.autoscale_view()
    for axis, scale in ((ax.xaxis, xscale), (ax.yaxis, yscale)):
        if scale == "log":
            _format_log_axis(axis)
    _set_x_ticks(ax, sorted({x for line in lines.values() for x in line.xs}), xscale)
    ends = [(line.xs[-1], line.ys[-1]) for line in lines.values()]
    colors = [COLORS[n % len(COLORS)] for n in range(len(lines))]
    label_line_ends(ax, ends, list(lines), colors, gap=0.07)
    return describe_lines(lines, title=title, xlabel=xlabel)


def describe_lines(lines: Mapping[str, LineSeries], *, title: str, xlabel: str) -> str:
    """Return a description: first and last value of each line, and its extremes where they lie beyond those.

    >>> lines = {"RNN": LineSeries([1, 2, 4], [8, 1, 2]), "GRU": LineSeries([1, 2, 4], [3, 2, 1])}
    >>> describe_lines(lines, title="loss", xlabel="step")
    'Loss by step: RNN from 8 at 1 to 2 at 4 (min 1), GRU from 3 at 1 to 1 at 4.'
    """
    descriptions = ", ".join(f"{name} {_describe_line(line)}".strip() for name, line in lines.items())
    return f"{title[:1].upper()}{title[1:]} by {xlabel}: {descriptions}."


def _describe_line(line: LineSeries) -> str:
    first, last, low, high = (two_digits(y) for y in (line.ys[0], line.ys[-1], min(line.ys), max(line.ys)))
    extremes = [f"min {low}"] if low not in (first, last) else []
    extremes += [f"max {high}"] if high not in (first, last) else []
    suffix = f" ({', '.join(extremes)})" if extremes else ""
    return f"from {first} at {line.xs[0]:,} to {last} at {line.xs[-1]:,}{suffix}"


# --- ticks of line charts ---------------------------------------------------------------------------------------------


def _set_x_ticks(ax: "Axes", xs: Sequence[float], scale: AxisScale) -> None:
    """Put ticks at the measured points of a log axis if they are few, and at integers of a linear axis of integers."""
    from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

    if scale == "log" and len(xs) <= MAX_TICKS:
        ax.xaxis.set_major_locator(FixedLocator(_thin_ticks(xs, ax)))
        ax.xaxis.set_minor_locator(NullLocator())
    elif scale == "linear" and all(x == int(x) for x in xs):
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))


def _thin_ticks(xs: Sequence[float], ax: "Axes") -> Sequence[float]:
    """Return every point, or every second, third, ... up to the last, such that the labels do not overlap."""
    figure = ax.get_figure()
    if len(xs) < 2 or figure is None:
        return xs
    logs = [math.log(x) for x in xs]
    inches = ax.bbox.width / figure.dpi / (1.1 * (logs[-1] - logs[0]))  # per unit of the logarithm

    def overlap(indices: Sequence[int]) -> bool:
        widths = [CHARACTER_WIDTH * (len(text) + 1) for text in format_numbers([xs[n] for n in indices])]
        centers = [logs[n] * inches for n in indices]
        return any(centers[n + 1] - centers[n] < (widths[n] + widths[n + 1]) / 2 for n in range(len(indices) - 1))

    for step in range(1, len(xs)):
        indices = range(len(xs) - 1, -1, -step)[::-1]
        if not overlap(indices):
            return [xs[n] for n in indices]
    return xs[-1:]


def _round_numbers(low: float, high: float) -> list[float]:
    """Return round numbers in a range: 1, 2 and 5 times powers of ten, and more if these are only one or two.

    >>> _round_numbers(3, 150), _round_numbers(0.4, 0.9)
    ([5.0, 10.0, 20.0, 50.0, 100.0], [0.4, 0.5, 0.6, 0.8])
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 8)):
        candidates = (float(f"{n}e{power}") for power in powers for n in digits)
        inside = [value for value in candidates if low <= value <= high]
        if len(inside) > 2:
            break
    return inside


def _format_log_axis(axis: "Axis") -> None:
    """Label a log axis with 1,000 and 0.01 instead of 10³ and 10⁻² where possible; a short one also at 2 and 5."""
    from matplotlib.ticker import FixedLocator, Formatter, NullFormatter, NullLocator

    class UniformFormatter(Formatter):
        def __call__(self, value: float, pos: int | None = None) -> str:
            return two_digits(value)

        def format_ticks(self, values: Sequence[float]) -> list[str]:
            low, high = axis.get_view_interval()
            visible = [value for value in values if 0.999 * low <= value <= 1.001 * high]
            texts = dict(zip(visible, format_numbers(visible), strict=True))
            return [texts.get(value, "") for value in values]

    low, high = axis.get_view_interval()
    if high < 200 * low and len(_round_numbers(low, high)) > 1:
        axis.set_major_locator(FixedLocator(_round_numbers(low, high)))
        axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(UniformFormatter())
    axis.set_minor_formatter(NullFormatter())


# --- numbers ----------------------------------------------------------------------------------------------------------


def two_digits(value: float) -> str:
    """Format a number with about two significant digits; very small or large ones as a power of ten.

    >>> [two_digits(value) for value in (0.517, 5, 286.6, 1000, 65_536, 3.2e-7, 1e-12, 1e9)]
    ['0.52', '5', '287', '1,000', '65,536', '3×10⁻⁷', '10⁻¹²', '10⁹']
    >>> two_digits(-12.3), two_digits(math.nan)
    ('−12', 'nan')
    """
    if not math.isfinite(value):
        return str(value)
    if value < 0:
        return f"−{two_digits(-value)}"
    if not _fits_decimal(value):
        return _power_of_ten(value)
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def format_numbers(values: Sequence[float]) -> list[str]:
    """Format several numbers in the same notation.

    >>> format_numbers([0.01, 1, 100])
    ['0.01', '1', '100']
    >>> format_numbers([1, 1000, 10_000_000])
    ['1', '10³', '10⁷']
    """
    if all(_fits_decimal(value) for value in values):
        return [two_digits(value) for value in values]
    return ["1" if value == 1 else _power_of_ten(value) for value in values]


def _fits_decimal(value: float) -> bool:
    return value == 0 or 1e-3 <= value < 1e6


def _power_of_ten(value: float) -> str:
    digit, exponent = f"{value:.0e}".split("e")
    power = "10" + str(int(exponent)).translate(SUPERSCRIPTS)
    return power if digit == "1" else f"{digit}×{power}"


# --- bars and dots ----------------------------------------------------------------------------------------------------


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


# --- grids ------------------------------------------------------------------------------------------------------------


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
    """Draw a matrix of values from 0 to 1 by opacity; `framed` are (row, column), `texts` go into the cells."""
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
