"""Tables in the terminal, drawn with rich: in colour where that is wanted, plain in a pipe."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def new_table(*columns: str, prose: str | None = None, words: str | None = None) -> "Table":
    """A table whose first column is text and whose others are numbers, except `words`, and `prose`, which may be
    broken."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        left = number == 0 or column in (prose, words)
        table.add_column(column, justify="left" if left else "right", no_wrap=column != prose)
    return table


def print_table(table: "Table") -> None:
    """Print the table on standard output, wider than the terminal if need be."""
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    broken = any(not column.no_wrap for column in table.columns)
    wide = console.options.update(width=80 if broken else 1000)
    console.width = max(console.width, console.measure(table, options=wide).maximum)  # narrower, numbers would be cut
    console.print(table)
