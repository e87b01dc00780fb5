"""Tables and consoles for the terminal: text is aligned left, numbers are aligned right; no text is interpreted."""

from collections.abc import Iterator
from typing import TextIO

from rich import box
from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderableType, RenderHook
from rich.control import Control
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from regard.visible_text import visible


def new_table(*columns: str, left: int = 1, text: str | None = None, wrapped: str | None = None) -> Table:
    """Return a table whose first `left` columns are text, as those named by `text` and `wrapped`.

    The other columns are numbers. Only the column `wrapped` has line breaks; unnamed columns hold bars.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        is_text = number < left or column in (text, wrapped, "")
        table.add_column(Text(column), justify="left" if is_text else "right", no_wrap=column != wrapped)
    return table


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
