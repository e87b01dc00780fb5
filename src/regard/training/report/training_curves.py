"""The curves of the report: training and validation metrics over the steps."""

from collections.abc import Sequence
from typing import Any

from regard.html import Markup, join, table, tag
from regard.training.formatting import score_name, score_text
from regard.training.report.charts import Chart, Point, Series
from regard.training.report.headline import known_scores
from regard.training.report.run_log import Record, RunLog, as_record, finite_number

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


def _points(lines: Sequence[Record], key: str) -> list[Point]:
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
