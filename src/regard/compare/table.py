"""The results of a comparison as a table, Markdown, CSV, JSON and a plot.

Runs that differ in nothing but the seed become one line with mean ± standard deviation. Scores that cannot be compared
with those of the first model are marked with an asterisk, and the notes say what differs.
"""

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from regard.compare import ComparisonRow
from regard.plotting import COLORS, DASHES, label_line_ends, minimal_axes, new_figure, plot_style, save_figure
from regard.training.display import score_name, score_text

UNKNOWN = "–"
MARK = " *"
Measurement = Callable[[ComparisonRow], float | None]


@dataclass(frozen=True)
class RowGroup:
    """Rows that differ in nothing but the seed, or a single row."""

    rows: Sequence[ComparisonRow]

    @property
    def name(self) -> str:
        """The name of the row, or what the names of all have in common.

        >>> rows = [ComparisonRow(f"tiny-seed{n}", "…", 1) for n in (1, 2)]
        >>> RowGroup(rows).name, RowGroup(rows[:1]).name
        ('tiny', 'tiny-seed1')
        """
        if len(self.rows) == 1:
            return self.rows[0].name
        shortest, *others = sorted((row.name for row in self.rows), key=len)
        lengths = range(len(shortest), 0, -1)
        common = next((shortest[:n] for n in lengths if all(name.startswith(shortest[:n]) for name in others)), "")
        stem = common.rstrip("0123456789-_. ")
        return stem.removesuffix("seed").rstrip("-_. ") or stem or self.rows[0].name

    def values(self, measurement: Measurement) -> list[float]:
        """The known values of a measurement."""
        return [value for row in self.rows if (value := measurement(row)) is not None]

    def cell(self, measurement: Measurement, text: Callable[[float], str]) -> str:
        """The value, or mean ± standard deviation, of a measurement."""
        values = self.values(measurement)
        if not values:
            return UNKNOWN
        mean = text(fmean(values))
        return f"{mean} ± {text(stdev(values))}" if len(set(values)) > 1 else mean


def grouped(rows: Iterable[ComparisonRow]) -> list[RowGroup]:
    """Group the runs that differ in nothing but the seed, in the order of their first run."""
    groups: dict[str, list[ComparisonRow]] = {}
    for n, row in enumerate(rows):
        groups.setdefault(row.group or f"row {n}", []).append(row)
    return [RowGroup(members) for members in groups.values()]


def incomparable_scores(rows: Sequence[ComparisonRow]) -> dict[str, dict[str, str]]:
    """Return, by model and score, why a score cannot be compared with that of the first model that has it."""
    reasons: dict[str, dict[str, str]] = {}
    for score in _score_names(rows):
        known = [(row.name, row.basis) for row in rows if score in row.scores and row.basis is not None]
        for name, basis in known[1:]:
            first, first_basis = known[0]
            if reason := basis.difference(first_basis, score):
                reasons.setdefault(name, {})[score] = f"{reason} {first}"
    return reasons


def comparison_notes(rows: Sequence[ComparisonRow]) -> list[str]:
    """Return a note for each reason for which scores are marked, and one on groups of runs."""
    notes = []
    for name, reasons in incomparable_scores(rows).items():
        for reason in dict.fromkeys(reasons.values()):
            scores = ", ".join(score_name(score) for score, why in reasons.items() if why == reason)
            notes.append(f"* {scores} of {name}: {reason}; not comparable.")
    notes += [
        f"{row.name}: {file} has changed since the last checkpoint; what is read from it may be wrong."
        for row in rows
        for file in row.changed_files
    ]
    notes += [
        f"{row.name}: has not finished, and is at step {row.steps:,}; its model and scores are of step "
        f"{row.unfinished_best:,}, the best validation so far."
        for row in rows
        if row.unfinished_best is not None
    ]
    for group in grouped(rows):
        if len(group.rows) > 1:
            names = ", ".join(row.name for row in group.rows)
            notes.append(f"{group.name}: mean ± standard deviation of {len(group.rows)} seeds ({names}).")
    return notes


def comparison_table(rows: Sequence[ComparisonRow]) -> tuple[list[str], list[list[str]]]:
    """Return the header and the cells of the table, without columns that would be empty.

    >>> row = ComparisonRow("tiny", "encoder-decoder Transformer", 648, scores={"loss": 2.5})
    >>> comparison_table([row])
    (['model', 'network', 'parameters', 'loss'], [['tiny', 'encoder-decoder Transformer', '648', '2.500']])
    """
    groups, marked = grouped(rows), incomparable_scores(rows)

    def score_cell(score: str, group: RowGroup) -> str:
        mark = MARK if score in marked.get(group.rows[0].name, {}) else ""
        return group.cell(lambda row: row.scores.get(score), partial(score_text, score)) + mark

    def seeds(group: RowGroup) -> str:
        return str(len(group.rows)) if len(group.rows) > 1 else UNKNOWN

    columns: list[tuple[str, Callable[[RowGroup], str]]] = [
        ("model", lambda group: group.name),
        ("network", lambda group: group.rows[0].network),
        ("parameters", lambda group: f"{group.rows[0].parameters:,}"),
        ("seeds", seeds),
        ("steps", lambda group: group.cell(lambda row: row.steps, _whole)),
        ("training tokens/s", lambda group: group.cell(lambda row: row.train_tokens_per_second, _whole)),
        *((score_name(score), partial(score_cell, score)) for score in _score_names(rows)),
        ("decoding tokens/s", lambda group: group.cell(lambda row: row.decode_tokens_per_second, _whole)),
    ]
    cells = [[formatter(group) for group in groups] for _, formatter in columns]
    known = [n for n, column in enumerate(cells) if any(cell != UNKNOWN for cell in column)]
    return [columns[n][0] for n in known], [[cells[n][r] for n in known] for r in range(len(groups))]


