"""A display that may lose its stream: a closed terminal, or a pipe that nobody reads, is no reason to stop training."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from regard.training.display.shown import Display, Progress, Sample


class LastingDisplay(Display):
    """Shows what another display shows, for as long as that can be written."""

    def __init__(self, shown: Display) -> None:
        self._shown = shown

    def note(self, sentence: str) -> None:
        """Pass it on."""
        with suppress(OSError):
            self._shown.note(sentence)

    def counting(self, what: str, done: int, total: int | None) -> None:
        """Pass it on."""
        with suppress(OSError):
            self._shown.counting(what, done, total)

    def progress(self, now: Progress) -> None:
        """Pass it on."""
        with suppress(OSError):
            self._shown.progress(now)

    def validated(self, step: int, scores: Mapping[str, float], best: bool, samples: Sequence[Sample]) -> None:
        """Pass it on."""
        with suppress(OSError):
            self._shown.validated(step, scores, best, samples)

    def close(self) -> None:
        """Pass it on."""
        with suppress(OSError):
            self._shown.close()
