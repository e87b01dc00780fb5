"""Line charts as HTML with an SVG inside.

The SVG holds only the lines and is stretched to whatever room there is; the labels are HTML placed by percentages, so
they keep their size on a phone as on a wide screen.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from regard.html import Markup, tag


@dataclass(frozen=True)
class Scale:
    """Maps `low` to 0 and `high` to 1, evenly or by logarithm."""

    low: float
    high: float
    ticks: tuple[float, ...]
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        """Where a value lies between the ends."""
        if self.logarithmic:
            return (math.log(value) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        return (value - self.low) / (self.high - self.low)


def linear(low: float, high: float, most: int = 5) -> Scale:
    """An even scale that ends at round numbers and has at most about `most` of them.

    >>> linear(0.2, 9.3).ticks
    (0.0, 2.0, 4.0, 6.0, 8.0, 10.0)
    """
    if high - low < 1e-100:  # a constant has a place in the middle
        low, high = (low - abs(low) / 10, high + abs(high) / 10) if abs(low) > 1e-99 else (0.0, 1.0)
    gap = _round_gap(low, high, most)
    first, last = math.floor(low / gap + 1e-9), math.ceil(high / gap - 1e-9)
    ticks = tuple(_exact(index, gap) for index in range(first, max(last, first + 1) + 1))
    return Scale(ticks[0], ticks[-1], ticks)


def steps(last: int, most: int = 5) -> Scale:
    """The scale of steps, from none to the last one exactly, with round numbers between."""
    gap = max(1.0, _round_gap(0, max(1, last), most))
    return Scale(0, max(1, last), tuple(gap * index for index in range(int(max(1, last) / gap + 1e-9) + 1)))


def logarithmic(low: float, high: float) -> Scale:
    """A scale of equal factors, with ticks at powers of ten and, the fewer those are, at more numbers between.

    >>> logarithmic(1.1, 9.5).ticks
    (1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0)
    >>> logarithmic(0.3, 40).ticks
    (0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
    """
    low, high = low / 1.1, high * 1.1
    decades = math.log10(high) - math.log10(low)
    factors = (1, 1.5, 2, 3, 5, 7) if decades < 1.5 else (1, 2, 5) if decades < 3 else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    powers = powers[:: max(1, len(powers) // 6)]
    ticks = [float(f"{factor}e{power}") for power in powers for factor in factors]
    return Scale(low, high, tuple(tick for tick in ticks if low <= tick <= high), logarithmic=True)


def _round_gap(low: float, high: float, most: int) -> float:
    """1, 2 or 5 times a power of ten, so that at most `most` of them reach from low to high."""
    wanted = max((high - low) / most, 1e-3 * max(abs(low), abs(high)))
    power = float(f"1e{math.floor(math.log10(wanted))}")
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= wanted * (1 - 1e-9))


def _exact(index: int, gap: float) -> float:
    return float(f"{index * gap:.12g}")  # 3 × 0.1 is 0.3, not 0.30000000000000004


Point = tuple[int, float]  # a step and a value


def thin(points: Sequence[Point], most: int = 600) -> list[Point]:
    """At most `most` of the points: the first, the last, and the lowest and highest of every stretch between.

    So a spike of a single step stays a spike.

    >>> thin([(step, float(step == 700)) for step in range(1000)], most=6)
    [(0, 0.0), (1, 0.0), (500, 0.0), (700, 1.0), (999, 0.0)]
    """
    if len(points) <= most:
        return list(points)
    inner = points[1:-1]
    stretches = max(1, (most - 2) // 2)
    kept = [points[0]]
    for index in range(stretches):
        stretch = inner[index * len(inner) // stretches : (index + 1) * len(inner) // stretches]
        extremes = {min(stretch, key=lambda point: point[1]), max(stretch, key=lambda point: point[1])}
        kept += sorted(extremes)
    return [*kept, points[-1]]


DOTS = 30  # a series with fewer points than this shows each of them


@dataclass(frozen=True)
class Series:
    """A named line. `colour` is the number of its colour in the style sheet."""

    name: str
    points: Sequence[Point]
    colour: int = 1


@dataclass(frozen=True)
class Chart:
    """What to draw: lines over the steps.

    The axis starts at zero or at the lowest value; from a ratio of the highest to the lowest of `factors`, it is
    logarithmic, so that a steep beginning or a spike leaves room for the rest.
    """

    title: str
    unit: str
    series: Sequence[Series]
    last_step: int
    best_step: int | None = None
    from_zero: bool = True
    factors: float = math.inf
    large: bool = False

    def draw(self) -> Markup:
        """The chart as HTML; nothing at all where no series has a point."""
        drawn = [Series(one.name, thin(one.points), one.colour) for one in self.series if one.points]
        if not drawn:
            return Markup("")
        across = steps(self.last_step)
        up = self._axis([value for one in drawn for _, value in one.points])
        unit = f"{self.unit}, logarithmic" if up.logarithmic else self.unit
        caption = tag("figcaption", tag("b", self.title), tag("span", unit, class_="unit"), _legend(drawn))
        labels = [number_text(tick) for tick in up.ticks]
        field = tag("div", self._lines(drawn, across, up), self._best_label(across), class_="field")
        plot = tag(
            "div",
            tag(
                "div", *(_label(text, "top", 1 - up(at)) for text, at in zip(labels, up.ticks, strict=True)), class_="y"
            ),
            field,
            tag("div", *(_label(number_text(at), "left", across(at)) for at in across.ticks), class_="x"),
            class_="plot",
            style=f"--gutter:{max(map(len, labels))}ch",
            data_last=str(int(across.high)),
        )
        return tag("figure", caption, plot, class_="chart large" if self.large else "chart")

    def _axis(self, values: list[float]) -> Scale:
        low, high = min(values), max(values)
        if low > 1e-100 and high / low >= self.factors:
            return logarithmic(low, high)
        return linear(min(0.0, low) if self.from_zero else low, high)

    def _lines(self, drawn: Sequence[Series], across: Scale, up: Scale) -> Markup:
        grid = [_path(f"M0 {_place(1 - up(tick))}H1000", "grid") for tick in up.ticks]
        if self.best_step is not None and 0 <= self.best_step <= across.high:
            grid.append(_path(f"M{_place(across(self.best_step))} 0V1000", "best"))
        lines = []
        for one in drawn:
            places = [f"{_place(across(step))} {_place(1 - up(value))}" for step, value in one.points]
            data = ",".join(f"[{step},{value:.5g}]" for step, value in one.points)
            lines.append(
                tag(
                    "path",
                    d="M" + "L".join(places),
                    class_=f"line c{one.colour}",
                    data_name=one.name,
                    data_points=f"[{data}]",
                )
            )
            if len(places) < DOTS:  # a stroke of no length with round ends is a dot, whatever the SVG's proportions
                lines.append(_path("".join(f"M{place}h0" for place in places), f"dots c{one.colour}"))
        summary = "; ".join(
            f"{one.name} from {number_text(one.points[0][1])} to {number_text(one.points[-1][1])}" for one in drawn
        )
        return tag(
            "svg",
            *grid,
            *lines,
            viewBox="0 0 1000 1000",
            preserveAspectRatio="none",
            role="img",
            aria_label=f"{self.title}: {summary}, at step {drawn[0].points[-1][0]:,}",
        )

    def _best_label(self, across: Scale) -> Markup:
        if self.best_step is None or not 0 <= self.best_step <= across.high:
            return Markup("")
        at = across(self.best_step)
        side = "flag left" if at > 0.5 else "flag"  # towards the middle, so that it stays inside the chart
        return tag("span", f"best: step {self.best_step:,}", class_=side, style=f"left:{at:.2%}")


def number_text(value: float) -> str:
    """A number as an axis has it.

    >>> [number_text(value) for value in (0.0, 0.0003, 0.25, 2.0, 12000.0)]
    ['0', '3e-4', '0.25', '2', '12,000']
    """
    if value and abs(value) < 0.01:
        mantissa, _, power = f"{value:.2e}".partition("e")
        return f"{float(mantissa):g}e{int(power)}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _legend(drawn: Sequence[Series]) -> Markup:
    if len(drawn) < 2:
        return Markup("")
    return tag("span", *(tag("span", one.name, class_=f"key c{one.colour}") for one in drawn), class_="legend")


def _label(content: str, side: str, at: float) -> Markup:
    at_the_end = side == "left" and at > 0.95  # it would reach beyond the chart
    return tag("span", content, style=f"{side}:{at:.2%}", class_="end" if at_the_end else None)


def _path(drawing: str, kind: str) -> Markup:
    return tag("path", d=drawing, class_=kind)


def _place(share: float) -> str:
    return f"{share * 1000:.1f}".removesuffix(".0")
