"""Plain lines on a stream, for pipes, logs and CI."""

import math
import time
from collections.abc import Mapping, Sequence
from typing import TextIO

from regard.training.display.base import Clock, Progress, ProgressDisplay, Sample, count_text, eta_texts, progress_texts
from regard.training.formatting import printable, scores_line

SECONDS_PER_LINE = 5.0


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
