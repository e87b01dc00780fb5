"""Where results go: standard output, line by line as they come, or a file that is written whole or not at all."""

import errno
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from regard.errors import DataError

if TYPE_CHECKING:
    from regard.text.lines import Line


@contextmanager
def lines_to(output: Path | None) -> Iterator[Callable[[Iterable[str]], None]]:
    """What writes lines. On standard output they can be read at once; a file takes its name when all is written."""
    if output is None:
        yield _print
        return
    output = output.resolve()  # a link stays a link
    if output.exists() and not output.is_file():  # a device or a pipe is written to, not replaced
        with _told(output), output.open("w", encoding="utf-8", newline="\n") as direct:
            yield lambda lines: direct.writelines(f"{line}\n" for line in lines)
        return
    with _told(output):
        descriptor, draft = tempfile.mkstemp(prefix=f".{output.name}-", dir=output.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:

            def put(lines: Iterable[str]) -> None:
                with _told(output):
                    file.writelines(f"{line}\n" for line in lines)
                    file.flush()

            yield put
            with _told(output):
                os.fsync(file.fileno())
        with _told(output):
            mask = os.umask(0o077)
            os.umask(mask)
            os.chmod(draft, 0o666 & ~mask)
            os.replace(draft, output)
    finally:
        with suppress(OSError):
            os.unlink(draft)


def bytes_to(output: Path, content: bytes) -> None:
    """Write a file, whole or not at all."""
    output = output.resolve()
    with _told(output):
        descriptor, draft = tempfile.mkstemp(prefix=f".{output.name}-", dir=output.parent)
    try:
        with _told(output):
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            mask = os.umask(0o077)
            os.umask(mask)
            os.chmod(draft, 0o666 & ~mask)
            os.replace(draft, output)
    finally:
        with suppress(OSError):
            os.unlink(draft)


def _print(lines: Iterable[str]) -> None:
    if sys.stdout is None:
        raise DataError("standard output: is closed; give it somewhere to go, or use --output.")
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()


@contextmanager
def _told(output: Path) -> Iterator[None]:
    """While it lasts, what keeps a file from being written becomes a sentence."""
    try:
        yield
    except OSError as error:
        remedy = "free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "choose another place"
        raise DataError(f"{output}: cannot be written ({error.strerror}); {remedy}.") from None


@contextmanager
def progress_over(
    input: str, output: Path | None, what: str = "translating"
) -> Iterator[Callable[[Sequence["Line"]], None]]:
    """What tells how much of a file is done, on a terminal whose output is elsewhere."""
    seen = input != "-" and (output is not None or not sys.stdout.isatty()) and sys.stderr.isatty()
    if not seen:
        yield lambda lines: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    total = _count(input)
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(file=sys.stderr)) as bar:
        task = bar.add_task(what, total=total)
        yield lambda lines: bar.advance(task, len(lines))


def _count(input: str) -> int | None:
    """The lines of a file; None where they are compressed, or cannot be counted."""
    if input.endswith(".gz"):
        return None
    with suppress(OSError), open(input, "rb") as file:
        return sum(1 for _ in file)
    return None
