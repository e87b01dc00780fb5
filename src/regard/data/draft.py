"""A folder or a file that appears whole or not at all: written under a hidden name beside its place, then renamed.

A draft is locked while it is being written. The system gives the lock of a killed process back, and so a draft that
nobody holds is known to be abandoned.
"""

import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows has no such locks: there, abandoned drafts stay
    fcntl = None  # type: ignore[assignment]

FILE = ".draft"  # how the names of drafts of files end: beside them lie files of others, which are never touched


@contextmanager
def new_draft(folder: Path) -> Iterator[Path]:
    """A hidden folder to write in; what is not published by then is gone afterwards."""
    with _locked_draft(folder, Path.mkdir, partial(shutil.rmtree, ignore_errors=True)) as draft:
        yield draft


@contextmanager
def new_draft_file(file: Path) -> Iterator[Path]:
    """A hidden file to write in; what has not been given its name by then is gone afterwards.

    Drafts of the same file that killed processes have left are removed first.
    """
    _remove_abandoned_files(file)
    with _locked_draft(file, _touch, _unlink, FILE) as draft:
        yield draft


def publish(draft: Path, folder: Path) -> None:
    """Give a complete draft its name; a folder of that name makes way for it."""
    for path in (*draft.iterdir(), draft):
        _sync(path)
    with new_draft(folder) as aside:
        if folder.exists():
            os.replace(folder, aside / "old")  # removing it in place takes a while, and would show a part of it
        os.replace(draft, folder)
    _sync(folder.parent)


def remove_abandoned(folder: Path) -> None:
    """Remove the drafts for a folder that killed processes have left."""
    for path in folder.parent.iterdir():
        if path.name.startswith(_prefix(folder)) and path.is_dir():
            with suppress(OSError):  # someone is writing it, or has just removed it
                lock = _lock(path)
                shutil.rmtree(path, ignore_errors=True)
                os.close(lock)


def _remove_abandoned_files(file: Path) -> None:
    ours = re.compile(re.escape(_prefix(file)) + "[0-9a-f]{12}" + re.escape(FILE))
    with suppress(OSError):  # a folder that may be written in, but not listed
        for path in [path for path in file.parent.iterdir() if ours.fullmatch(path.name)]:
            with suppress(OSError):  # someone is writing it, or has just removed it
                lock = _lock(path)
                path.unlink(missing_ok=True)
                os.close(lock)


def _touch(file: Path) -> None:
    os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def _unlink(file: Path) -> None:
    with suppress(OSError):
        file.unlink()


@contextmanager
def _locked_draft(
    place: Path, make: Callable[[Path], None], remove: Callable[[Path], None], ending: str = ""
) -> Iterator[Path]:
    while True:
        draft, lock = place.with_name(_prefix(place) + secrets.token_hex(6) + ending), None
        try:  # from its first moment on, whatever happens removes it: a signal may come before it is locked
            make(draft)
            try:
                lock = _lock(draft)
            except (BlockingIOError, FileNotFoundError):
                continue  # someone took it for abandoned before it was locked
            except OSError:
                pass  # no locks here, so nobody can take it for abandoned either
            if draft.exists():
                yield draft
                return
        finally:
            remove(draft)
            if lock is not None:
                os.close(lock)


def _prefix(place: Path) -> str:
    return f".{place.name}-"


def _lock(place: Path) -> int:
    """A lock on a folder or a file, held until it is closed; BlockingIOError where another process has it."""
    if fcntl is None:
        raise OSError("this system has no such locks")
    opened = os.open(place, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(opened)
        raise
    return opened


def _sync(path: Path) -> None:
    """Wait until a file, or what a folder lists, is on the disk."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
