"""Tables for the terminal: text is aligned left, numbers are aligned right."""

from rich import box
from rich.table import Table
from rich.text import Text


def new_table(*columns: str, left: int = 1, text: str | None = None, wrapped: str | None = None) -> Table:
    """Return a table whose first `left` columns are text, as those named by `text` and `wrapped`.

    The other columns are numbers. Only the column `wrapped` has line breaks; unnamed columns hold bars.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        is_text = number < left or column in (text, wrapped, "")
        table.add_column(Text(column), justify="left" if is_text else "right", no_wrap=column != wrapped)
    return table
