"""Tables and consoles for the terminal: text is aligned left, numbers are aligned right; no text is interpreted."""

from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from typing import TextIO

from rich import box
from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderableType, RenderHook
from rich.control import Control
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from regard.html import visible

MAX_WIDTH = 10_000  # columns of a table that is not limited by a terminal


def new_table(*columns: str, left: int = 1, text: str | None = None, wrapped: str | None = None) -> Table:
    """Return a table whose first `left` columns are text, as those named by `text` and `wrapped`.

    The other columns are numbers. Only the column `wrapped` has line breaks; unnamed columns hold bars.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        is_text = number < left or column in (text, wrapped, "")
        table.add_column(Text(column), justify="left" if is_text else "right", no_wrap=column != wrapped)
    return table


def split_table(table: Table, console: Console) -> list[Table]:
    """Split a table that is wider than the console into tables of some of its columns, each after the first column.

    A terminal would break the lines of a wide table anywhere, also inside of numbers.
    """
    first, *others = table.columns
    groups: list[list[Column]] = [[]]
    for column in others:
        if groups[-1] and _natural_width(_select(table, [first, *groups[-1], column]), console) > console.width:
            groups.append([])
        groups[-1].append(column)
    return [_select(table, [first, *group]) for group in groups]


def _select(table: Table, columns: list[Column]) -> Table:
    part = copy(table)
    part.columns = [replace(column, _index=number) for number, column in enumerate(columns)]
    return part


def _natural_width(table: Table, console: Console) -> int:
    return console.measure(table, options=console.options.update(width=MAX_WIDTH)).maximum


def new_console(file: TextIO | None = None) -> Console:
    """Return a console for text of data and models: no markup, no emoji codes, and visible control characters."""
    console = Console(file=file, highlight=False, markup=False, emoji=False)
    console.push_render_hook(_VisibleTextHook())
    return console


class _VisibleTextHook(RenderHook):
    """Wraps everything that is printed."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [part if isinstance(part, Control) else _VisibleText(part) for part in renderables]


class _VisibleText:
    """Renders a part with `visible` text; the control codes of rich itself stay."""

    def __init__(self, part: RenderableType) -> None:
        self._part = part

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self._part, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text))
