"""The top of the report: what was trained, how the run ended, and its scores."""

from datetime import datetime

from regard.html import Markup, join, table, tag, user_text
from regard.training.formatting import COUNT_SCORES, duration, score_name, score_text
from regard.training.report.run_log import Record, RunLog, as_record, finite_number

SCORE_ORDER = (
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
MAIN_SCORES = 4  # shown in large type
STATUS_CLASSES = {"finished": "good", "early stopped": "good", "interrupted": "warning", "failed": "warning"}


def header(run: RunLog) -> Markup:
    """The title, the status and a summary line."""
    task = str(run.info.get("task") or "")
    status = str(run.info.get("status") or "")
    failure = str(run.info.get("failure") or "")
    return tag(
        "header",
        tag("p", "Training report" + (f" · {task}" if task else ""), class_="kind"),
        tag(
            "div",
            user_text("h1", run.name, max_length=200),
            tag("span", status, class_=f"status {STATUS_CLASSES.get(status, '')}".rstrip()) if status else "",
            class_="title",
        ),
        tag("p", " · ".join(_summary(run)), class_="summary"),
        user_text("p", failure, class_="note warning") if failure else "",  # it may quote the data
    )


def scores(run: RunLog) -> Markup:
    """The main scores in large type, all scores in a table, and the signatures of sacrebleu."""
    results = as_record(run.info.get("results"))
    evaluations = [(label, as_record(results.get(key))) for key, label in _labels(results)]
    evaluations = [(label, found) for label, found in evaluations if known_scores(found)]
    if not evaluations and run.validation:
        step = run.best_step
        line = next((line for line in run.validation if line["step"] == step), run.validation[-1])
        evaluations = [(f"validation, step {line['step']:,}", as_record(line["valid"]))]
    if not any(known_scores(values) for _, values in evaluations):
        return Markup("")
    label, values = evaluations[-1]  # the test set if there is one
    main_scores = [
        tag("div", tag("dt", score_name(key)), tag("dd", score_text(key, value)))
        for key, value in list(known_scores(values).items())[:MAIN_SCORES]
    ]
    return tag(
        "section",
        tag("h2", "Scores"),
        tag("dl", *main_scores, class_="figures"),
        tag("p", f"On the {label}." if label.startswith("test") else f"From {label}.", class_="note"),
        _table(evaluations) if len(evaluations) > 1 else "",
        _signatures(as_record(run.info.get("signatures"))),
        id="scores",
    )


def known_scores(values: Record) -> dict[str, float]:
    """The finite scores of an evaluation: the usual ones in order, then those of other tasks; no counts."""
    others = [key for key in values if key not in (*SCORE_ORDER, *COUNT_SCORES, "step")]
    numbers = {key: finite_number(values.get(key)) for key in (*SCORE_ORDER, *others)}
    return {key: value for key, value in numbers.items() if value is not None}


def _summary(run: RunLog) -> list[str]:
    texts = []
    parameters = finite_number(run.info.get("parameters"))
    if parameters is not None:
        texts.append(f"{parameters:,.0f} parameters")
    last = max([*run.training[-1:], *run.validation[-1:]], key=lambda line: line["step"], default={})
    if run.last_step:
        texts.append(f"{run.last_step:,} steps")
    epoch = finite_number(last.get("epoch"))
    if epoch is not None:
        texts.append(f"{epoch:.1f} epochs")
    seconds = finite_number(last.get("seconds"))
    if seconds is not None:
        texts.append(f"trained {duration(seconds)}")
    if run.info.get("started"):
        texts.append(date(str(run.info["started"])))
    return texts


def date(text: str) -> str:
    """A date and time in ISO format as text.

    >>> date("2026-11-15T23:20:00+00:00")
    '15 November 2026, 23:20 UTC'
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    zone = moment.strftime(" %Z") if moment.tzinfo else ""
    return f"{moment.day} {moment:%B %Y, %H:%M}{zone}"


def _labels(results: Record) -> list[tuple[str, str]]:
    step = finite_number(as_record(results.get("best")).get("step"))
    best = "validation, best model" + (f" (step {step:,.0f})" if step is not None else "")
    sentences = finite_number(as_record(results.get("test")).get("sentences"))
    test = "test set" + (f", {sentences:,.0f} sentences" if sentences is not None else "")
    return [("best", best), ("average", "validation, averaged model"), ("test", test)]


def _table(evaluations: list[tuple[str, Record]]) -> Markup:
    keys = list(known_scores({key: value for _, values in evaluations for key, value in known_scores(values).items()}))
    rows = []
    for label, values in evaluations:
        known = known_scores(values)
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
        tag("p", "Signatures of sacrebleu: scores with equal signatures are comparable.", class_="note"),
        tag("dl", *lines, class_="signatures"),
    )
