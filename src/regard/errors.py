"""Exceptions. Every error that a user can cause is a `RegardError` with one message: where, what, and what to do.

    RegardError
    ├── ConfigError             a setting, option or argument is wrong
    ├── DataError               a data file is missing, unreadable or malformed
    ├── ModelError              a model folder is missing, unreadable or damaged
    │   └── UnwritableModelError    a model folder cannot be written
    ├── InputError              an input that the network cannot process (also a ValueError)
    ├── ArgumentError           a Python argument has the wrong type (also a TypeError)
    ├── RunError                a training run cannot start or continue
    │   └── RunFolderError          a run folder cannot be written or read
    ├── ServerError             the server cannot start
    └── InterruptedRun          a run was stopped by the user or the system, after saving

The command line prints the message and exits with the `exit_code` of the class: 1 failed, 2 usage or config, 3 missing
or unreadable data or model, 130 interrupted.
"""


class RegardError(Exception):
    """Base class of all errors that a message explains better than a traceback."""

    exit_code = 1


class ConfigError(RegardError):
    """A setting, option or argument is wrong, or does not apply to the model."""

    exit_code = 2


class ModelError(RegardError):
    """A model folder is missing, unreadable, incomplete or damaged."""

    exit_code = 3


class UnwritableModelError(ModelError):
    """A model folder cannot be written, because the disk is full or permissions are missing."""


class DataError(RegardError):
    """A data file is missing, unreadable or malformed."""

    exit_code = 3


class InputError(RegardError, ValueError):
    """An input that the network cannot process, such as a text longer than its learned positions."""


class ArgumentError(RegardError, TypeError):
    """A Python argument has the wrong type, such as a number instead of a text."""


class RunError(RegardError):
    """A training run cannot start or continue, for example because its loss diverged."""


class RunFolderError(RunError):
    """A run folder cannot be written, or its files are missing, unreadable or damaged."""

    exit_code = 3


class ServerError(RegardError):
    """The server cannot start, for example because its port is in use."""


class InterruptedRun(RegardError):  # noqa: N818  # not an error: the user requested it
    """A training run was stopped by the user or the system; everything was saved first."""

    exit_code = 130
