"""Where results go: standard output, line by line as they come, or a file that is written whole or not at all."""

import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from regard.errors import DataError
from regard.files import atomic_file, explain_write_errors

if TYPE_CHECKING:
    from regard.data.lines import Line
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table
GZIP = 31  # zlib's number for gzip's frame around what is compressed


@contextmanager
def open_output(output: Path | None) -> Iterator[Callable[[Iterable[str]], None]]:
    """What writes lines. On standard output they can be read at once; a file takes its name when all is written.

    What goes to a file whose name ends in `.gz` is compressed, as what comes from one is unpacked.
    """
    if output is None:
        yield _print_lines
        return
    packer = zlib.compressobj(wbits=GZIP) if output.name.endswith(".gz") else None
    with _open_file(output) as file:

        def put(lines: Iterable[str]) -> None:
            rows = "".join(f"{line}\n" for line in lines).encode()  # what goes wrong here is not about the file
            with explain_write_errors(output):
                file.write(rows if packer is None else packer.compress(rows))
                file.flush()  # so that a full disk shows at once

        yield put
        if packer is not None:
            with explain_write_errors(output):
                file.write(packer.flush())


def write_output(output: Path, content: bytes) -> None:
    """Write a file, whole or not at all."""
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
    """A text without ends of lines in it: one line in, one line out."""
    return text.replace("\r", " ").replace("\n", " ")


def _print_lines(lines: Iterable[str]) -> None:
    if sys.stdout is None:
        raise DataError("standard output: is closed; give it somewhere to go, or use --output.")
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()


@contextmanager
def progress_bar(
    input: str, output: Path | None, what: str = "translating"
) -> Iterator[Callable[[Sequence["Line"]], None]]:
    """What tells how much of a file is done, on a terminal whose output is elsewhere."""
    seen = input != "-" and (output is not None or not sys.stdout.isatty()) and sys.stderr.isatty()
    if not seen:
        yield lambda lines: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    total = _count_lines(input)
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(file=sys.stderr)) as bar:
        task = bar.add_task(what, total=total)
        yield lambda lines: bar.advance(task, len(lines))


def _count_lines(input: str) -> int | None:
    """The lines of a file; None where they are compressed, or cannot be counted."""
    if input.endswith(".gz"):
        return None
    with suppress(OSError), open(input, "rb") as file:
        return sum(1 for _ in file)
    return None


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
