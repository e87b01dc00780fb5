"""Which labels were taken for which: the confusion matrix, its cells the darker the larger their share of a row."""

from regard.training.report.folder import Run, number, record
from regard.training.report.markup import Markup, foreign, tag

MOST = 40  # labels; a larger table cannot be read
LONGEST = 30  # characters of a label


def confusion(run: Run) -> Markup:
    """The matrix as a table: a row for each right label, a column for each that was given."""
    found = record(run.outputs.get("confusion"))
    labels, counts = found.get("labels"), found.get("counts")
    if not isinstance(labels, list) or not isinstance(counts, list) or not 0 < len(labels) <= MOST:
        return Markup("")
    rows = [[number(cell) or 0.0 for cell in row] if isinstance(row, list) else [] for row in counts]
    if [len(row) for row in rows] != [len(labels)] * len(labels):
        return Markup("")
    names = [str(label) for label in labels]
    columns = [sum(row[place] for row in rows) for place in range(len(names))]
    body = [_row(n, names[n], row) for n, row in enumerate(rows)]
    head = tag("tr", tag("th", "right ↓  given →"), *(_name(name, "col") for name in names), tag("th", "recall"))
    foot = tag(
        "tr",
        tag("th", "precision", scope="row"),
        *(tag("td", _share(rows[n][n], columns[n])) for n in range(len(names))),
        tag("td", _share(sum(rows[n][n] for n in range(len(rows))), sum(columns))),
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


def _row(place: int, name: str, counts: list[float]) -> Markup:
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
    return tag("tr", _name(name, "row"), *cells, tag("td", _share(counts[place], total), class_="share"))


def _name(name: str, scope: str) -> Markup:
    return foreign("th", name, LONGEST, scope=scope)


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole else "–"
