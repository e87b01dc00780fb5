"""Rows as people and programs read them: cells of a table, Markdown, JSON."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from regard.comparison.measure import Row
from regard.training.wording import score_name, score_text

UNKNOWN = "–"
Column = tuple[str, Callable[[Row], str]]


def table(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """The head of the table, and its cells; a column that would be empty is left out.

    >>> head, cells = table([Row("tiny", "encoder-decoder Transformer", 648, scores={"loss": 2.5})])
    >>> head, cells
    (['model', 'network', 'parameters', 'loss'], [['tiny', 'encoder-decoder Transformer', '648', '2.500']])
    """
    scores = [name for name in _in_order(rows) if any(name in row.scores for row in rows)]
    columns: list[Column] = [
        ("model", lambda row: row.name),
        ("network", lambda row: row.network),
        ("parameters", lambda row: f"{row.parameters:,}"),
        ("steps", lambda row: UNKNOWN if row.steps is None else f"{row.steps:,}"),
        ("trained tokens/s", lambda row: _speed(row.training_speed)),
        *((score_name(name), _score(name)) for name in scores),
        ("written tokens/s", lambda row: _speed(row.writing_speed)),
    ]
    cells = [[text(row) for row in rows] for _, text in columns]
    kept = [n for n, column in enumerate(cells) if any(cell != UNKNOWN for cell in column)]
    return [columns[n][0] for n in kept], [[cells[n][r] for n in kept] for r in range(len(rows))]


def markdown(rows: Sequence[Row]) -> str:
    """The same as a Markdown table."""
    head, cells = table(rows)
    lines = [head, ["---", "---", *["---:"] * (len(head) - 2)], *cells]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def as_dicts(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The same for JSON, with the curves."""
    return [asdict(row) for row in rows]


def _in_order(rows: Sequence[Row]) -> list[str]:
    """Every score that anyone has, each once."""
    return list(dict.fromkeys(name for row in rows for name in row.scores))


def _score(name: str) -> Callable[[Row], str]:
    return lambda row: score_text(name, row.scores[name]) if name in row.scores else UNKNOWN


def _speed(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.0f}"
