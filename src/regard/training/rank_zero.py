"""Error messages of distributed training: only the first process prints them.

This module imports no torch, so that the command can use it before torch is loaded.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from regard.errors import RegardError, RunError

OTHER_PROCESS_FAILED = "another process failed and printed why; fix that, and continue with --resume."


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
