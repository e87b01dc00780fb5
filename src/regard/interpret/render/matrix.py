"""Matrices and bars in the terminal: numbers that can be read, with the largest of each row standing out."""

import math
from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

WIDEST = 14  # columns past which only the largest of each row are named


def table(*columns: str, left: int = 1) -> Table:
    """A table whose first columns are text and whose others are numbers; one without a name is of bars."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        made.add_column(Text(column), justify="left" if number < left or not column else "right", no_wrap=True)
    return made


def matrix(rows: Sequence[str], columns: Sequence[str], values: Sequence[Sequence[float]]) -> Table:
    """A matrix with its labels; one that is too wide for a screen shows the three largest numbers of each row."""
    if len(columns) > WIDEST:
        made = table("", "largest", "second", "third")
        for label, row in zip(rows, values, strict=True):
            order = sorted(range(len(row)), key=lambda n: -row[n])[:3]
            made.add_row(Text(label), *(Text(f"{columns[n]} {number(row[n])}") for n in order))
        return made
    made = table("", *columns)
    for label, row in zip(rows, values, strict=True):
        largest = max(row)
        made.add_row(Text(label), *(_cell(value, value == largest) for value in row))
    return made


def number(value: float, digits: int = 2) -> str:
    """A number as short as it can be read; −∞ and tiny ones are dots."""
    if math.isinf(value):
        return "−∞"
    return f"{value:.{digits}f}" if abs(value) >= 0.5 * 10**-digits else "·"


def bar(share: float, width: int = 20) -> Text:
    """A share of one as a bar."""
    full = round(share * width * 8)
    blocks = "█" * (full // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[full % 8]
    return Text(blocks.ljust(width), style="cyan")


def vector(values: Sequence[float], shown: int = 5) -> str:
    """The beginning of a vector."""
    rest = " …" if len(values) > shown else ""
    return " ".join(f"{value:6.2f}" for value in values[:shown]) + rest


def _cell(value: float, largest: bool) -> Text:
    style = "bold cyan" if largest else "dim" if value < 0.05 else ""
    return Text(number(value), style=style)
