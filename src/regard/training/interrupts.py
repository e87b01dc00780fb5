"""Ctrl-C and SIGTERM as a wish that is granted between two steps, after saving; a second one stops at once."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Wish:
    """Whether someone has asked to stop."""

    def __init__(self) -> None:
        self.made = False


@contextmanager
def wish_to_stop() -> Iterator[Wish]:
    """While it lasts, the first SIGINT or SIGTERM only makes the wish."""
    wish = Wish()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def note(number: int, frame: FrameType | None) -> None:
        wish.made = True
        for each, handler in before.items():  # the second one is not waited for
            signal.signal(each, handler)

    try:
        for number in before:
            signal.signal(number, note)
    except ValueError:  # only the main thread may listen to signals
        before = {}
    try:
        yield wish
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
