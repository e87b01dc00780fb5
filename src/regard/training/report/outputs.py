"""What the model wrote: chosen sentences of the test, and how its answers changed while it learned."""

import re
import unicodedata
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import groupby

from regard.html import Markup, join, shorten, tag, user_text
from regard.training.report.run_log import Record, RunLog, as_record, as_records, finite_number

GROUPS = {"random": "Drawn at random", "best": "Best", "worst": "Worst"}
AT_ONCE, AT_MOST = 3, 10  # sentences of a group shown openly, and in all
FOLLOWED, STAGES = 4, 8  # sentences followed through the run, and stages of each
MAX_TEXT_CHARACTERS = 1000  # characters of one text


def outputs(run: RunLog) -> Markup:
    """Sentences at random first, since the best and the worst alone tell little."""
    groups = [_group(title, as_records(run.outputs.get(key))) for key, title in GROUPS.items()]
    if not any(groups):
        return Markup("")
    note = tag("p", "Marked words of an output differ from the reference.", class_="note")
    return tag("section", tag("h2", "Outputs"), note, *groups, id="outputs")


def changes(run: RunLog) -> Markup:
    """A few sentences, and what the model made of them at one validation after another."""
    followed: dict[tuple[str, str], list[Record]] = {}
    for sample in run.samples:
        followed.setdefault((_text(sample, "source", "prompt"), _text(sample, "reference")), []).append(sample)
    if not followed:
        return Markup("")
    stories = [_story(*asked, answers) for asked, answers in list(followed.items())[:FOLLOWED]]
    return tag("section", tag("h2", "How the outputs changed"), *stories, id="changes")


def _group(title: str, found: Sequence[Record]) -> Markup:
    if not found:
        return Markup("")
    cards = [_card(each) for each in found[:AT_MOST]]
    shown, rest = cards[:AT_ONCE], cards[AT_ONCE:]
    more = tag("details", tag("summary", f"{len(rest)} more"), *rest) if rest else ""
    return tag("div", tag("h3", title), *shown, more, class_="group")


def _card(found: Record) -> Markup:
    output, reference = _text(found, "output"), _text(found, "reference")
    score = finite_number(found.get("score"))
    same = bool(reference) and output == reference
    rows = _asked(_text(found, "source"), _text(found, "prompt"), reference)
    rows.append(_row("output", marked(output, reference) if reference else join(output), "output"))
    probability = finite_number(found.get("probability"))
    verdict = "exact match" if same else f"chrF {score:.1f}" if score is not None else ""
    verdict = f"probability {probability:.0%}" if probability is not None else verdict
    return tag("dl", *rows, tag("div", verdict, class_="verdict") if verdict else "", class_="sample")


