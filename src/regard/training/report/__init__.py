"""`report.html`: a run on one page, without external files; and its sections with outputs of the model.

These are the confusion matrix, selected outputs, and how outputs changed in training.
"""

import re
import unicodedata
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import groupby
from pathlib import Path

from regard.errors import ModelError
from regard.files import check_regular_file, write_bytes
from regard.html import Markup, document, join, package_file, shorten, tag, user_text
from regard.training.report import curves, sections
from regard.training.report.run_log import Record, RunLog, as_record, as_records, finite_number, read_run_log


def write_report(run: Path) -> Path:
    """Write `report.html` from the files of a run folder, atomically, and return its path.

    Sections whose files are missing are left out; only `metrics.jsonl` is required.

        write_report(Path("runs/en-it"))  # runs/en-it/report.html
    """
    content = page(read_run_log(run)).encode("utf-8")
    report = run / "report.html"
    try:
        if report.exists():
            check_regular_file(report)  # writing to a pipe would wait for a reader
        write_bytes(report, content)
    except OSError as error:
        raise ModelError(f"{report}: cannot be written ({error.strerror}).") from None
    return report


def page(run: RunLog) -> str:
    """The report as HTML: its sections in order, with style and script inline."""
    content = [
        sections.scores(run),
        curves.curves(run),
        confusion(run),
        outputs(run),
        changes(run),
        sections.data(run),
        sections.automatic_settings(run),
        sections.settings(run),
        sections.environment(run),
        sections.command(run),
    ]
    main = tag("main", sections.header(run), *content)
    script = tag("script", package_file(__package__, "hover.js"))
    return document(f"{run.name}: training report", Markup(""), main, script)


GROUPS = {"random": "Random", "best": "Best", "worst": "Worst"}
VISIBLE_OUTPUTS, MAX_OUTPUTS = 3, 10  # of a group: visible at once, and in all
FOLLOWED_SAMPLES, MAX_STAGES = 4, 8  # samples whose changes are shown, and different outputs of each
MAX_TEXT_CHARACTERS = 1000
MAX_COMPARED_WORDS = 300  # comparing takes more than the product of both lengths
MAX_LABELS = 40  # of a confusion matrix
MAX_LABEL_CHARACTERS = 30


def outputs(run: RunLog) -> Markup:
    """Random outputs first, since the best and the worst are not representative."""
    groups = [_group(title, as_records(run.outputs.get(key))) for key, title in GROUPS.items()]
    if not any(groups):
        return Markup("")
    note = tag("p", "Marked words of an output differ from the reference.", class_="note")
    return tag("section", tag("h2", "Outputs"), note, *groups, id="outputs")


def changes(run: RunLog) -> Markup:
    """The outputs for a few examples at one validation after another."""
    followed: dict[tuple[str, str], list[Record]] = {}
    for sample in run.samples:
        followed.setdefault((_text(sample, "source", "prompt"), _text(sample, "reference")), []).append(sample)
    if not followed:
        return Markup("")
    histories = [_history(*example, samples) for example, samples in list(followed.items())[:FOLLOWED_SAMPLES]]
    return tag("section", tag("h2", "How the outputs changed"), *histories, id="changes")


def _group(title: str, records: Sequence[Record]) -> Markup:
    if not records:
        return Markup("")
    cards = [_card(record) for record in records[:MAX_OUTPUTS]]
    visible, rest = cards[:VISIBLE_OUTPUTS], cards[VISIBLE_OUTPUTS:]
    more = tag("details", tag("summary", f"{len(rest)} more"), *rest) if rest else ""
    return tag("div", tag("h3", title), *visible, more, class_="group")


def _card(record: Record) -> Markup:
    output, reference = _text(record, "output"), _text(record, "reference")
    score, probability = finite_number(record.get("score")), finite_number(record.get("probability"))
    rows = _input_rows(_text(record, "source"), _text(record, "prompt"), reference)
    rows.append(_row("output", mark_differences(output, reference) if reference else join(output), "output"))
    if probability is not None:
        rating = f"probability {probability:.0%}"
    elif reference and output == reference:
        rating = "exact match"
    else:
        rating = f"chrF {score:.1f}" if score is not None else ""
    return tag("dl", *rows, tag("div", rating, class_="verdict") if rating else "", class_="sample")


