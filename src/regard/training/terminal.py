"""A live bar at the bottom of the terminal, drawn with rich."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from regard.training.display import (
    Clock,
    Progress,
    ProgressDisplay,
    Sample,
    count_text,
    eta_texts,
    printable,
    progress_texts,
    score_name,
    score_text,
)

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.text import Text

SECONDS_PER_REDRAW = 0.1
MIN_BAR_WIDTH, MAX_BAR_WIDTH = 12, 40  # characters of a bar next to its caption


class TerminalDisplay(ProgressDisplay):
    """A live progress bar with metrics at the bottom of the terminal; messages and validations scroll above it."""

    def __init__(self, stream: TextIO, clock: Clock = time.monotonic, console: "Console | None" = None) -> None:
        from rich.live import Live

        from regard.tables import new_console

        self._console = console or new_console(stream)
        self._clock = clock
        self._drawn_at = -math.inf
        self._latest: RenderableType | None = None
        self._counted: tuple[str, int, int | None] | None = None
        # No background thread, since worker processes are forked from this one. Other output on standard error appears
        # above the bar; standard output is not redirected, since results go there.
        self._live = Live(
            console=self._console, auto_refresh=False, transient=True, redirect_stdout=False, vertical_overflow="crop"
        )

    def note(self, message: str) -> None:
        """Print a message above the bar."""
        self._console.print(printable(message, max_length=1000))

    def count(self, what: str, done: int, total: int | None) -> None:
        """Draw a bar for the count, or only the count where the total is unknown."""
        self._finish_count(unless=what)
        self._counted = (what, done, total)
        self._draw(_LiveArea(done, total, [count_text(what, done, total)], []))

    def progress(self, progress: Progress) -> None:
        """Redraw the bar and the metrics."""
        self._finish_count()
        caption = [f"step {progress.step:,} of {progress.steps:,}", *eta_texts(progress)]
        self._draw(_LiveArea(progress.step, progress.steps, caption, progress_texts(progress)))

    def validation(self, step: int, scores: Mapping[str, float], best: bool, samples: Sequence[Sample]) -> None:
        """Print the scores and the samples above the bar."""
        from rich.console import Group

        width = self._console.width
        samples_shown = [_sample_table(sample, width) for sample in samples]
        self._console.print(Group(*_score_table(step, scores, best, width), *samples_shown))

    def close(self) -> None:
        """Leave the last state of the bar on the screen and restore the cursor."""
        self._finish_count()
        if self._live.is_started:
            self._live.stop()
            if self._latest is not None:
                self._console.print(self._latest)

    def _finish_count(self, unless: str | None = None) -> None:
        """Print a finished count above the bar."""
        if self._counted is not None and self._counted[0] != unless:
            self._console.print(count_text(*self._counted))
            self._counted = None
            self._latest = None
            self._drawn_at = -math.inf

    def _draw(self, area: "RenderableType") -> None:
        self._latest = area
        now = self._clock()
        if not self._live.is_started:
            self._live.start()
        if now - self._drawn_at >= SECONDS_PER_REDRAW:
            self._drawn_at = now
            self._live.update(area, refresh=True)


@dataclass(frozen=True)
class _LiveArea:
    """A bar with its caption, and metrics below, fitted to the current width of the terminal.

    A wrapped line would not be cleared when it is redrawn, so lines break between texts and never inside one.
    """

    done: int
    total: int | None
    caption: list[str]
    metrics: list[str]

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "Iterator[RenderableType]":
        from rich.cells import cell_len
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        width = options.max_width
        caption = "  ".join(self.caption)
        available = width - cell_len(caption) - 2
        on_one_line = available >= MIN_BAR_WIDTH or not self.total
        if self.total:
            length = min(available, MAX_BAR_WIDTH) if on_one_line else width
            bar = ProgressBar(total=self.total, completed=min(self.done, self.total), width=length)
            row = Table.grid(padding=(0, 2, 0, 0), pad_edge=False)
            row.add_row(bar, Text(caption, no_wrap=True)) if on_one_line else row.add_row(bar)
            yield row
        below = self.metrics if on_one_line and self.total else [*self.caption, *self.metrics]
        for line in _fill_lines(below, width):
            yield Text(line, no_wrap=True, overflow="ellipsis")


def _score_table(step: int, scores: Mapping[str, float], best: bool, width: int) -> "Iterator[Text]":
    """Scores below their names or, where that is too wide, one after another."""
    from rich.text import Text

    columns = [("validation", f"step {step:,}")]
    columns += [(score_name(key), score_text(key, value)) for key, value in scores.items()]
    widths = [max(len(name), len(value)) for name, value in columns]
    sides = ["<", *">" * len(scores)]
    names = "  ".join(f"{name:{side}{size}}" for (name, _), side, size in zip(columns, sides, widths, strict=True))
    values = "  ".join(f"{value:{side}{size}}" for (_, value), side, size in zip(columns, sides, widths, strict=True))
    mark = ["best so far"] if best else []
    if len(names) + 2 + len("best so far") <= width:
        yield Text(names, style="dim")
        yield Text("  ".join([values, *mark]), style="bold")
    else:
        texts = [f"validation at step {step:,}", *(f"{name} {value}" for name, value in columns[1:]), *mark]
        for line in _fill_lines(texts, width):
            yield Text(line, style="bold")


def _sample_table(sample: Sample, width: int) -> "RenderableType":
    """The texts of a sample below each other, each at most three lines long."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    margin = 13  # "  reference  "
    if width < 2 * margin:
        return Group(*(Text(f"{name}: {text}", overflow="fold") for name, text in sample.rows(3 * width)))
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in sample.rows(min(300, 3 * (width - margin))):
        table.add_row(f"  {name}", Text(text, style="cyan" if name == "output" else ""))
    return table


def _fill_lines(texts: Sequence[str], width: int) -> list[str]:
    """Texts on as few lines as they need."""
    from rich.cells import cell_len

    lines: list[str] = []
    for text in texts:
        if lines and cell_len(lines[-1]) + 2 + cell_len(text) <= width:
            lines[-1] += f"  {text}"
        else:
            lines.append(text)
    return lines