def markdown_table(rows: Sequence[ComparisonRow]) -> str:
    """Return the table as Markdown, with its notes."""
    header, cells = comparison_table(rows)
    lines = [header, ["---", "---", *["---:"] * (len(header) - 2)], *cells]
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    notes = "".join(f"\n{note.replace('*', chr(92) + '*')}\n" for note in comparison_notes(rows))
    return table + notes


def csv_table(rows: Sequence[ComparisonRow]) -> str:
    """Return CSV: a line per model and, for models with several seeds, lines of the mean and the deviation."""
    scores, reasons = _score_names(rows), incomparable_scores(rows)
    measurements: dict[str, Measurement] = {
        "steps": lambda row: row.steps,
        "training_tokens_per_second": lambda row: row.train_tokens_per_second,
        **{score: partial(_score, score) for score in scores},
        "decoding_tokens_per_second": lambda row: row.decode_tokens_per_second,
    }
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow(["kind", "model", "network", "parameters", "seed", "seeds", *measurements, "not_comparable"])
    for group in grouped(rows):
        first, count = group.rows[0], len(group.rows)
        for row in group.rows:
            values = [measurement(row) for measurement in measurements.values()]
            differing = "; ".join(f"{score}: {reason}" for score, reason in reasons.get(row.name, {}).items())
            writer.writerow(["run", row.name, row.network, row.parameters, row.seed, 1, *values, differing])
        if count > 1:
            statistics: dict[str, Callable[[list[float]], float]] = {"mean": fmean, "standard deviation": stdev}
            for kind, statistic in statistics.items():
                known = [group.values(measurement) for measurement in measurements.values()]
                values = [statistic(found) if len(found) > 1 else None for found in known]
                writer.writerow([kind, group.name, first.network, first.parameters, None, count, *values, ""])
    return output.getvalue()


def rows_as_dicts(rows: Sequence[ComparisonRow]) -> list[dict[str, Any]]:
    """Return the rows for JSON, with the validation curves, and why scores are `not_comparable`, by score."""
    reasons = incomparable_scores(rows)
    return [asdict(row) | {"not_comparable": reasons.get(row.name, {})} for row in rows]


def plot_curves(rows: Sequence[ComparisonRow], path: Path) -> bool:
    """Plot the validation loss of each run against its steps; return False if no model has a curve.

    Curves of another tokenizer or of other validation data than the first are marked with an asterisk.
    """
    drawn = [row for row in rows if row.validation_curve]
    if not drawn:
        return False
    colors = [COLORS[n % len(COLORS)] for n in range(len(drawn))]
    names = [row.name + (MARK if _curve_differs(row, drawn[0]) else "") for row in drawn]
    with plot_style():
        from matplotlib.ticker import FuncFormatter, MaxNLocator

        figure = new_figure(9, 5.2)
        axes = figure.add_subplot()
        for n, row in enumerate(drawn):
            dashes = DASHES[n // len(COLORS) % len(DASHES)]  # other dashes once all colors are used
            axes.plot(*zip(*row.validation_curve, strict=True), color=colors[n], linestyle=dashes, linewidth=1.8)
        axes.set_yscale("log")
        for set_formatter in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
            set_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("step")
        not_comparable = "; * other data or tokenizer, not comparable" if any(MARK in name for name in names) else ""
        axes.set_title(f"validation loss (nats per token, log scale{not_comparable})")
        axes.set_xlim(left=0)
        minimal_axes(axes)
        label_line_ends(axes, [row.validation_curve[-1] for row in drawn], names, colors)
    save_figure(figure, path)
    return True


def _curve_differs(row: ComparisonRow, first: ComparisonRow) -> bool:
    if row.basis is None or first.basis is None:
        return False
    return (row.basis.curve, row.basis.tokenizer) != (first.basis.curve, first.basis.tokenizer)


def _score_names(rows: Sequence[ComparisonRow]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row.scores))


def _score(name: str, row: ComparisonRow) -> float | None:
    return row.scores.get(name)


def _whole(value: float) -> str:
    return f"{value:,.0f}"
