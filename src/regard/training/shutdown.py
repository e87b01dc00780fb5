"""How a run ends before its last step: signals, and errors in one of several processes.

After Ctrl-C, SIGTERM or a closed terminal, a run stops between two steps, when it has saved a checkpoint; a second
Ctrl-C or SIGTERM stops at once. Of several processes, only the first prints error messages.

This module imports no torch, so that the command can use it before torch is loaded.
"""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from regard.errors import RegardError, RunError

TIMEOUT = (
    "a process did not answer within training.collective_timeout_minutes: it hangs, or it needs longer for a step; "
    "look at the output of the others, raise the setting if they are only slow, and continue with --resume."
)


@dataclass(frozen=True)
class LostProcess:
    """What is known about a process that is gone, and whether this process should report it."""

    message: str
    report: bool


class LostProcessError(RunError):
    """Another process is gone; raised by the one process that reports it."""


def lost_process_message(lost: Sequence[str]) -> str:
    """The message about processes that are gone, such as `rank 1 (PID 7 on node2) ended without a message`."""
    what = "; ".join(lost) or "the connection to another process was lost"
    return (
        f"{what}, so that all processes stopped. Its output is above, or in torchrun's --log-dir; torchrun reports the "
        "exit code or signal of each process below (-9 is SIGKILL: often memory ran out). Fix the cause, and continue "
        "from the last checkpoint with --resume."
    )


def _this_process_reports() -> LostProcess:
    return LostProcess(lost_process_message([]), is_rank_zero())


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
def rank_zero_errors(
    lost_process: Callable[[], LostProcess] = _this_process_reports,
    report_failure: Callable[[BaseException], None] = lambda error: None,
) -> Iterator[None]:
    """Let only the first process raise errors; the others exit silently with the same exit code.

    `report_failure` is called with the error of this process. If the connection to another process is lost,
    `lost_process` finds out which one, and whether this process reports it.
    """
    try:
        yield
    except LostProcessError:
        raise
    except RegardError as error:
        report_failure(error)
        if is_rank_zero():
            raise
        raise SystemExit(error.exit_code) from None
    except RuntimeError as error:
        if is_timeout(error):
            report_failure(timeout := RunError(TIMEOUT))
            if is_rank_zero():
                raise timeout from None
        elif _is_lost_connection(error):
            lost = lost_process()
            if lost.report:
                raise LostProcessError(lost.message) from None
        else:
            report_failure(error)
            raise
        raise SystemExit(RegardError.exit_code) from None
    except Exception as error:
        report_failure(error)
        raise


def is_timeout(error: RuntimeError) -> bool:
    """Whether a collective took too long."""
    text = str(error)
    return "Timed out waiting" in text or "Watchdog caught collective operation timeout" in text


def _is_lost_connection(error: RuntimeError) -> bool:
    """Whether another process is gone: torch has a class for most such errors, for those of gloo only a text."""
    names = {cls.__name__ for cls in type(error).__mro__}
    return "DistError" in names or "gloo" in str(error)
