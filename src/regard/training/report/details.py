"""The foot of the report: data, choices, settings, machine, and the command that makes the run again."""

import re
import shlex

from regard.html import Markup, join, shorten, table, tag, user_text
from regard.training.report.headline import date
from regard.training.report.run_log import RunLog, as_record, as_records, finite_number

MAX_CONFIG_CHARACTERS = 100_000  # characters of settings

ENVIRONMENT = {
    "precision": "precision asked for",
    "matmul_dtype": "matrix products in",
    "matmul_gflops": "matrix product, GFLOP/s",
}


def data(run: RunLog) -> Markup:
    """How many examples were read and kept, and why the others were not."""
    splits = {name: as_record(counts) for name, counts in as_record(run.facts.get("data")).items()}
    splits = {name: counts for name, counts in splits.items() if counts}
    if not splits:
        return Markup("")
    reasons = list(dict.fromkeys(key for counts in splits.values() for key in counts if key not in ("read", "kept")))
    rows = []
    for name, counts in splits.items():
        read, kept = finite_number(counts.get("read")), finite_number(counts.get("kept"))
        share = f"{_floor(kept / read)}%" if read and kept is not None else "–"
        rows.append(
            [name, _count(read), _count(kept), share, *(_count(finite_number(counts.get(key, 0))) for key in reasons)]
        )
    head = ["", "read", "kept", "kept, %", *reasons]
    return tag("section", tag("h2", "Data"), table(head, rows, class_="numbers"), id="data")


def choices(run: RunLog) -> Markup:
    """What regard picked because nobody said otherwise."""
    found = as_records(run.facts.get("choices"))
    if not found:
        return Markup("")
    rows = [
        [tag("code", str(one.get("setting", ""))), tag("code", str(one.get("value", ""))), str(one.get("why", ""))]
        for one in found
    ]
    return tag(
        "section",
        tag("h2", "Picked for this run"),
        tag("p", "What was left open, what it was set to, and why.", class_="note"),
        table(["setting", "value", "why"], rows, class_="choices"),
        id="choices",
    )


def settings(run: RunLog) -> Markup:
    """Every setting, folded away."""
    if not run.config.strip():
        return Markup("")
    lines = shorten(run.config, MAX_CONFIG_CHARACTERS).splitlines()
    content = join(*(piece for line in lines for piece in (*_toml(line), "\n")))
    folded = tag("details", tag("summary", "config.toml: every setting"), tag("pre", tag("code", content)))
    return tag("section", tag("h2", "Settings"), folded, id="settings")


def environment(run: RunLog) -> Markup:
    """The versions and the machine."""
    found = as_record(run.facts.get("environment"))
    rows: dict[str, str] = {
        ENVIRONMENT.get(key, key): _plain(value) for key, value in found.items() if value is not None
    }
    for moment in ("started", "finished"):
        if run.facts.get(moment):
            rows[moment] = date(str(run.facts[moment]))
    if not rows:
        return Markup("")
    pairs = [tag("div", tag("dt", name), tag("dd", value)) for name, value in rows.items()]
    return tag("section", tag("h2", "Environment"), tag("dl", *pairs, class_="pairs"), id="environment")


def command(run: RunLog) -> Markup:
    """The command to type, quoted for a shell."""
    words = run.facts.get("command")
    if not isinstance(words, list) or not words:
        return Markup("")
    line = shlex.join(str(word) for word in words)
    return tag(
        "section", tag("h2", "To make this run again"), tag("pre", tag("code", line, class_="copy")), id="command"
    )


def _toml(line: str) -> tuple[str, ...]:
    """A line of TOML with its comment set apart; a # inside quotes starts none."""
    match = re.match(r"""((?:"(?:\\.|[^"\\])*"|'[^']*'|[^#"'])*)(#.*)""", line)
    return (match[1], tag("span", match[2], class_="comment")) if match else (line,)


def _count(value: float | None) -> str:
    return f"{value:,.0f}" if value is not None else "–"


def _floor(share: float) -> str:
    return f"{int(share * 1000) / 10:g}"  # downwards: 100% means that nothing was left out


def _plain(value: object) -> Markup:
    return user_text("span", f"{value:,}" if finite_number(value) is not None else str(value))
