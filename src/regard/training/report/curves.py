"""Line charts as HTML with an SVG inside.

The SVG holds only the lines and is stretched to whatever room there is; the labels are HTML placed by percentages, so
they keep their size on a phone as on a wide screen.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from regard.training.report.markup import Markup, tag
from regard.training.report.scale import Scale, linear, logarithmic, steps
from regard.training.report.thinning import Point, thin

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
