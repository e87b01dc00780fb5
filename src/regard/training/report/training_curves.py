"""The curves of the report: how the run went, step by step."""

from collections.abc import Sequence
from typing import Any

from regard.html import Markup, join, table, tag
from regard.training.formatting import score_name, score_text
from regard.training.report.charts import Chart, Point, Series
from regard.training.report.run_log import Record, RunLog, as_record, finite_number

ROWS = 60  # validations in the table
COLUMNS = (
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
    """Every chart that has something to show, and the validations as a table."""
    charts = [chart.draw() for chart in _charts(run)]
    if not any(charts):
        return Markup("")
    return tag(
        "section",
        tag("h2", "Curves"),
        tag("p", "Over training steps.", class_="note"),
        tag("div", *charts, class_="charts"),
        _missing(run),
        _validations(run),
        id="curves",
    )


def _charts(run: RunLog) -> list[Chart]:
    plain = _points(run.training, "cross_entropy")
    smoothed = _points(run.training, "loss")
    training = Series("training", plain, 2) if plain else Series("training, label-smoothed", smoothed, 2)
    valid = [{"step": line["step"], **as_record(line["valid"])} for line in run.validation]
    share = [(step, 100 * value) for step, value in _points(run.training, "utilization")]

    labels = any("macro_f1" in scores for scores in valid)  # of texts or words: tokens have no such score
    what = "label" if labels else "token"

    def chart(title: str, unit: str, *series: Series, **how: Any) -> Chart:
        return Chart(title, unit, series, run.last_step, run.best_step, **how)

    return [
        chart(
            "Loss",
            f"negative log-likelihood per {what}, in nats" if plain or not smoothed else f"per {what}, in nats",
            training,
            Series("validation", _points(valid, "loss"), 1),
            from_zero=False,
            factors=4,
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
            factors=4,
        ),
        chart(
            "Accuracy and macro-F1" if labels else "Accuracy",
            "validation, 0 to 1",
            Series("accuracy", _points(valid, "accuracy"), 1),
            *([Series("macro-F1", _points(valid, "macro_f1"), 2)] if labels else []),
        ),
        chart(
            "Perplexity of both directions",
            "validation",
            Series("forwards", _points(valid, "forward_perplexity"), 1),
            Series("backwards", _points(valid, "backward_perplexity"), 2),
            from_zero=False,
            factors=4,
        ),
        chart("Learning rate", "", Series("rate", _points(run.training, "learning_rate"))),
        chart("Speed", f"{what}s per second", Series(f"{what}s/s", _points(run.training, "tokens_per_second"))),
        chart("Share of the ceiling", "% of this machine's fastest matrix product", Series("share, %", share)),
        chart(
            "Gradient norm",
            "before clipping",
            Series("norm", _points(run.training, "grad_norm")),
            factors=10,
        ),
    ]


def _points(lines: Sequence[Record], key: str) -> list[Point]:
    found = [(line["step"], finite_number(line.get(key))) for line in lines]
    return [(step, value) for step, value in found if value is not None]


def _missing(run: RunLog) -> Markup:
    """A loss that is not a number is what someone looks for in such a report: say where it began."""
    keys = ("loss", "cross_entropy")
    steps = [
        line["step"] for line in run.training if any(key in line and finite_number(line[key]) is None for key in keys)
    ]
    if not steps:
        return Markup("")
    count = "once" if len(steps) == 1 else f"{len(steps):,} times"
    return tag("p", f"The training loss was not a number {count}, first at step {steps[0]:,}.", class_="note warning")


def _validations(run: RunLog) -> Markup:
    if not run.validation:
        return Markup("")
    every = -(-len(run.validation) // ROWS)
    best = run.best_step
    picked = [
        line
        for place, line in enumerate(reversed(run.validation))
        if place % every == 0 or line["step"] == best  # counted from the last, which is always there
    ][::-1]
    keys = [key for key in COLUMNS if _ever(picked, key)]
    rows = []
    for line in picked:
        values = [finite_number(as_record(line["valid"]).get(key)) for key in keys]
        cells = [score_text(key, value) if value is not None else "–" for key, value in zip(keys, values, strict=True)]
        step = f"{line['step']:,}"
        rows.append([join(step, tag("span", "best", class_="badge")) if line["step"] == best else step, *cells])
    note = f", every {every}th of {len(run.validation):,}" if every > 1 else ""
    return tag(
        "details",
        tag("summary", f"All validations in figures{note}" if every == 1 else f"Validations in figures{note}"),
        table(["step", *map(score_name, keys)], rows, class_="numbers"),
    )


def _ever(lines: Sequence[Record], key: str) -> bool:
    return any(finite_number(as_record(line["valid"]).get(key)) is not None for line in lines)
