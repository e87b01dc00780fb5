"""A place in a run's folder that cannot be written, as one sentence with the remedy that fits the reason."""

import errno
import os
import re
from pathlib import Path

from regard.errors import RunFolderError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def unwritable(path: Path, error: Exception, then: str = "") -> RunFolderError:
    """What kept a file from being written, what to do about it, and what to do `then`.

    >>> str(unwritable(Path("run.json"), PermissionError(errno.EACCES, "Permission denied")))
    'run.json: cannot be written (Permission denied); make it writable.'
    >>> str(unwritable(Path("run.json"), OSError(errno.ENOSPC, "No space left on device"), ", then go on"))
    'run.json: cannot be written (No space left on device); free some space, then go on.'
    """
    number = error.errno if isinstance(error, OSError) else None
    if found := re.search(r"os error (\d+)", str(error)):  # how safetensors tells it
        number = int(found[1])
    reason = str(error) if number is None else os.strerror(number)
    remedy = "free some space" if number in FULL else "make it writable"
    return RunFolderError(f"{path}: cannot be written ({reason}); {remedy}{then}.")
