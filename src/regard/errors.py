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
    ├── MissingPackageError     a package of the extra `train` is not installed (also an ImportError)
    └── InterruptedRun          a run was stopped by the user or the system, after saving

The command line prints the message and exits with the `exit_code` of the class: 1 failed, 2 usage or config, 3 missing
or unreadable data or model, 130 interrupted.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

TRAINING_PACKAGES = {"torch": "PyTorch", "matplotlib": "matplotlib", "sacrebleu": "sacreBLEU"}  # the extra `train`
INSTALL_TRAINING_PACKAGES = "install it with: pip install 'regard[train]'"


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


class MissingPackageError(RegardError, ImportError):
    """A package is needed that `pip install regard` does not install."""


def require_packages(*names: str) -> None:
    """Raise the error of an import if one of these packages is not installed, without importing it."""
    for name in names:
        if find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@contextmanager
def explain_missing_packages(what: str) -> Iterator[None]:
    """Turn the error about a missing package of the extra `train` into a message that says what needs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = TRAINING_PACKAGES.get((error.name or "").partition(".")[0])
        if package is None:
            raise
        raise MissingPackageError(f"{what} needs {package}; {INSTALL_TRAINING_PACKAGES}.") from None


class InterruptedRun(RegardError):  # noqa: N818  # not an error: the user requested it
    """A training run was stopped by the user or the system; everything was saved first."""

    exit_code = 130
