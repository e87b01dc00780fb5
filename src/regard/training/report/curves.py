"""The curves of the report: training and validation metrics over the steps, as line charts.

A chart is HTML with an SVG inside. The SVG has only the lines and is stretched to the available width; the labels are
HTML elements placed by percentages, so that they have the same size on phones and wide screens.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from regard.html import Markup, join, table, tag
from regard.training.display import score_name, score_text
from regard.training.report.run_log import Record, RunLog, as_record, finite_number
from regard.training.report.sections import known_scores

StepValue = tuple[int, float]  # a step and a value
MAX_DOTS = 30  # a series with fewer points shows each of them
MAX_ROWS = 60  # validations in the table
COLUMN_ORDER = (
    "loss",
    "accuracy",
    "macro_f1",
    "span_f1",
    "perplexity",
    "forward_perplexity",
    "backward_perplexity",
    "bits_per_byte",
    "bleu",
    "chrf",
)


@dataclass(frozen=True)
class Scale:
    """Maps `low` to 0 and `high` to 1, linearly or by logarithm."""

    low: float
    high: float
    ticks: tuple[float, ...]
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        """The position of a value between the ends."""
        if self.logarithmic:
            return (math.log(value) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        return (value - self.low) / (self.high - self.low)


def linear(low: float, high: float, max_ticks: int = 5) -> Scale:
    """A linear scale that ends at round numbers, with about `max_ticks` ticks at most.

    >>> linear(0.2, 9.3).ticks
    (0.0, 2.0, 4.0, 6.0, 8.0, 10.0)
    """
    if high - low < 1e-100:  # a constant is drawn in the middle
        low, high = (low - abs(low) / 10, high + abs(high) / 10) if abs(low) > 1e-99 else (0.0, 1.0)
    gap = _round_gap(low, high, max_ticks)
    first, last = math.floor(low / gap + 1e-9), math.ceil(high / gap - 1e-9)
    ticks = tuple(_exact(index, gap) for index in range(first, max(last, first + 1) + 1))
    return Scale(ticks[0], ticks[-1], ticks)


def steps(last: int, max_ticks: int = 5) -> Scale:
    """The scale of steps from 0 to exactly the last one, with ticks at round numbers."""
    gap = max(1.0, _round_gap(0, max(1, last), max_ticks))
    return Scale(0, max(1, last), tuple(gap * index for index in range(int(max(1, last) / gap + 1e-9) + 1)))


def logarithmic(low: float, high: float) -> Scale:
    """A logarithmic scale, with ticks at powers of ten and, if these are few, at numbers between them.

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


def _round_gap(low: float, high: float, max_ticks: int) -> float:
    """1, 2 or 5 times a power of ten, so that at most `max_ticks` of them cover low to high."""
    minimum = max((high - low) / max_ticks, 1e-3 * max(abs(low), abs(high)))
    power = float(f"1e{math.floor(math.log10(minimum))}")
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= minimum * (1 - 1e-9))


def _exact(index: int, gap: float) -> float:
    return float(f"{index * gap:.12g}")  # 3 × 0.1 is 0.3, not 0.30000000000000004


