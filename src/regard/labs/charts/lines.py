"""The charts of the labs: lines with their names at their ends, and how far seeds lie apart as a band."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

from regard.drawing.names import name_ends
from regard.drawing.palette import COLOURS, DASHES, MARKERS
from regard.drawing.style import bare
from regard.labs.charts.magnitudes import magnitude, magnitudes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

Scale = Literal["linear", "log"]


FEW = 12  # places that can each have a number at the axis
LETTER = 0.085  # how wide a letter is, in inches


@dataclass(frozen=True)
class Line:
    """A value at each place, and how far single ones lie around it: those of several seeds, say."""

    xs: Sequence[float]
    ys: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None


def over_seeds(
    xs: Sequence[float], runs: Sequence[Sequence[float]], mean: Callable[[Sequence[float]], float] = fmean
) -> Line:
    """The mean of several runs, with the lowest and the highest.

    >>> over_seeds([1, 2], [[0.0, 1.0], [1.0, 3.0]])
    Line(xs=[1, 2], ys=[0.5, 2.0], low=[0.0, 1.0], high=[1.0, 3.0])
    """
    columns = list(zip(*runs, strict=True))
    means = [mean(column) for column in columns]
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
) -> str:
    """Draw lines by name, each with a colour, a dash and a mark of its own, and its name at its end.

    The title says what the height means and in which unit, so that no one must turn the head. Returned is the same in
    words, for those who cannot see it.
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
    _places(ax, sorted({place for line in lines.values() for place in line.xs}), x)
    ends = [(line.xs[-1], line.ys[-1]) for line in lines.values()]
    colours = [COLOURS[n % len(COLOURS)] for n in range(len(lines))]
    name_ends(ax, ends, list(lines), colours, gap=0.07)
    return in_words(lines, title=title, across=across)


def in_words(lines: Mapping[str, Line], *, title: str, across: str) -> str:
    """Where each line begins and ends, and between what it lies if it goes beyond that.

    >>> lines = {"RNN": Line([1, 2, 4], [8, 1, 2]), "GRU": Line([1, 2, 4], [3, 2, 1])}
    >>> in_words(lines, title="loss", across="step")
    'Loss, against step: RNN from 8 at 1 to 2 at 4 (at least 1), GRU from 3 at 1 to 1 at 4.'
    """
    said = ", ".join(f"{name} {_course(line)}".strip() for name, line in lines.items())
    return f"{title[:1].upper()}{title[1:]}, against {across}: {said}."


def _course(line: Line) -> str:
    first, last, low, high = (magnitude(value) for value in (line.ys[0], line.ys[-1], min(line.ys), max(line.ys)))
    beyond = [f"at least {low}"] if low not in (first, last) else []
    beyond += [f"at most {high}"] if high not in (first, last) else []
    between = f" ({', '.join(beyond)})" if beyond else ""
    return f"from {first} at {line.xs[0]:,} to {last} at {line.xs[-1]:,}{between}"


def _places(ax: "Axes", places: Sequence[float], scale: Scale) -> None:
    """Numbers at the places that were measured, if they are few and lie by powers; else at whole ones, if they are."""
    from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

    if scale == "log" and len(places) <= FEW:
        ax.xaxis.set_major_locator(FixedLocator(_thinned(places, ax)))
        ax.xaxis.set_minor_locator(NullLocator())
    elif scale == "linear" and all(place == int(place) for place in places):
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))


def _thinned(places: Sequence[float], ax: "Axes") -> Sequence[float]:
    """Every place, or every second, third and so on up to the last, so that their numbers have room side by side."""
    figure = ax.get_figure()
    if len(places) < 2 or figure is None:
        return places
    logs = [math.log(place) for place in places]
    width = ax.bbox.width / figure.dpi / (1.1 * (logs[-1] - logs[0]))  # inches for each e-fold

    def crowded(kept: Sequence[int]) -> bool:
        wide = [LETTER * (len(text) + 1) for text in magnitudes([places[n] for n in kept])]
        middles = [logs[n] * width for n in kept]
        return any(middles[n + 1] - middles[n] < (wide[n] + wide[n + 1]) / 2 for n in range(len(kept) - 1))

    for every in range(1, len(places)):
        kept = range(len(places) - 1, -1, -every)[::-1]
        if not crowded(kept):
            return [places[n] for n in kept]
    return places[-1:]


def _between(low: float, high: float) -> list[float]:
    """Round numbers between two: powers of ten with 2 and 5, and more if these are but one or two.

    >>> _between(3, 150), _between(0.4, 0.9)
    ([5.0, 10.0, 20.0, 50.0, 100.0], [0.4, 0.5, 0.6, 0.8])
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 8)):
        round_ones = (float(f"{n}e{power}") for power in powers for n in digits)
        found = [value for value in round_ones if low <= value <= high]
        if len(found) > 2:
            break
    return found


def _plain_numbers(axis: "Axis") -> None:
    """Write 1,000 and 0.01 at an axis by powers rather than 10³ and 10⁻² if all can be; on a short one also 2 and 5."""
    from matplotlib.ticker import FixedLocator, Formatter, NullFormatter, NullLocator

    class InOneNotation(Formatter):
        def __call__(self, value: float, pos: int | None = None) -> str:
            return magnitude(value)

        def format_ticks(self, values: Sequence[float]) -> list[str]:
            low, high = axis.get_view_interval()
            seen = [value for value in values if 0.999 * low <= value <= 1.001 * high]
            texts = dict(zip(seen, magnitudes(seen), strict=True))
            return [texts.get(value, "") for value in values]

    low, high = axis.get_view_interval()
    if high < 200 * low and len(_between(low, high)) > 1:
        axis.set_major_locator(FixedLocator(_between(low, high)))
        axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(InOneNotation())
    axis.set_minor_formatter(NullFormatter())
