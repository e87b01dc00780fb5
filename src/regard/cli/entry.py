"""Run the command line: errors become one message and an exit code, signals clean up before they end the process."""

import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from regard.errors import RegardError

SIGNAL_EXIT_CODE = 128  # a shell adds this to the number of the signal that ended a program
# Exit code of `regard translate … | head -1`: as cat and grep, the command ends silently with SIGPIPE's code.
BROKEN_PIPE_EXIT_CODE = SIGNAL_EXIT_CODE + 13


def run(app: Callable[[], object]) -> None:
    """Run the app; errors that the user can fix are printed to stderr as one message."""
    # Idle OpenMP threads should sleep soon: with other programs running, spinning makes training many times slower.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # read when torch is imported, which is later
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # regardless of the locale
    try:
        with exit_on_signals():
            app()
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # typer catches it and exits with 1
            sys.exit(BROKEN_PIPE_EXIT_CODE)
        raise
    except RegardError as error:
        print(f"regard: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("regard: interrupted.", file=sys.stderr)
        sys.exit(130)
    except OSError as error:  # missing permissions, a name that is too long, a full disk
        print(f"regard: {error.filename or 'the output'}: {error.strerror}.", file=sys.stderr)
        sys.exit(3)
    except Exception as error:
        code = hidden_exit_code(error)
        if code is None:
            raise
        sys.exit(code)
    finally:
        _flush()


@contextmanager
def exit_on_signals() -> Iterator[None]:
    """Make SIGTERM and SIGHUP raise SystemExit, so that temporary files are removed as on Ctrl-C."""
    handlers = {number: signal.getsignal(number) for number in _default_signals()}
    try:
        for number in handlers:
            signal.signal(number, _exit_with_signal)
    except ValueError:  # only the main thread can set signal handlers
        handlers = {}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def hidden_exit_code(error: BaseException | None) -> int | None:
    """Return the exit code of a signal that arrived while a compiled module was imported, and became another error."""
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
    """Return the signals that would end the process; signals that are ignored, as by nohup, stay ignored."""
    names = ("SIGTERM", "SIGHUP")  # Windows has only the first
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    return [number for number in numbers if signal.getsignal(number) == signal.SIG_DFL]


def _flush() -> None:
    """Flush stdout here, so that a full disk or a closed pipe ends with the right exit code."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            sys.exit(BROKEN_PIPE_EXIT_CODE)
        print(f"regard: the output: {error.strerror}.", file=sys.stderr)
        sys.exit(3)
