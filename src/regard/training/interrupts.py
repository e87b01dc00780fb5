"""Ctrl-C, SIGTERM and a terminal that is closed as a stop that is granted between two steps, after saving.

A second Ctrl-C or SIGTERM stops at once.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """Whether someone has asked to stop."""

    def __init__(self) -> None:
        self.requested = False


@contextmanager
def stop_on_signal() -> Iterator[StopRequest]:
    """While it lasts, the first SIGINT, SIGTERM or SIGHUP only makes the stop."""
    stop = StopRequest()
    before = {number: signal.getsignal(number) for number in _listened_to()}

    def note(number: int, frame: FrameType | None) -> None:
        stop.requested = True
        for each in (signal.SIGINT, signal.SIGTERM):  # the second one is not waited for
            signal.signal(each, before[each])
        # A second SIGHUP is: shell and kernel may both send one when a terminal is closed.

    try:
        for number in before:
            signal.signal(number, note)
    except ValueError:  # only the main thread may listen to signals
        before = {}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _listened_to() -> list[signal.Signals]:
    numbers = [signal.SIGINT, signal.SIGTERM]
    hang_up = getattr(signal, "SIGHUP", None)  # Windows has none
    if hang_up is not None and signal.getsignal(hang_up) != signal.SIG_IGN:  # as under nohup
        numbers.append(hang_up)
    return numbers
