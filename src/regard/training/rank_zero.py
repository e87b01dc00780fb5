"""Of several processes that fail together, only the first says why.

Importing this takes no time, so that the command can use it before it needs torch.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from regard.errors import RegardError, RunError

OTHER_PROCESS_FAILED = "another of the processes has failed, and says why; mend that, and go on with --resume."


def is_rank_zero() -> bool:
    """Whether this is the only process, or the first of those that `torchrun` started."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def rank_zero_errors() -> Iterator[None]:
    """While it lasts, what the first process says of a failure is enough: the others leave without a word."""
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
    """Whether another process is gone: torch gives most such errors a name, and gloo's only a text."""
    names = {kind.__name__ for kind in type(error).__mro__}
    return "DistError" in names or "gloo" in str(error)