def _history(source: str, reference: str, samples: Sequence[Record]) -> Markup:
    """The outputs for one example; an output that did not change is shown once, with its range of steps."""
    stages: list[tuple[int, int, str]] = []
    for sample in samples:
        step, output = sample["step"], _text(sample, "output")
        if stages and stages[-1][2] == output:
            stages[-1] = (stages[-1][0], step, output)
        else:
            stages.append((step, step, output))
    if len(stages) > MAX_STAGES:
        stages = [stages[n * (len(stages) - 1) // (MAX_STAGES - 1)] for n in range(MAX_STAGES)]
    is_prompt = "prompt" in samples[0]
    rows = _input_rows("" if is_prompt else source, source if is_prompt else "", "")
    for first, last, output in stages:
        steps = f"{first:,}" if first == last else f"{first:,} – {last:,}"
        content = mark_differences(output, reference) if reference else join(output)
        rows.append(_row(f"step {steps}", content, "stage"))
    if reference:
        rows.append(_row("reference", reference, "given"))
    return tag("dl", *rows, class_="sample story")


def _input_rows(source: str, prompt: str, reference: str) -> list[Markup]:
    texts = {"source": source, "prompt": prompt, "reference": reference}
    return [_row(name, text, "given") for name, text in texts.items() if text]


def _row(name: str, content: str, style: str) -> Markup:
    empty = tag("dd", tag("span", "empty", class_="empty"))
    value = user_text("dd", content, MAX_TEXT_CHARACTERS) if content else empty
    return tag("div", tag("dt", name), value, class_=style)


def _text(record: Record, *keys: str) -> str:
    value = next((record[key] for key in keys if record.get(key) is not None), "")
    return shorten(str(value), MAX_TEXT_CHARACTERS)


def mark_differences(output: str, reference: str) -> Markup:
    """The output with the words marked that differ from the reference.

    >>> mark_differences("ti voglio bene", "ti amo")
    'ti <mark>voglio bene</mark>'
    """
    words, reference_words = _words(output), _words(reference)
    positions = [n for n, word in enumerate(words) if not word.isspace()]
    expected = [word for word in reference_words if not word.isspace()]
    if not positions or not expected or max(len(positions), len(expected)) > MAX_COMPARED_WORDS:
        return join(output)
    differs = [True] * len(words)
    matches = SequenceMatcher(None, [words[n] for n in positions], expected, autojunk=False)
    for start, _, length in matches.get_matching_blocks():
        for n in positions[start : start + length]:
            differs[n] = False
    for n, word in enumerate(words):
        if word.isspace():  # a space is marked between two marked words
            differs[n] = 0 < n < len(words) - 1 and differs[n - 1] and differs[n + 1]
    content: list[str] = []
    for marked, indices in groupby(range(len(words)), key=differs.__getitem__):
        text = "".join(words[n] for n in indices)
        content.append(tag("mark", text) if marked else text)
    return join(*content)


def _words(text: str) -> list[str]:
    """Words, spaces and punctuation; in scripts without spaces, characters."""
    if re.search(r"\s", text.strip()):
        return re.findall(r"\s+|\w+|[^\w\s]", text)
    characters: list[str] = []
    for character in text:
        if characters and unicodedata.category(character).startswith("M"):
            characters[-1] += character  # an accent belongs to its letter
        else:
            characters.append(character)
    return characters


def confusion(run: RunLog) -> Markup:
    """The confusion matrix: a row for each correct label, a column for each predicted one."""
    record = as_record(run.outputs.get("confusion"))
    labels, counts = record.get("labels"), record.get("counts")
    if not isinstance(labels, list) or not isinstance(counts, list) or not 0 < len(labels) <= MAX_LABELS:
        return Markup("")
    rows = [[finite_number(cell) or 0.0 for cell in row] if isinstance(row, list) else [] for row in counts]
    if [len(row) for row in rows] != [len(labels)] * len(labels):
        return Markup("")
    names = [str(label) for label in labels]
    columns = [sum(row[n] for row in rows) for n in range(len(names))]
    body = [_matrix_row(n, names[n], row) for n, row in enumerate(rows)]
    corner = tag("th", "correct ↓  predicted →")
    head = tag("tr", corner, *(_label_cell(name, "col") for name in names), tag("th", "recall"))
    foot = tag(
        "tr",
        tag("th", "precision", scope="row"),
        *(tag("td", _percentage(rows[n][n], columns[n])) for n in range(len(names))),
        tag("td", _percentage(sum(rows[n][n] for n in range(len(rows))), sum(columns))),
        class_="shares",
    )
    table = tag("table", tag("thead", head), tag("tbody", *body, foot), class_="confusion")
    note = "Rows are correct labels, columns predicted ones; stronger colors are a larger part of their row."
    return tag(
        "section",
        tag("h2", "Confusion matrix"),
        tag("p", note, class_="note"),
        tag("div", table, class_="wide"),
        id="confusion",
    )


def _matrix_row(index: int, name: str, counts: list[float]) -> Markup:
    total = sum(counts)
    cells = [
        tag(
            "td",
            f"{count:,.0f}",
            class_="hit" if column == index else "miss",
            style=f"--share:{count / total if total else 0:.3f}",
        )
        for column, count in enumerate(counts)
    ]
    return tag("tr", _label_cell(name, "row"), *cells, tag("td", _percentage(counts[index], total), class_="share"))


def _label_cell(name: str, scope: str) -> Markup:
    return user_text("th", name, MAX_LABEL_CHARACTERS, scope=scope)


def _percentage(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole else "–"
