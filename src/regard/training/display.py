"""Progress display of training, and the texts that it shows: scores, durations, samples.

`display_for` chooses a display: a live bar on a terminal (`terminal.py`), plain lines for pipes, logs and CI, or none.
All output goes to one stream, standard error; results are printed to standard output by the commands.
"""

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TextIO

from regard.html import visible

Clock = Callable[[], float]
SECONDS_PER_LINE = 5.0
SCORE_NAMES = {
    "bleu": "BLEU",
    "chrf": "chrF",
    "ter": "TER",
    "bits_per_byte": "bits per byte",
    "exact": "exact match",
    "macro_f1": "macro-F1",
    "span_f1": "span F1",
}
COUNT_SCORES = ("sentences", "tokens", "unknown", "bytes", "truncated")


_LINE_BREAKS = dict.fromkeys(map(ord, "\t\n\r\x85\u2028\u2029"), " ")


@dataclass(frozen=True)
class Progress:
    """Progress of training: the metrics of the last steps."""

    step: int
    steps: int
    epoch: float
    loss: float  # cross entropy per target, without label smoothing
    learning_rate: float
    targets_per_second: float
    utilization: float | None  # of the peak matmul rate of the machine
    seconds_left: float | None
    unit: str = "tokens"  # what the targets are


@dataclass(frozen=True)
class Sample:
    """The output for one example. Of a language model: a prompt, no reference, and its continuation."""

    source: str
    reference: str
    output: str

    def rows(self, max_length: int = 300) -> list[tuple[str, str]]:
        """The texts with their names, made safe to print."""
        if self.reference:
            rows = [("source", self.source), ("reference", self.reference), ("output", self.output)]
        else:
            rows = [("prompt", self.source), ("output", self.output)]
        return [(name, printable(text, max_length)) for name, text in rows]


class ProgressDisplay:
    """Shows nothing: the display of `--quiet`, of all processes but the first, and the base class of the others."""

    def note(self, message: str) -> None:
        """Show a message."""

    def count(self, what: str, done: int, total: int | None) -> None:
        """Show the progress of data preparation: `tokenizing train`, and the examples so far."""

    def progress(self, progress: Progress) -> None:
        """Show the progress of training."""

    def validation(self, step: int, scores: Mapping[str, float], best: bool, samples: Sequence[Sample]) -> None:
        """Show the scores and samples of a validation."""

    def close(self) -> None:
        """Show what is still pending, and restore the terminal."""


class ResilientDisplay(ProgressDisplay):
    """Wraps a display, and ignores that its stream is gone: a closed terminal or pipe does not stop training."""

    def __init__(self, display: ProgressDisplay) -> None:
        self._display = display

    def note(self, message: str) -> None:
        """Show a message."""
        with suppress(OSError):
            self._display.note(message)

    def count(self, what: str, done: int, total: int | None) -> None:
        """Show the progress of data preparation."""
        with suppress(OSError):
            self._display.count(what, done, total)

    def progress(self, progress: Progress) -> None:
        """Show the progress of training."""
        with suppress(OSError):
            self._display.progress(progress)

    def validation(self, step: int, scores: Mapping[str, float], best: bool, samples: Sequence[Sample]) -> None:
        """Show the scores and samples of a validation."""
        with suppress(OSError):
            self._display.validation(step, scores, best, samples)

    def close(self) -> None:
        """Close the display."""
        with suppress(OSError):
            self._display.close()


