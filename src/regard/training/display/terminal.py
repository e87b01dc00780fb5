"""A live bar at the foot of a terminal, drawn with rich."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from regard.training.display.base import Clock, Progress, ProgressDisplay, Sample, count_text, eta_texts, progress_texts
from regard.training.formatting import printable, score_name, score_text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.text import Text

REDRAWS_EVERY = 0.1  # seconds between two drawings of the live bar
NARROWEST_BAR, WIDEST_BAR = 12, 40  # characters of a bar beside its caption


class TerminalDisplay(ProgressDisplay):
    """A live bar with its figures at the foot of the terminal; notes and validations scroll by above it."""

    def __init__(self, stream: TextIO, clock: Clock = time.monotonic, console: "Console | None" = None) -> None:
        from rich.console import Console
        from rich.live import Live

        # Markup, emoji codes and highlighting are off: a sample may well contain "[bold]" or ":smile:".
        self._console = console or Console(file=stream, markup=False, emoji=False, highlight=False)
        self._clock = clock
        self._drawn = -math.inf
        self._latest: RenderableType | None = None
        self._counted: tuple[str, int, int | None] | None = None
        # No thread draws in the background: worker processes are forked from this one. What others print on standard
        # error appears above the bar; standard output is left alone, since results go there.
        self._live = Live(
            console=self._console, auto_refresh=False, transient=True, redirect_stdout=False, vertical_overflow="crop"
        )

    def note(self, sentence: str) -> None:
        """Print the sentence above the bar."""
        self._console.print(printable(sentence, longest=1000))

    def count(self, what: str, done: int, total: int | None) -> None:
        """Draw a bar for the count, or only the count where the end is unknown."""
        self._leave_count(unless=what)
        self._counted = (what, done, total)
        self._draw(_Foot(done, total, [count_text(what, done, total)], []))

    def progress(self, now: Progress) -> None:
        """Draw the bar and the figures anew."""
        self._leave_count()
        heading = [f"step {now.step:,} of {now.steps:,}", *eta_texts(now)]
        self._draw(_Foot(now.step, now.steps, heading, progress_texts(now, ceiling="ceiling")))

    def validation(self, step: int, scores: Mapping[str, float], best: bool, samples: Sequence[Sample]) -> None:
        """Print the scores and the samples above the bar."""
        from rich.console import Group

        width = self._console.width
        samples_shown = [_sample_table(sample, width) for sample in samples]
        self._console.print(Group(*_score_table(step, scores, best, width), *samples_shown))

    def close(self) -> None:
        """Leave the last state of the bar on the screen and give the cursor back."""
        self._leave_count()
        if self._live.is_started:
            self._live.stop()
            if self._latest is not None:
                self._console.print(self._latest)

    def _leave_count(self, unless: str | None = None) -> None:
        """A finished count stays above the bar as a line."""
        if self._counted is not None and self._counted[0] != unless:
            self._console.print(count_text(*self._counted))
            self._counted = None
            self._latest = None
            self._drawn = -math.inf

    def _draw(self, what: "RenderableType") -> None:
        self._latest = what
        now = self._clock()
        if not self._live.is_started:
            self._live.start()
        if now - self._drawn >= REDRAWS_EVERY:
            self._drawn = now
            self._live.update(what, refresh=True)


@dataclass(frozen=True)
class _Foot:
    """The live area: a bar with its caption, and figures below, fitted to whatever width the terminal has now.

    A line that wrapped would leave traces when redrawn, so lines break between figures and never inside one.
    """

    done: int
    total: int | None
    caption: list[str]
    lines: list[str]

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "Iterator[RenderableType]":
        from rich.cells import cell_len
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        width = options.max_width
        caption = "  ".join(self.caption)
        room = width - cell_len(caption) - 2
        beside = room >= NARROWEST_BAR or not self.total
        if self.total:
            length = min(room, WIDEST_BAR) if beside else width
            bar = ProgressBar(total=self.total, completed=min(self.done, self.total), width=length)
            row = Table.grid(padding=(0, 2, 0, 0), pad_edge=False)
            row.add_row(bar, Text(caption, no_wrap=True)) if beside else row.add_row(bar)
            yield row
        below = self.lines if beside and self.total else [*self.caption, *self.lines]
        for line in _packed(below, width):
            yield Text(line, no_wrap=True, overflow="ellipsis")


def _score_table(step: int, scores: Mapping[str, float], best: bool, width: int) -> "Iterator[Text]":
    """Scores below their names, or where that is too wide, one after another."""
    from rich.text import Text

    columns = [("validation", f"step {step:,}")]
    columns += [(score_name(key), score_text(key, value)) for key, value in scores.items()]
    widths = [max(len(name), len(value)) for name, value in columns]
    sides = ["<", *">" * len(scores)]
    names = "  ".join(f"{name:{side}{room}}" for (name, _), side, room in zip(columns, sides, widths, strict=True))
    values = "  ".join(f"{value:{side}{room}}" for (_, value), side, room in zip(columns, sides, widths, strict=True))
    praise = ["best so far"] if best else []
    if len(names) + 2 + len("best so far") <= width:
        yield Text(names, style="dim")
        yield Text("  ".join([values, *praise]), style="bold")
    else:
        pieces = [f"validation at step {step:,}", *(f"{name} {value}" for name, value in columns[1:]), *praise]
        for line in _packed(pieces, width):
            yield Text(line, style="bold")


def _sample_table(sample: Sample, width: int) -> "RenderableType":
    """The parts of a sample below each other, each at most three lines long."""
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


def _packed(progress_texts: Sequence[str], width: int) -> list[str]:
    """Figures on as few lines as they need."""
    from rich.cells import cell_len

    lines: list[str] = []
    for figure in progress_texts:
        if lines and cell_len(lines[-1]) + 2 + cell_len(figure) <= width:
            lines[-1] += f"  {figure}"
        else:
            lines.append(figure)
    return lines
