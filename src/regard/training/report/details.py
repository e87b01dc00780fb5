"""The details of a run in the report: data, automatic settings, config, environment and command."""

import re
import shlex

from regard.html import Markup, join, shorten, table, tag, user_text
from regard.training.report.headline import date
from regard.training.report.run_log import RunLog, as_record, as_records, finite_number

MAX_CONFIG_CHARACTERS = 100_000
ENVIRONMENT_NAMES = {
    "precision": "precision setting",
    "matmul_dtype": "matmul dtype",
    "matmul_gflops": "matmul peak, GFLOP/s",
}


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
