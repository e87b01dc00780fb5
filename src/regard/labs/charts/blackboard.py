"""Matrices as a teacher writes them on the board: in brackets, side by side, with signs between them."""

import math
from collections.abc import Sequence

from torch import Tensor


def number(value: float, decimals: int = 4) -> str:
    """Whole numbers bare, others with all their decimals, so that a column lines up.

    >>> number(2.0), number(0.5), number(-1.0), number(float("-inf"))
    ('2', '0.5000', '−1', '−∞')
    """
    if value == -math.inf:
        return "−∞"
    text = str(round(value)) if value == round(value) else f"{value:.{decimals}f}"
    return text.replace("-", "−")


def matrix(values: Tensor, rows: Sequence[str] = (), columns: Sequence[str] = (), decimals: int = 4) -> list[str]:
    """The lines of a matrix (R, C) in brackets, optionally with names for rows and columns.

    >>> import torch
    >>> print(*matrix(torch.tensor([[1.0, 0.5], [12.0, 0.0]])), sep="\\n")
    ⎡  1  0.5000 ⎤
    ⎣ 12       0 ⎦
    """
    cells = [[number(value, decimals) for value in row] for row in values.tolist()]
    heads = list(columns) or [""] * values.size(1)
    widths = [max(len(heads[j]), *(len(row[j]) for row in cells)) for j in range(values.size(1))]
    names = list(rows) or [""] * len(cells)
    margin = max(len(name) for name in names)
    gap = " " if margin else ""
    lines = []
    if columns:
        lines.append(" " * (margin + len(gap) + 2) + "  ".join(h.rjust(w) for h, w in zip(heads, widths, strict=True)))
    for i, row in enumerate(cells):
        left, right = _bracket(i, len(cells))
        inside = "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        lines.append(f"{names[i].rjust(margin)}{gap}{left} {inside} {right}")
    return lines


def beside(*parts: list[str] | str) -> list[str]:
    """Matrices and signs next to each other, middles aligned.

    >>> print(*beside(["[1]", "[2]", "[3]"], "·", ["[4]"]), sep="\\n")
    [1]
    [2] · [4]
    [3]
    """
    columns = [[part] if isinstance(part, str) else part for part in parts]
    height = max(len(column) for column in columns)
    padded = []
    for column in columns:
        width = max(len(line) for line in column)
        above = (height - len(column)) // 2
        below = height - len(column) - above
        padded.append([" " * width] * above + [line.ljust(width) for line in column] + [" " * width] * below)
    return [" ".join(line).rstrip() for line in zip(*padded, strict=True)]


def _bracket(row: int, height: int) -> tuple[str, str]:
    if height == 1:
        return "[", "]"
    if row == 0:
        return "⎡", "⎤"
    return ("⎣", "⎦") if row == height - 1 else ("⎢", "⎥")
