"""Plain lines on a stream, for pipes, logs and CI."""

import math
import time
from collections.abc import Mapping, Sequence
from typing import TextIO

from regard.training.display.base import Clock, Progress, ProgressDisplay, Sample, count_text, eta_texts, progress_texts
from regard.training.formatting import printable, scores_line

LINES_EVERY = 5.0  # seconds between two lines of progress


class LinesDisplay(ProgressDisplay):
    """Plain lines, for pipes, logs and CI: one line of progress every few seconds, and always the last one."""

    def __init__(self, stream: TextIO, clock: Clock = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._said = -math.inf  # when the last line of progress was written
        self._waiting: str | None = None  # the newest line held back since then
        self._counted: str | None = None  # what is being counted

    def note(self, sentence: str) -> None:
        """Write the sentence on a line of its own."""
        self._write(printable(sentence, longest=1000))

    def count(self, what: str, done: int, total: int | None) -> None:
        """Write how far counting is; what is done within seconds gets only its last line."""
        if what != self._counted:
            self._say_waiting()
            self._counted = what
            self._said = self._clock()
        self._offer(count_text(what, done, total), last=total is not None and done >= total)

    def progress(self, now: Progress) -> None:
        """Write the figures on one line."""
        if self._counted is not None:
            self._say_waiting()
            self._counted = None
            self._said = -math.inf  # the first line of training comes at once
        line = "  ".join([f"step {now.step}/{now.steps}", *progress_texts(now), *eta_texts(now)])
        self._offer(line, last=now.step >= now.steps)

    def validation(self, step: int, scores: Mapping[str, float], best: bool, samples: Sequence[Sample]) -> None:
        """Write the scores on one line and the samples below."""
        praise = "  best so far" if best else ""
        self._write(f"validation at step {step}  {scores_line(scores)}{praise}")
        for sample in samples:
            for name, text in sample.rows():
                self._write(f"  {name:<9}  {text}".rstrip())

    def close(self) -> None:
        """Write the line still held back, such as the last before an early stop."""
        self._say_waiting()

    def _offer(self, line: str, last: bool) -> None:
        now = self._clock()
        if last or now - self._said >= LINES_EVERY:
            self._said = now
            self._waiting = None
            self._write(line)
        else:
            self._waiting = line

    def _say_waiting(self) -> None:
        if self._waiting is not None:
            self._write(self._waiting)
            self._waiting = None

    def _write(self, line: str) -> None:
        print(line, file=self._stream, flush=True)
