"""Input and output of commands: corpora from options, lines of a file or stdin, output files, progress and tables."""

import os
import stat
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TextIO

from regard.cli.options import Files
from regard.errors import DataError
from regard.files import atomic_file, explain_write_errors
from regard.html import visible

if TYPE_CHECKING:
    from rich.table import Table

    from regard.api import Model
    from regard.config import CorpusConfig
    from regard.data.encoder_batches import TextOrPair
    from regard.data.lines import InvalidLines, Line

MAX_LINES_AT_ONCE = 512  # most lines that are processed at once
LOG_SECONDS = 30.0  # between messages on the progress in a log file
GZIP_WINDOW_BITS = 31  # makes zlib write the gzip format


# --- corpora ----------------------------------------------------------------------------------------------------------


def split_files(
    source: Files, target: Files, data: Files, prefix: str = "--", parses: Files = None, task: str | None = None
) -> dict[str, list[str]]:
    """Return the files of one split by the fields of `CorpusConfig`; the aligned files of a translator need both sides.

    Other tasks have messages of their own for aligned files.
    """
    from regard.config.tasks import task_info
    from regard.errors import ConfigError
    from regard.registry import TASK_REGISTRY

    name = None if task is None else TASK_REGISTRY.resolve(task)
    aligned = name is None or name not in TASK_REGISTRY or task_info(name).reads_aligned_files
    if bool(source) != bool(target) and aligned:
        missing = "target" if source else "source"
        raise ConfigError(f"{prefix}{missing} is missing: a translator needs both sides, line by line.")
    if parses and not source and aligned:
        raise ConfigError(f"{prefix}parses: needs {prefix}source, which is missing; add it.")
    options = (("source", source), ("target", target), ("parses", parses), ("files", data))
    return {name: files for name, files in options if files}


def column_settings(
    source: str | None, target: str | None, text: str | None, label: str | None = None
) -> dict[str, str]:
    """Return the column options that are set, by the fields of `CorpusConfig`."""
    columns = {"source_column": source, "target_column": target, "text_column": text, "label_column": label}
    return {name: column for name, column in columns.items() if column is not None}


def corpus_from_options(
    source: Files,
    target: Files,
    data: Files,
    *,
    parses: Files = None,
    columns: Mapping[str, str] | None = None,
    piped: bool = False,
) -> "CorpusConfig":
    """Return the corpus of the file options; with `piped` and no files, stdin unless it is a terminal."""
    from regard.config import CorpusConfig
    from regard.data.lines import STANDARD_INPUT
    from regard.errors import ConfigError

    files = split_files(source, target, data, parses=parses)
    if not files and piped and not stdin_is_terminal():
        files = {"files": [STANDARD_INPUT]}
    if not files:
        raise ConfigError("no input; pass --data, or --source and --target.")
    corpus = CorpusConfig.model_validate({**files, **(columns or {})})
    if corpus.file_names.count(STANDARD_INPUT) > 1:
        raise ConfigError("standard input (-) can be read only once; pass the other part as a file.")
    return corpus


def check_scorable(model: "Model", corpus: "CorpusConfig") -> bool:
    """Return whether the model is a translator; ConfigError if it is no language model either, or the files misfit."""
    from regard.decoding.translator import check_parses
    from regard.errors import ConfigError

    network = model.config.model
    if network.generates and corpus.source:
        raise ConfigError(f"{model.folder} is a language model; pass --data instead of --source and --target.")
    if not network.generates and not network.translates:
        hint = " (regard evaluate measures its predictions)" if network.task else ""
        raise ConfigError(
            f"{model.folder} is {with_article(network.family)}, which generates no text{hint}; "
            "pass a translator or a language model."
        )
    if network.translates:
        check_parses(network, has_parses=bool(corpus.parses))
    if corpus.parses and corpus.files:
        raise ConfigError(f"{corpus.files[0]}: has no parses; pass --source, --target and --parses instead of --data.")
    return network.translates


def with_article(noun: str) -> str:
    """Return a noun with its indefinite article.

    >>> with_article("encoder-only Transformer"), with_article("language model")
    ('an encoder-only Transformer', 'a language model')
    """
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def print_text(text: str = "", *, end: str = "\n", file: TextIO | None = None, flush: bool = False) -> None:
    """Print text that may contain parts of data or of a model.

    Control characters are made visible on a terminal and on stderr; what goes to a file or a pipe stays as it is.
    """
    stream = sys.stdout if file is None else file
    shows = stream is not None and (stream is sys.stderr or stream.isatty())
    print(visible(text) if shows else text, end=end, file=stream, flush=flush)


# --- input lines ------------------------------------------------------------------------------------------------------


def stdin_is_terminal() -> bool:
    """Return whether stdin is a terminal, or closed."""
    return sys.stdin is None or sys.stdin.isatty()


def prompt_if_terminal(message: str, input: str) -> None:
    """Print a message to stderr if the input is typed in a terminal."""
    if input == "-" and sys.stdin is not None and sys.stdin.isatty():
        print_text(message, file=sys.stderr)


