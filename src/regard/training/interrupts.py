"""Ctrl-C, SIGTERM and a closed terminal: a run stops between two steps, after it has saved a checkpoint.

A second Ctrl-C or SIGTERM stops at once.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


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
