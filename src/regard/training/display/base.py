"""What a display is told, and how it says it: the figures of training, samples, and counts."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from regard.training.formatting import duration, printable

Clock = Callable[[], float]


@dataclass(frozen=True)
class Progress:
    """Where training stands: the loss per prediction, not smoothed, and the share of the machine's matmul ceiling."""

    step: int
    steps: int
    epoch: float
    loss: float
    learning_rate: float
    targets_per_second: float
    utilization: float | None
    seconds_left: float | None
    unit: str = "tokens"


@dataclass(frozen=True)
class Sample:
    """What the model makes of one sentence. For a language model: a prompt, no reference, and its continuation."""

    source: str
    reference: str
    output: str

    def rows(self, longest: int = 300) -> list[tuple[str, str]]:
        """The parts with their names, made safe to print."""
        if self.reference:
            named = [("source", self.source), ("reference", self.reference), ("output", self.output)]
        else:
            named = [("prompt", self.source), ("output", self.output)]
        return [(name, printable(text, longest)) for name, text in named]


class ProgressDisplay:
    """Shows nothing: for `--quiet`, and for every process but the first."""

    def note(self, sentence: str) -> None:
        """Say something worth knowing once."""

    def count(self, what: str, done: int, total: int | None) -> None:
        """Say how far the data are prepared: `tokenizing train`, and the examples so far."""

    def progress(self, now: Progress) -> None:
        """Say how far training is."""

    def validation(self, step: int, scores: Mapping[str, float], best: bool, samples: Sequence[Sample]) -> None:
        """Show the scores of a validation and what the model made of a few sentences."""

    def close(self) -> None:
        """Leave the terminal as it was found, with nothing unsaid."""


def progress_texts(now: Progress, ceiling: str = "this machine's ceiling") -> list[str]:
    """The figures of training, each as a few words; what is not known is left out."""
    said = [f"epoch {now.epoch:.1f}", f"loss {now.loss:.3f}", f"rate {now.learning_rate:.1e}"]
    if math.isfinite(now.targets_per_second):
        said.append(f"{now.targets_per_second:,.0f} {now.unit}/s")
    if now.utilization is not None and math.isfinite(now.utilization):
        said.append(f"{now.utilization:.0%} of {ceiling}")
    return said


def eta_texts(now: Progress) -> list[str]:
    """The time that training still takes, while that is known."""
    if now.seconds_left is None or not math.isfinite(now.seconds_left) or now.step >= now.steps:
        return []
    return [f"ETA {duration(max(0.0, now.seconds_left))}"]


def count_text(what: str, done: int, total: int | None) -> str:
    """How far a count is.

    >>> count_text("tokenizing train", 12_000, 29_000)
    'tokenizing train: 12,000 of 29,000'
    """
    return f"{printable(what)}: {done:,}" + (f" of {total:,}" if total is not None else "")


class ResilientDisplay(ProgressDisplay):
    """Shows what another display shows, for as long as that can be written."""

    def __init__(self, shown: ProgressDisplay) -> None:
        self._shown = shown

    def note(self, sentence: str) -> None:
        """Pass it on."""
        with suppress(OSError):
            self._shown.note(sentence)

    def count(self, what: str, done: int, total: int | None) -> None:
        """Pass it on."""
        with suppress(OSError):
            self._shown.count(what, done, total)

    def progress(self, now: Progress) -> None:
        """Pass it on."""
        with suppress(OSError):
            self._shown.progress(now)

    def validation(self, step: int, scores: Mapping[str, float], best: bool, samples: Sequence[Sample]) -> None:
        """Pass it on."""
        with suppress(OSError):
            self._shown.validation(step, scores, best, samples)

    def close(self) -> None:
        """Pass it on."""
        with suppress(OSError):
            self._shown.close()