def process_lines(
    input: str,
    output: Path | None,
    description: str,
    process: "Callable[[list[Line]], Iterable[str]]",
    *,
    skip_invalid: bool,
) -> None:
    """Write the results of `process` for the lines of a file or of stdin, in batches and in order."""
    from regard.data.lines import InvalidLines, prefetch, read_lines

    prompt_if_terminal("Type a text and press Enter; Ctrl-D ends.", input)
    invalid = InvalidLines(skip_invalid)
    with open_output(output) as write, progress_bar(input, output, description) as advance:
        for lines in prefetch(read_lines(input, invalid), MAX_LINES_AT_ONCE):
            write(process(lines))
            advance(len(lines))
    report_skipped_lines(invalid)


def line_text(line: "Line") -> "TextOrPair":
    """Return the text of a line, or the pair of texts that a tab separates."""
    first, tab, second = (line.text or "").partition("\t")
    return (first, second) if tab else first


def report_skipped(invalid: "InvalidLines") -> None:
    """Print to stderr how files were read, and how many examples were skipped and why."""
    for note in invalid.notes:
        print_text(f"{note}.", file=sys.stderr)
    for reason, count in invalid.counts.items():
        print_text(f"{count:,} skipped: {reason} ({invalid.examples[reason].removesuffix('.')}).", file=sys.stderr)


def report_skipped_lines(invalid: "InvalidLines") -> None:
    """Print to stderr how many lines of a stream were skipped and why."""
    for reason, count in invalid.counts.items():
        print_text(f"regard: {count:,} lines skipped: {reason}. {invalid.examples[reason]}", file=sys.stderr)


def report_truncated(count: int, max_length: int | None) -> None:
    """Print to stderr how many texts were truncated."""
    if count:
        texts = "text was" if count == 1 else "texts were"
        print_text(f"regard: {count:,} {texts} longer than {max_length:,} tokens and truncated.", file=sys.stderr)


# --- output -----------------------------------------------------------------------------------------------------------


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
    shown = map(visible, lines) if sys.stdout.isatty() else lines
    sys.stdout.writelines(f"{line}\n" for line in shown)
    sys.stdout.flush()


@contextmanager
def progress_bar(
    input: str, output: Path | None, description: str = "translating", done: int = 0
) -> Iterator[Callable[[int], None]]:
    """Show the progress over the lines of a file on stderr, if the results go elsewhere.

    A terminal gets a bar; a log file gets a line every `LOG_SECONDS`. `done` lines were processed before.
    """
    if (input == "-" and not _stdin_is_file()) or (output is None and sys.stdout.isatty()):
        yield lambda count: None
        return
    if not sys.stderr.isatty():
        total = None if input == "-" else _count_lines(input)
        yield ProgressLog(description, total, done).advance
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    total = _count_lines(input)
    columns = (TextColumn(description), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(file=sys.stderr)) as bar:
        task = bar.add_task(description, total=total, completed=done)
        yield lambda count: bar.advance(task, count)


class ProgressLog:
    """Prints to stderr how many lines are done, at most one message every `LOG_SECONDS`."""

    def __init__(self, description: str, total: int | None, done: int = 0) -> None:
        self._description = description
        self._total = total
        self._done = self._done_before = done
        self._start = self._last = time.monotonic()

    def advance(self, count: int) -> None:
        """Count lines."""
        self._done += count
        now = time.monotonic()
        if now - self._last < LOG_SECONDS:
            return
        self._last = now
        rate = (self._done - self._done_before) / (now - self._start)
        message = f"regard: {self._description}: {self._done:,} lines, {rate:,.1f} per second"
        if self._total:
            minutes = max(0, self._total - self._done) / rate / 60
            of = f"{self._done:,} of {self._total:,} lines ({self._done / self._total:.0%})"
            message = f"regard: {self._description}: {of}, {rate:,.1f} per second, {minutes:,.0f} min left"
        print(message, file=sys.stderr, flush=True)


def _stdin_is_file() -> bool:
    """Return whether stdin is redirected from a file."""
    try:
        return sys.stdin is not None and stat.S_ISREG(os.fstat(sys.stdin.fileno()).st_mode)
    except (OSError, ValueError):  # closed, or replaced by an object without a file descriptor
        return False


def _count_lines(input: str) -> int | None:
    """Return the number of lines in a file; None if it is compressed or unreadable."""
    if input.endswith(".gz"):
        return None
    with suppress(OSError), open(input, "rb") as file:
        return sum(1 for _ in file)
    return None


# --- tables -----------------------------------------------------------------------------------------------------------


def print_table(table: "Table") -> None:
    """Print the table to stdout, wider than the terminal if needed."""
    from regard.tables import new_console

    console = new_console()
    wraps = any(not column.no_wrap for column in table.columns)
    wide = console.options.update(width=80 if wraps else 1000)
    console.width = max(console.width, console.measure(table, options=wide).maximum)  # never cut numbers
    console.print(table)
