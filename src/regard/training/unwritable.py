"""A place in a run's folder that cannot be written, as one sentence with the remedy that fits the reason."""

from pathlib import Path

from regard.errors import RunFolderError
from regard.files import write_error_message


def unwritable(path: Path, error: Exception, then: str = "") -> RunFolderError:
    """What kept a file from being written, what to do about it, and what to do `then`.

    >>> import errno
    >>> str(unwritable(Path("run.json"), PermissionError(errno.EACCES, "Permission denied")))
    'run.json: cannot be written (Permission denied); make it writable.'
    >>> str(unwritable(Path("run.json"), OSError(errno.ENOSPC, "No space left on device"), ", then go on"))
    'run.json: cannot be written (No space left on device); free some space, then go on.'
    """
    return RunFolderError(write_error_message(path, error, remedy="make it writable", then=then))
