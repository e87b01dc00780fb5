"""The interface of displays, what they show, and the texts they have in common."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from regard.training.formatting import duration, printable

Clock = Callable[[], float]


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
