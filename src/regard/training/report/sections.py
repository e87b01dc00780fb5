"""The sections of the report in words and tables: header, scores, data, settings, environment and command."""

import re
import shlex
from datetime import datetime

from regard.html import Markup, join, shorten, table, tag, user_text
from regard.training.display import COUNT_SCORES, duration, score_name, score_text
from regard.training.report.run_log import Record, RunLog, as_record, as_records, finite_number

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
MAX_CONFIG_CHARACTERS = 100_000
ENVIRONMENT_NAMES = {
    "precision": "precision setting",
    "matmul_dtype": "matmul dtype",
    "matmul_gflops": "matmul peak, GFLOP/s",
}


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
    evaluations = [
        (label, as_record(results.get(key))) for key, label in _labels(results, as_record(run.info.get("searches")))
    ]
    evaluations = [(label, found) for label, found in evaluations if known_scores(found)]
    if not evaluations and run.validation:
        step = run.best_step
        line = next((line for line in run.validation if line["step"] == step), run.validation[-1])
        evaluations = [(f"validation, step {line['step']:,}", as_record(line["valid"]))]
    if not any(known_scores(values) for _, values in evaluations):
        return Markup("")
    # the test set if there is one; not the baselines after it
    label, values = [row for row in evaluations if row[0].startswith(("test", "validation, "))][-1]
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


def _labels(results: Record, searches: Record) -> list[tuple[str, str]]:
    step = finite_number(as_record(results.get("best")).get("step"))
    best = "validation, best model" + (f" (step {step:,.0f})" if step is not None else "")
    sentences = finite_number(as_record(results.get("test")).get("sentences"))
    test = "test set" + (f", {sentences:,.0f} sentences" if sentences is not None else "")
    evaluations = [("best", best), ("average", "validation, averaged model"), ("test", test)]
    return [
        *((key, f"{label}, {searches[key]}" if searches.get(key) else label) for key, label in evaluations),
        ("majority", "majority baseline: the most frequent label for every example"),
        ("base_before", "validation of the base model, before fine-tuning"),
        ("base_after", "validation of the base model, after fine-tuning"),
    ]


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


def data(run: RunLog) -> Markup:
    """How many examples were read and kept, and why others were not."""
    splits = {name: as_record(counts) for name, counts in as_record(run.info.get("data")).items()}
    splits = {name: counts for name, counts in splits.items() if counts}
    if not splits:
        return Markup("")
    reasons = list(dict.fromkeys(key for counts in splits.values() for key in counts if key not in ("read", "kept")))
    rows = []
    for name, counts in splits.items():
        read, kept = finite_number(counts.get("read")), finite_number(counts.get("kept"))
        fraction = f"{_percent_rounded_down(kept / read)}%" if read and kept is not None else "–"
        others = (_count(finite_number(counts.get(key, 0))) for key in reasons)
        rows.append([name, _count(read), _count(kept), fraction, *others])
    head = ["", "read", "kept", "kept, %", *reasons]
    return tag("section", tag("h2", "Data"), table(head, rows, class_="numbers"), id="data")


def automatic_settings(run: RunLog) -> Markup:
    """Settings that were chosen from the data, because the user left them open."""
    records = as_records(run.info.get("automatic_settings"))
    if not records:
        return Markup("")
    rows = [
        [
            tag("code", str(record.get("setting", ""))),
            tag("code", str(record.get("value", ""))),
            str(record.get("reason", "")),
        ]
        for record in records
    ]
    return tag(
        "section",
        tag("h2", "Automatic settings"),
        tag("p", "Settings that were left open, the values chosen for the data, and the reasons.", class_="note"),
        table(["setting", "value", "reason"], rows, class_="choices"),
        id="automatic-settings",
    )


def settings(run: RunLog) -> Markup:
    """All settings, folded."""
    if not run.config.strip():
        return Markup("")
    lines = shorten(run.config, MAX_CONFIG_CHARACTERS).splitlines()
    content = join(*(part for line in lines for part in (*_toml(line), "\n")))
    folded = tag("details", tag("summary", "config.toml: all settings"), tag("pre", tag("code", content)))
    return tag("section", tag("h2", "Settings"), folded, id="settings")


def environment(run: RunLog) -> Markup:
    """Versions and hardware, and when the run started and finished."""
    record = as_record(run.info.get("environment"))
    rows: dict[str, str] = {
        ENVIRONMENT_NAMES.get(key, key): _value(value) for key, value in record.items() if value is not None
    }
    for moment in ("started", "finished"):
        if run.info.get(moment):
            rows[moment] = date(str(run.info[moment]))
    if not rows:
        return Markup("")
    pairs = [tag("div", tag("dt", name), tag("dd", value)) for name, value in rows.items()]
    return tag("section", tag("h2", "Environment"), tag("dl", *pairs, class_="pairs"), id="environment")


def command(run: RunLog) -> Markup:
    """The command of the run, quoted for a shell."""
    words = run.info.get("command")
    if not isinstance(words, list) or not words:
        return Markup("")
    line = shlex.join(str(word) for word in words)
    return tag(
        "section", tag("h2", "Command to repeat the run"), tag("pre", tag("code", line, class_="copy")), id="command"
    )


def _toml(line: str) -> tuple[str, ...]:
    """A line of TOML with its comment marked; a # in quotes starts none."""
    match = re.match(r"""((?:"(?:\\.|[^"\\])*"|'[^']*'|[^#"'])*)(#.*)""", line)
    return (match[1], tag("span", match[2], class_="comment")) if match else (line,)


def _count(value: float | None) -> str:
    return f"{value:,.0f}" if value is not None else "–"


def _percent_rounded_down(fraction: float) -> str:
    return f"{int(fraction * 1000) / 10:g}"  # 100% means that nothing was left out


def _value(value: object) -> Markup:
    return user_text("span", f"{value:,}" if finite_number(value) is not None else str(value))
