"""What a user reads when something is wrong: one sentence saying what, where, and what to do.

Every error that a user can cause is a `RegardError`; the command prints its sentence and ends with its exit code.
"""


class RegardError(Exception):
    """Something failed in a way that a sentence explains better than a traceback."""

    exit_code = 1


class ConfigError(RegardError):
    """A setting or an argument is wrong."""

    exit_code = 2


class ModelError(RegardError):
    """A model folder is missing, unreadable or not what it should be."""

    exit_code = 3


class UnwritableModelError(ModelError):
    """A folder cannot be written: a full disk, or one that is not the user's."""


class DataError(RegardError):
    """A data file is missing, unreadable or not what it should be."""

    exit_code = 3


class InputError(RegardError, ValueError):
    """A network was given input that it cannot take, such as a sentence past its last learned position."""


class ArgumentError(RegardError, TypeError):
    """A Python argument is of the wrong kind, such as a number where a text belongs."""


class RunError(RegardError):
    """A run cannot begin or go on, such as one whose loss has diverged."""


class RunFolderError(RunError):
    """A run's folder cannot be written, or what is in it is missing, unreadable or damaged."""

    exit_code = 3


class ServerError(RegardError):
    """A server cannot begin, such as one whose port is taken."""


class InterruptedRun(RegardError):  # noqa: N818  # nothing went wrong: the user asked for it
    """The user, or the system, asked a run to stop; everything was saved first."""

    exit_code = 130