def thin(points: Sequence[StepValue], max_points: int = 600) -> list[StepValue]:
    """At most `max_points` of the points: the first, the last, and the minimum and maximum of each interval between.

    So a spike of a single step stays visible.

    >>> thin([(step, float(step == 700)) for step in range(1000)], max_points=6)
    [(0, 0.0), (1, 0.0), (500, 0.0), (700, 1.0), (999, 0.0)]
    """
    if len(points) <= max_points:
        return list(points)
    inner = points[1:-1]
    intervals = max(1, (max_points - 2) // 2)
    kept = [points[0]]
    for index in range(intervals):
        interval = inner[index * len(inner) // intervals : (index + 1) * len(inner) // intervals]
        extremes = {min(interval, key=lambda point: point[1]), max(interval, key=lambda point: point[1])}
        kept += sorted(extremes)
    return [*kept, points[-1]]


@dataclass(frozen=True)
class Series:
    """A named line. `color` is the number of its color in the style sheet."""

    name: str
    points: Sequence[StepValue]
    color: int = 1


@dataclass(frozen=True)
class Chart:
    """Lines over the steps.

    The axis starts at zero or at the lowest value. It is logarithmic if the ratio of the highest to the lowest value is
    at least `log_ratio`, so that a steep start or a spike does not flatten the rest.
    """

    title: str
    unit: str
    series: Sequence[Series]
    last_step: int
    best_step: int | None = None
    from_zero: bool = True
    log_ratio: float = math.inf
    large: bool = False

    def draw(self) -> Markup:
        """The chart as HTML; nothing if no series has points."""
        series = [Series(line.name, thin(line.points), line.color) for line in self.series if line.points]
        if not series:
            return Markup("")
        x = steps(self.last_step)
        y = self._axis([value for line in series for _, value in line.points])
        unit = f"{self.unit}, logarithmic" if y.logarithmic else self.unit
        caption = tag("figcaption", tag("b", self.title), tag("span", unit, class_="unit"), _legend(series))
        labels = [number_text(tick) for tick in y.ticks]
        y_labels = (_label(text, "top", 1 - y(tick)) for text, tick in zip(labels, y.ticks, strict=True))
        plot = tag(
            "div",
            tag("div", *y_labels, class_="y"),
            tag("div", self._lines(series, x, y), self._best_label(x), class_="field"),
            tag("div", *(_label(number_text(tick), "left", x(tick)) for tick in x.ticks), class_="x"),
            class_="plot",
            style=f"--gutter:{max(map(len, labels))}ch",
            data_last=str(int(x.high)),
        )
        return tag("figure", caption, plot, class_="chart large" if self.large else "chart")

    def _axis(self, values: list[float]) -> Scale:
        low, high = min(values), max(values)
        if low > 1e-100 and high / low >= self.log_ratio:
            return logarithmic(low, high)
        return linear(min(0.0, low) if self.from_zero else low, high)

    def _lines(self, series: Sequence[Series], x: Scale, y: Scale) -> Markup:
        grid = [_path(f"M0 {_coordinate(1 - y(tick))}H1000", "grid") for tick in y.ticks]
        if self.best_step is not None and 0 <= self.best_step <= x.high:
            grid.append(_path(f"M{_coordinate(x(self.best_step))} 0V1000", "best"))
        paths = []
        for line in series:
            points = [f"{_coordinate(x(step))} {_coordinate(1 - y(value))}" for step, value in line.points]
            data = ",".join(f"[{step},{value:.5g}]" for step, value in line.points)
            paths.append(
                tag(
                    "path",
                    d="M" + "L".join(points),
                    class_=f"line c{line.color}",
                    data_name=line.name,
                    data_points=f"[{data}]",
                )
            )
            if len(points) < MAX_DOTS:  # a stroke of length 0 with round ends is a dot, whatever the aspect ratio
                paths.append(_path("".join(f"M{point}h0" for point in points), f"dots c{line.color}"))
        summary = "; ".join(
            f"{line.name} from {number_text(line.points[0][1])} to {number_text(line.points[-1][1])}" for line in series
        )
        return tag(
            "svg",
            *grid,
            *paths,
            viewBox="0 0 1000 1000",
            preserveAspectRatio="none",
            role="img",
            aria_label=f"{self.title}: {summary}, at step {series[0].points[-1][0]:,}",
        )

    def _best_label(self, x: Scale) -> Markup:
        if self.best_step is None or not 0 <= self.best_step <= x.high:
            return Markup("")
        position = x(self.best_step)
        side = "flag left" if position > 0.5 else "flag"  # toward the middle, so that it stays inside the chart
        return tag("span", f"best: step {self.best_step:,}", class_=side, style=f"left:{position:.2%}")


def number_text(value: float) -> str:
    """A number as an axis label.

    >>> [number_text(value) for value in (0.0, 0.0003, 0.25, 2.0, 12000.0)]
    ['0', '3e-4', '0.25', '2', '12,000']
    """
    if value and abs(value) < 0.01:
        mantissa, _, power = f"{value:.2e}".partition("e")
        return f"{float(mantissa):g}e{int(power)}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _legend(series: Sequence[Series]) -> Markup:
    if len(series) < 2:
        return Markup("")
    return tag("span", *(tag("span", line.name, class_=f"key c{line.color}") for line in series), class_="legend")


def _label(content: str, side: str, position: float) -> Markup:
    at_the_end = side == "left" and position > 0.95  # it would extend beyond the chart
    return tag("span", content, style=f"{side}:{position:.2%}", class_="end" if at_the_end else None)


def _path(drawing: str, style: str) -> Markup:
    return tag("path", d=drawing, class_=style)


def _coordinate(fraction: float) -> str:
    return f"{fraction * 1000:.1f}".removesuffix(".0")


def curves(run: RunLog) -> Markup:
    """All charts with data, and the validations as a table."""
    charts = [chart.draw() for chart in _charts(run)]
    if not any(charts):
        return Markup("")
    return tag(
        "section",
        tag("h2", "Curves"),
        tag("p", "Over training steps.", class_="note"),
        tag("div", *charts, class_="charts"),
        _not_finite(run),
        _validations(run),
        id="curves",
    )


def _charts(run: RunLog) -> list[Chart]:
    cross_entropy = _points(run.training, "cross_entropy")
    loss = _points(run.training, "loss")
    training = Series("training", cross_entropy, 2) if cross_entropy else Series("training, label-smoothed", loss, 2)
    valid = [{"step": line["step"], **as_record(line["valid"])} for line in run.validation]
    utilization = [(step, 100 * value) for step, value in _points(run.training, "utilization")]

    has_labels = any("macro_f1" in scores for scores in valid)  # only labels of texts or words have this score
    unit = "label" if has_labels else "token"

    def chart(title: str, axis: str, *series: Series, **options: Any) -> Chart:
        return Chart(title, axis, series, run.last_step, run.best_step, **options)

    return [
        chart(
            "Loss",
            f"cross entropy per {unit}, in nats" if cross_entropy or not loss else f"per {unit}, in nats",
            training,
            Series("validation", _points(valid, "loss"), 1),
            from_zero=False,
            log_ratio=4,
            large=True,
        ),
        chart(
            "BLEU and chrF",
            "validation, 0 to 100",
            Series("BLEU", _points(valid, "bleu"), 1),
            Series("chrF", _points(valid, "chrf"), 2),
        ),
        chart(
            "Bits per byte",
            "validation",
            Series("bits per byte", _points(valid, "bits_per_byte")),
            from_zero=False,
            log_ratio=4,
        ),
        chart(
            "Accuracy and macro-F1" if has_labels else "Accuracy",
            "validation, 0 to 1",
            Series("accuracy", _points(valid, "accuracy"), 1),
            *([Series("macro-F1", _points(valid, "macro_f1"), 2)] if has_labels else []),
        ),
        chart(
            "Perplexity of both directions",
            "validation",
            Series("forward", _points(valid, "forward_perplexity"), 1),
            Series("backward", _points(valid, "backward_perplexity"), 2),
            from_zero=False,
            log_ratio=4,
        ),
        chart("Learning rate", "", Series("learning rate", _points(run.training, "learning_rate"))),
        chart("Throughput", f"{unit}s per second", Series(f"{unit}s/s", _points(run.training, "tokens_per_second"))),
        chart("Utilization", "% of the peak matmul rate of the machine", Series("utilization, %", utilization)),
        chart(
            "Gradient norm",
            "before clipping",
            Series("gradient norm", _points(run.training, "grad_norm")),
            log_ratio=10,
        ),
    ]


def _points(lines: Sequence[Record], key: str) -> list[StepValue]:
    points = [(line["step"], finite_number(line.get(key))) for line in lines]
    return [(step, value) for step, value in points if value is not None]


def _not_finite(run: RunLog) -> Markup:
    """A note on where the training loss was first not finite."""
    keys = ("loss", "cross_entropy")
    steps = [
        line["step"] for line in run.training if any(key in line and finite_number(line[key]) is None for key in keys)
    ]
    if not steps:
        return Markup("")
    count = "once" if len(steps) == 1 else f"{len(steps):,} times"
    return tag("p", f"The training loss was not finite {count}, first at step {steps[0]:,}.", class_="note warning")


def _validations(run: RunLog) -> Markup:
    if not run.validation:
        return Markup("")
    every = -(-len(run.validation) // MAX_ROWS)
    best = run.best_step
    shown = [
        line
        for n, line in enumerate(reversed(run.validation))
        if n % every == 0 or line["step"] == best  # counted from the last, which is always shown
    ][::-1]
    present = list(dict.fromkeys(key for line in shown for key in known_scores(as_record(line["valid"]))))
    keys = [key for key in COLUMN_ORDER if key in present] + [key for key in present if key not in COLUMN_ORDER]
    rows = []
    for line in shown:
        values = [finite_number(as_record(line["valid"]).get(key)) for key in keys]
        cells = [score_text(key, value) if value is not None else "–" for key, value in zip(keys, values, strict=True)]
        step = f"{line['step']:,}"
        rows.append([join(step, tag("span", "best", class_="badge")) if line["step"] == best else step, *cells])
    title = f"Validations, every {every}th of {len(run.validation):,}" if every > 1 else "All validations"
    return tag("details", tag("summary", title), table(["step", *map(score_name, keys)], rows, class_="numbers"))
