"""Output of commands: lines to stdout or to an atomically written file, progress bars and tables."""

import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from regard.errors import DataError
from regard.files import atomic_file, explain_write_errors

if TYPE_CHECKING:
    from rich.table import Table

    from regard.data.lines import Line

GZIP_WINDOW_BITS = 31  # makes zlib write the gzip format


@contextmanager
def open_output(output: Path | None) -> Iterator[Callable[[Iterable[str]], None]]:
    """Yield a function that writes lines: to stdout with a flush, or to a file that appears when all is written.

    A file whose name ends in `.gz` is compressed.
    """
    if output is None:
        yield _print_lines
        return
    compressor = zlib.compressobj(wbits=GZIP_WINDOW_BITS) if output.name.endswith(".gz") else None
    with _open_file(output) as file:

        def write(lines: Iterable[str]) -> None:
            content = "".join(f"{line}\n" for line in lines).encode()  # errors here are not errors of the file
            with explain_write_errors(output):
                file.write(content if compressor is None else compressor.compress(content))
                file.flush()  # reports a full disk at once

        yield write
        if compressor is not None:
            with explain_write_errors(output):
                file.write(compressor.flush())


def write_output(output: Path, content: bytes) -> None:
    """Write a file atomically."""
    with _open_file(output) as file, explain_write_errors(output):
        file.write(content)


@contextmanager
def _open_file(output: Path) -> Iterator[BinaryIO]:
    """Yield a file to write to, which replaces the output at the end."""
    with ExitStack() as stack:
        with explain_write_errors(output):
            file = stack.enter_context(atomic_file(output))
        yield file
        with explain_write_errors(output):
            stack.close()


def to_one_line(text: str) -> str:
    """Return the text with line breaks replaced by spaces."""
    return text.replace("\r", " ").replace("\n", " ")


def _print_lines(lines: Iterable[str]) -> None:
    if sys.stdout is None:
        raise DataError("standard output: closed; redirect it, or use --output.")
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()


@contextmanager
def progress_bar(
    input: str, output: Path | None, description: str = "translating"
) -> Iterator[Callable[[Sequence["Line"]], None]]:
    """Show the progress over the lines of a file, if stderr is a terminal and the results go elsewhere."""
    visible = input != "-" and (output is not None or not sys.stdout.isatty()) and sys.stderr.isatty()
    if not visible:
        yield lambda lines: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    total = _count_lines(input)
    columns = (TextColumn(description), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(file=sys.stderr)) as bar:
        task = bar.add_task(description, total=total)
        yield lambda lines: bar.advance(task, len(lines))


def _count_lines(input: str) -> int | None:
    """Return the number of lines in a file; None if it is compressed or unreadable."""
    if input.endswith(".gz"):
        return None
    with suppress(OSError), open(input, "rb") as file:
        return sum(1 for _ in file)
    return None


def new_table(*columns: str, text: str | None = None, wrapped: str | None = None) -> "Table":
    """Create a table whose first column is text and whose others are numbers, except the columns named here."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        left = number == 0 or column in (text, wrapped)
        table.add_column(column, justify="left" if left else "right", no_wrap=column != wrapped)
    return table


def print_table(table: "Table") -> None:
    """Print the table to stdout, wider than the terminal if needed."""
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    wraps = any(not column.no_wrap for column in table.columns)
    wide = console.options.update(width=80 if wraps else 1000)
    console.width = max(console.width, console.measure(table, options=wide).maximum)  # never cut numbers
    console.print(table)
