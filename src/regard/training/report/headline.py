"""The top of the report: what was trained, how it ended, and how good it is."""

from datetime import datetime

from regard.html import Markup, join, table, tag, user_text
from regard.training.formatting import duration, score_name, score_text
from regard.training.report.run_log import Record, RunLog, as_record, finite_number

SCORES = (
    "accuracy",
    "macro_f1",
    "span_f1",
    "bleu",
    "chrf",
    "bits_per_byte",
    "perplexity",
    "forward_perplexity",
    "backward_perplexity",
    "exact",
    "loss",
)
LARGEST = 4  # figures shown large
STATUS = {"finished": "good", "early stopped": "good", "interrupted": "warning", "failed": "warning"}


def header(run: RunLog) -> Markup:
    """The title, the status and one line on the run."""
    task = str(run.facts.get("task") or "")
    status = str(run.facts.get("status") or "")
    failure = str(run.facts.get("failure") or "")
    return tag(
        "header",
        tag("p", "Training report" + (f" · {task}" if task else ""), class_="kind"),
        tag(
            "div",
            user_text("h1", run.name, max_length=200),
            tag("span", status, class_=f"status {STATUS.get(status, '')}".rstrip()) if status else "",
            class_="title",
        ),
        tag("p", " · ".join(_summary(run)), class_="summary"),
        user_text("p", failure, class_="note warning") if failure else "",  # it may quote the data
    )


def scores(run: RunLog) -> Markup:
    """The scores as large figures, all of them in a table, and the signatures that make them comparable."""
    results = as_record(run.facts.get("results"))
    shown = [(label, as_record(results.get(key))) for key, label in _labels(results)]
    shown = [(label, found) for label, found in shown if _known(found)]
    if not shown and run.validation:
        step = run.best_step
        line = next((line for line in run.validation if line["step"] == step), run.validation[-1])
        shown = [(f"validation, step {line['step']:,}", as_record(line["valid"]))]
    if not any(_known(found) for _, found in shown):
        return Markup("")
    label, found = shown[-1]  # the test set where there is one
    figures = [
        tag("div", tag("dt", score_name(key)), tag("dd", score_text(key, value)))
        for key, value in list(_known(found).items())[:LARGEST]
    ]
    return tag(
        "section",
        tag("h2", "Scores"),
        tag("dl", *figures, class_="figures"),
        tag("p", f"On the {label}." if label.startswith("test") else f"From {label}.", class_="note"),
        _table(shown) if len(shown) > 1 else "",
        _signatures(as_record(run.facts.get("signatures"))),
        id="scores",
    )


def _summary(run: RunLog) -> list[str]:
    said = []
    parameters = finite_number(run.facts.get("parameters"))
    if parameters is not None:
        said.append(f"{parameters:,.0f} parameters")
    last = max([*run.training[-1:], *run.validation[-1:]], key=lambda line: line["step"], default={})
    if run.last_step:
        said.append(f"{run.last_step:,} steps")
    epoch = finite_number(last.get("epoch"))
    if epoch is not None:
        said.append(f"{epoch:.1f} epochs")
    seconds = finite_number(last.get("seconds"))
    if seconds is not None:
        said.append(f"trained {duration(seconds)}")
    if run.facts.get("started"):
        said.append(date(str(run.facts["started"])))
    return said


def date(written: str) -> str:
    """A date and time as people write it.

    >>> date("2026-11-15T23:20:00+00:00")
    '15 November 2026, 23:20 UTC'
    """
    try:
        moment = datetime.fromisoformat(written)
    except ValueError:
        return written
    zone = moment.strftime(" %Z") if moment.tzinfo else ""
    return f"{moment.day} {moment:%B %Y, %H:%M}{zone}"


def _labels(results: Record) -> list[tuple[str, str]]:
    step = finite_number(as_record(results.get("best")).get("step"))
    best = "validation, best model" + (f" (step {step:,.0f})" if step is not None else "")
    sentences = finite_number(as_record(results.get("test")).get("sentences"))
    test = "test set" + (f", {sentences:,.0f} sentences" if sentences is not None else "")
    return [("best", best), ("average", "validation, averaged model"), ("test", test)]


def _known(found: Record) -> dict[str, float]:
    values = {key: finite_number(found.get(key)) for key in SCORES}
    return {key: value for key, value in values.items() if value is not None}


def _table(shown: list[tuple[str, Record]]) -> Markup:
    keys = [key for key in SCORES if any(key in _known(found) for _, found in shown)]
    rows = []
    for label, found in shown:
        known = _known(found)
        rows.append([label, *(score_text(key, known[key]) if key in known else "–" for key in keys)])
    return table(["", *map(score_name, keys)], rows, class_="numbers")


def _signatures(signatures: Record) -> Markup:
    if not signatures:
        return Markup("")
    lines = [
        tag("div", tag("dt", score_name(key)), tag("dd", tag("code", str(value), class_="copy")))
        for key, value in signatures.items()
    ]
    return join(
        tag("p", "Signatures of sacrebleu: scores with equal signatures can be compared.", class_="note"),
        tag("dl", *lines, class_="signatures"),
    )