def _story(source: str, reference: str, answers: Sequence[Record]) -> Markup:
    """Answers that stay the same for several validations are shown once, with the steps they held for."""
    stages: list[tuple[int, int, str]] = []
    for answer in answers:
        step, output = answer["step"], _text(answer, "output")
        if stages and stages[-1][2] == output:
            stages[-1] = (stages[-1][0], step, output)
        else:
            stages.append((step, step, output))
    if len(stages) > STAGES:
        stages = [stages[place * (len(stages) - 1) // (STAGES - 1)] for place in range(STAGES)]
    is_prompt = "prompt" in answers[0]
    rows = _asked("" if is_prompt else source, source if is_prompt else "", "")
    for first, last, output in stages:
        steps = f"{first:,}" if first == last else f"{first:,} – {last:,}"
        rows.append(_row(f"step {steps}", marked(output, reference) if reference else join(output), "stage"))
    if reference:
        rows.append(_row("reference", reference, "given"))
    return tag("dl", *rows, class_="sample story")


def _asked(source: str, prompt: str, reference: str) -> list[Markup]:
    given = {"source": source, "prompt": prompt, "reference": reference}
    return [_row(name, content, "given") for name, content in given.items() if content]


def _row(name: str, content: str, kind: str) -> Markup:
    empty = tag("span", "empty", class_="empty")
    return tag(
        "div",
        tag("dt", name),
        user_text("dd", content, MAX_TEXT_CHARACTERS) if content else tag("dd", empty),
        class_=kind,
    )


def _text(found: Record, *keys: str) -> str:
    value = next((found[key] for key in keys if found.get(key) is not None), "")
    return shorten(str(value), MAX_TEXT_CHARACTERS)


MAX_COMPARED_WORDS = 300  # words; comparing takes more than the product of both numbers


def marked(output: str, reference: str) -> Markup:
    """The output with the words that are not in their place in the reference marked.

    >>> marked("ti voglio bene", "ti amo")
    'ti <mark>voglio bene</mark>'
    """
    ours, theirs = _pieces(output), _pieces(reference)
    words = [place for place, piece in enumerate(ours) if not piece.isspace()]
    wanted = [piece for piece in theirs if not piece.isspace()]
    if not words or not wanted or max(len(words), len(wanted)) > MAX_COMPARED_WORDS:
        return join(output)
    differs = [True] * len(ours)
    matches = SequenceMatcher(None, [ours[place] for place in words], wanted, autojunk=False)
    for start, _, length in matches.get_matching_blocks():
        for place in words[start : start + length]:
            differs[place] = False
    for place, piece in enumerate(ours):
        if piece.isspace():  # a space is marked only between two marked words
            differs[place] = 0 < place < len(ours) - 1 and differs[place - 1] and differs[place + 1]
    content: list[str] = []
    for marking, places in groupby(range(len(ours)), key=differs.__getitem__):
        stretch = "".join(ours[place] for place in places)
        content.append(tag("mark", stretch) if marking else stretch)
    return join(*content)


def _pieces(text: str) -> list[str]:
    """Words, spaces and punctuation; where the script has no spaces, characters."""
    if re.search(r"\s", text.strip()):
        return re.findall(r"\s+|\w+|[^\w\s]", text)
    pieces: list[str] = []
    for character in text:
        if pieces and unicodedata.category(character).startswith("M"):
            pieces[-1] += character  # an accent stays on its letter
        else:
            pieces.append(character)
    return pieces


MAX_LABELS = 40  # labels; a larger table cannot be read
MAX_LABEL_CHARACTERS = 30  # characters of a label


def confusion(run: RunLog) -> Markup:
    """The matrix as a table: a row for each right label, a column for each that was given."""
    found = as_record(run.outputs.get("confusion"))
    labels, counts = found.get("labels"), found.get("counts")
    if not isinstance(labels, list) or not isinstance(counts, list) or not 0 < len(labels) <= MAX_LABELS:
        return Markup("")
    rows = [[finite_number(cell) or 0.0 for cell in row] if isinstance(row, list) else [] for row in counts]
    if [len(row) for row in rows] != [len(labels)] * len(labels):
        return Markup("")
    names = [str(label) for label in labels]
    columns = [sum(row[place] for row in rows) for place in range(len(names))]
    body = [_matrix_row(n, names[n], row) for n, row in enumerate(rows)]
    head = tag("tr", tag("th", "right ↓  given →"), *(_label_cell(name, "col") for name in names), tag("th", "recall"))
    foot = tag(
        "tr",
        tag("th", "precision", scope="row"),
        *(tag("td", _percentage(rows[n][n], columns[n])) for n in range(len(names))),
        tag("td", _percentage(sum(rows[n][n] for n in range(len(rows))), sum(columns))),
        class_="shares",
    )
    table = tag("table", tag("thead", head), tag("tbody", *body, foot), class_="confusion")
    note = "A row has what is right, a column what the model said; the darker, the larger the share of its row."
    return tag(
        "section",
        tag("h2", "Which label was taken for which"),
        tag("p", note, class_="note"),
        tag("div", table, class_="wide"),
        id="confusion",
    )


def _matrix_row(place: int, name: str, counts: list[float]) -> Markup:
    total = sum(counts)
    cells = [
        tag(
            "td",
            f"{count:,.0f}",
            class_="hit" if other == place else "miss",
            style=f"--share:{count / total if total else 0:.3f}",
        )
        for other, count in enumerate(counts)
    ]
    return tag("tr", _label_cell(name, "row"), *cells, tag("td", _percentage(counts[place], total), class_="share"))


def _label_cell(name: str, scope: str) -> Markup:
    return user_text("th", name, MAX_LABEL_CHARACTERS, scope=scope)


def _percentage(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole else "–"