class LinesDisplay(ProgressDisplay):
    """Writes one line of progress every few seconds, and always the last one."""

    def __init__(self, stream: TextIO, clock: Clock = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._last_time = -math.inf  # of the last line of progress
        self._pending: str | None = None  # the newest line of progress that was not written yet
        self._counted: str | None = None  # what is being counted

    def note(self, message: str) -> None:
        """Write a message."""
        self._write(printable(message, max_length=1000))

    def count(self, what: str, done: int, total: int | None) -> None:
        """Write the progress of a count; a count that is done within seconds gets only its last line."""
        if what != self._counted:
            self._write_pending()
            self._counted = what
            self._last_time = self._clock()
        self._write_progress(count_text(what, done, total), last=total is not None and done >= total)

    def progress(self, progress: Progress) -> None:
        """Write the metrics on one line."""
        if self._counted is not None:
            self._write_pending()
            self._counted = None
            self._last_time = -math.inf  # the first line of training is written at once
        texts = [f"step {progress.step}/{progress.steps}", *progress_texts(progress), *eta_texts(progress)]
        self._write_progress("  ".join(texts), last=progress.step >= progress.steps)

    def validation(self, step: int, scores: Mapping[str, float], best: bool, samples: Sequence[Sample]) -> None:
        """Write the scores on one line and the samples below."""
        self._write(f"validation at step {step}  {scores_line(scores)}{'  best so far' if best else ''}")
        for sample in samples:
            for name, text in sample.rows():
                self._write(f"  {name:<9}  {text}".rstrip())

    def close(self) -> None:
        """Write the pending line, such as the last before an early stop."""
        self._write_pending()

    def _write_progress(self, line: str, last: bool) -> None:
        now = self._clock()
        if last or now - self._last_time >= SECONDS_PER_LINE:
            self._last_time = now
            self._pending = None
            self._write(line)
        else:
            self._pending = line

    def _write_pending(self) -> None:
        if self._pending is not None:
            self._write(self._pending)
            self._pending = None

    def _write(self, line: str) -> None:
        print(line, file=self._stream, flush=True)


def display_for(stream: TextIO, quiet: bool = False) -> ProgressDisplay:
    """The display that suits a stream: live on a terminal, lines elsewhere, nothing when quiet."""
    if quiet:
        return ProgressDisplay()
    if stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown"):
        from regard.training.terminal import TerminalDisplay

        return TerminalDisplay(stream)
    return LinesDisplay(stream)


def progress_texts(progress: Progress) -> list[str]:
    """The metrics of training as short texts; unknown ones are left out."""
    texts = [
        f"epoch {progress.epoch:.1f}",
        f"loss {progress.loss:.3f}",
        f"learning rate {progress.learning_rate:.1e}",
    ]
    if math.isfinite(progress.targets_per_second):
        texts.append(f"{progress.targets_per_second:,.0f} {progress.unit}/s")
    if progress.utilization is not None and math.isfinite(progress.utilization):
        texts.append(f"utilization {progress.utilization:.0%}")
    return texts


def eta_texts(progress: Progress) -> list[str]:
    """The remaining time, if it is known."""
    if progress.seconds_left is None or not math.isfinite(progress.seconds_left) or progress.step >= progress.steps:
        return []
    return [f"ETA {duration(max(0.0, progress.seconds_left))}"]


def count_text(what: str, done: int, total: int | None) -> str:
    """The progress of a count.

    >>> count_text("tokenizing train", 12_000, 29_000)
    'tokenizing train: 12,000 of 29,000'
    """
    return f"{printable(what)}: {done:,}" + (f" of {total:,}" if total is not None else "")


def score_name(key: str) -> str:
    """The name of a score.

    >>> score_name("chrf"), score_name("bits_per_byte"), score_name("loss")
    ('chrF', 'bits per byte', 'loss')
    """
    return SCORE_NAMES.get(key, key.replace("_", " "))


def score_text(key: str, value: float) -> str:
    """A score with the usual number of digits: BLEU and chrF one, a loss three.

    >>> score_text("bleu", 40.123), score_text("loss", 1.2), score_text("perplexity", 22.197), score_text("exact", 0.61)
    ('40.1', '1.200', '22.20', '61%')
    """
    if not math.isfinite(value):
        return str(value)
    if key in ("bleu", "chrf", "ter"):
        return f"{value:.1f}"
    if key == "exact":
        return f"{value:.0%}"
    if key in ("accuracy", "macro_f1", "span_f1"):
        return f"{value:.1%}"
    if key in COUNT_SCORES:
        return f"{value:,.0f}"
    if key.endswith("perplexity"):
        return f"{value:,.2f}" if value < 1000 else f"{value:,.0f}"
    return f"{value:,.3f}"


def scores_line(scores: Mapping[str, float]) -> str:
    """Scores on one line.

    >>> scores_line({"loss": 3.1, "bleu": 12.1})
    'loss 3.100  BLEU 12.1'
    """
    return "  ".join(f"{score_name(key)} {score_text(key, value)}" for key, value in scores.items())


def duration(seconds: float) -> str:
    """A duration in its two largest units.

    >>> [duration(seconds) for seconds in (0.4, 42, 720, 12_060, 180_000)]
    ['0 s', '42 s', '12 min', '3 h 21 min', '2 d 2 h']
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(round(seconds / 3600), 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def printable(text: str, max_length: int = 300) -> str:
    """Text on one line without control characters and invalid Unicode, truncated to `max_length`.

    >>> printable("a\\x1b[31mred\\nline")
    'a␛[31mred line'
    >>> printable("abcdef", max_length=4)
    'abc…'
    """
    if len(text) > max_length:
        text = text[: max_length - 1] + "…"
    return visible(text.translate(_LINE_BREAKS))
