"""How a command ends that someone else ends: by a signal, or by reading no more of what it writes."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNAL_EXIT_CODE = 128  # what shells add to the number of the signal that ended a program
# `regard translate … | head -1` has not failed, nor has it written everything. It ends as cat and grep do there:
# without a word, and with the code that a shell gives a program that SIGPIPE ended, which scripts know to forgive.
BROKEN_PIPE_EXIT_CODE = SIGNAL_EXIT_CODE + 13


@contextmanager
def exit_on_signals() -> Iterator[None]:
    """While it lasts, SIGTERM and a closed terminal end the command as Ctrl-C does: what it has begun is tidied up."""
    before = {number: signal.getsignal(number) for number in _default_signals()}
    try:
        for number in before:
            signal.signal(number, _exit_with_signal)
    except ValueError:  # only the main thread may listen to signals
        before = {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def hidden_exit_code(error: BaseException | None) -> int | None:
    """The exit code for a signal that another error hides: one that came while a compiled module was being imported."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return SIGNAL_EXIT_CODE + signal.SIGINT
        if isinstance(error, SystemExit) and isinstance(error.code, int):
            return error.code
        error = error.__cause__ or error.__context__
    return None


def _exit_with_signal(number: int, frame: FrameType | None) -> None:
    sys.exit(SIGNAL_EXIT_CODE + number)


def _default_signals() -> list[int]:
    """The signals that would end this process at once; those that it was told to ignore, as by nohup, stay ignored."""
    names = ("SIGTERM", "SIGHUP")  # Windows has only the first
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    return [number for number in numbers if signal.getsignal(number) == signal.SIG_DFL]
