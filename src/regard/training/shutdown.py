"""How a run ends before its last step: signals, and errors in one of several processes.

After Ctrl-C, SIGTERM or a closed terminal, a run stops between two steps, when it has saved a checkpoint; a second
Ctrl-C or SIGTERM stops at once. Of several processes, only the first prints error messages.

This module imports no torch, so that the command can use it before torch is loaded.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from regard.errors import RegardError, RunError

OTHER_PROCESS_FAILED = "another process failed and printed why; fix that, and continue with --resume."


class StopRequest:
    """Whether the run should stop."""

    def __init__(self) -> None:
        self.requested = False


@contextmanager
def stop_on_signal() -> Iterator[StopRequest]:
    """Turn the first SIGINT, SIGTERM or SIGHUP into a stop request."""
    stop = StopRequest()
    handlers = {number: signal.getsignal(number) for number in _handled_signals()}

    def request_stop(number: int, frame: FrameType | None) -> None:
        stop.requested = True
        for repeated in (signal.SIGINT, signal.SIGTERM):  # the second one stops at once
            signal.signal(repeated, handlers[repeated])
        # A second SIGHUP does not: the shell and the kernel may both send one when a terminal is closed.

    try:
        for number in handlers:
            signal.signal(number, request_stop)
    except ValueError:  # only the main thread can handle signals
        handlers = {}
    try:
        yield stop
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _handled_signals() -> list[signal.Signals]:
    numbers = [signal.SIGINT, signal.SIGTERM]
    hang_up = getattr(signal, "SIGHUP", None)  # not on Windows
    if hang_up is not None and signal.getsignal(hang_up) != signal.SIG_IGN:  # ignored under nohup
        numbers.append(hang_up)
    return numbers


def is_rank_zero() -> bool:
    """Whether this is the only process, or the first of those that `torchrun` started."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def rank_zero_errors() -> Iterator[None]:
    """Let only the first process raise errors; the others exit silently with the same exit code."""
    try:
        yield
    except RegardError as error:
        if is_rank_zero():
            raise
        raise SystemExit(error.exit_code) from None
    except RuntimeError as error:
        if not _is_lost_connection(error):
            raise
        if is_rank_zero():
            raise RunError(OTHER_PROCESS_FAILED) from None
        raise SystemExit(RegardError.exit_code) from None


def _is_lost_connection(error: RuntimeError) -> bool:
    """Whether another process is gone: torch has a class for most such errors, for those of gloo only a text."""
    names = {cls.__name__ for cls in type(error).__mro__}
    return "DistError" in names or "gloo" in str(error)
