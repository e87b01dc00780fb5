"""Atomic writes, and bounded reads of files that may come from anywhere.

A written file or folder appears complete, or not at all, whenever the process is stopped.

Content is written under a temporary name in the same folder, `.NAME-<12 hex digits>.tmp`, and renamed when complete.

- Durability: content reaches the disk (fsync) before the rename, and the rename before the function returns.
- Permissions: 0666 for files and 0777 for folders, less the umask, whatever library wrote them.
- Leftovers: a temporary file or folder is locked while it is written. The system releases the lock of a killed process,
  so unlocked ones are leftovers, and are removed when the same file or folder is written again. On Windows, where a
  locked file cannot be renamed, leftovers stay.
- Links and devices: the target of a symbolic link is replaced, not the link. Devices and pipes are written to directly.

Files of model and run folders are read with `read_regular_file`, which refuses pipes, devices and files that are too
large before reading them.
"""

import errno
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Any, BinaryIO

from regard.errors import DataError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

HAS_FLOCK: bool = fcntl is not None
IS_WINDOWS = os.name == "nt"
SUFFIX = ".tmp"
CHECKSUMS_FILE = "checksums.json"
FULL_DISK = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC), errno.EFBIG)
MAX_SMALL_FILE_BYTES = 4 * 2**20  # settings and the like
_FILE_TYPES = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def read_regular_file(path: Path, max_bytes: int = MAX_SMALL_FILE_BYTES) -> bytes:
    """Return the content of a regular file of at most `max_bytes`; raise OSError with a reason for any other.

    A link to `/dev/zero` would be read until memory is full, and opening a pipe would wait for a writer.
    """
    check_regular_file(path, max_bytes)
    # without blocking, in case the file was replaced by a pipe in the meantime
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0))) as file:
        _check_regular(os.fstat(file.fileno()), max_bytes)
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:  # files of /proc have no size
        raise OSError(errno.EFBIG, _too_large(max_bytes))
    return content


def load_json(text: str) -> Any:
    """Return the value of JSON that may come from anywhere; ValueError or RecursionError if it is not valid.

    Half a surrogate pair (`"\\ud800"`) is JSON for Python, but no file and no library can hold such a text.
    """
    value = json.loads(text)
    if "\\ud" in text.lower():
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"a text has the lone surrogate {error.object[error.start]!r}") from None
    return value


def check_regular_file(path: Path, max_bytes: int | None = None) -> None:
    """Raise OSError with a reason unless a path is a regular file of at most `max_bytes`."""
    _check_regular(os.stat(path), max_bytes)


def _check_regular(status: os.stat_result, max_bytes: int | None) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = next((name for test, name in _FILE_TYPES if test(status.st_mode)), "not a file")
        raise OSError(errno.EINVAL, f"it is {kind}, not a regular file")
    if max_bytes is not None and status.st_size > max_bytes:
        raise OSError(errno.EFBIG, _too_large(max_bytes))


def _too_large(max_bytes: int) -> str:
    return f"it is larger than {max_bytes / 2**20:g} MB"


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    with atomic_file(path) as file:
        file.write(content)


def write_text(path: Path, content: str) -> None:
    """Write a text file in UTF-8 atomically."""
    write_bytes(path, content.encode("utf-8"))


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a file to write to, which replaces `path` if the body ends without an exception."""
    if path.exists() and not path.is_file():
        with _opened(path) as device:
            yield device
        return
    path = path.resolve()
    remove_leftovers(path)
    with _temporary(path, _create_file, _remove_file) as temporary:
        with _opened(temporary) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a path for a library that writes a file by name; the file replaces `path` if the body succeeds."""
    path = path.resolve()
    remove_leftovers(path)
    with _temporary(path, Path.mkdir, _remove_folder) as temporary:  # a folder keeps its lock if the file is replaced
        file = temporary / path.name
        yield file
        _finish_file(file, temporary)
        os.replace(file, path)
        sync_folder(path.parent)


@contextmanager
def atomic_folder(folder: Path, *, replace: bool = False) -> Iterator[Path]:
    """Yield a folder to write in, which is renamed to `folder` if the body ends without an exception.

    Args:
        folder: the name of the folder. Its parent must exist.
        replace: replace an existing folder of that name; otherwise it is an error.
    """
    remove_leftovers(folder)
    with _temporary(folder, Path.mkdir, _remove_folder) as temporary:
        yield temporary
        for path in temporary.rglob("*"):
            sync_folder(path) if path.is_dir() else _finish_file(path, temporary)
        sync_folder(temporary)
        if replace and folder.exists():
            # Removing the old folder takes a while, in which a part of it would be visible: move it away first.
            with _temporary(folder, Path.mkdir, _remove_folder) as old:
                os.replace(folder, old / folder.name)
                os.replace(temporary, folder)
        else:
            os.replace(temporary, folder)
        sync_folder(folder.parent)


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Create a folder and hold its lock; wait until no other process holds it. A system without locks has no effect."""
    descriptor = None
    with suppress(OSError):  # also if the folder cannot be created: what is written in it then reports the reason
        folder.mkdir(parents=True, exist_ok=True)
        if fcntl is not None:
            descriptor = os.open(folder, os.O_RDONLY)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def write_checksums(folder: Path) -> None:
    """Write `checksums.json`: size and SHA-256 of every file in a folder."""
    content = {path.name: _size_and_digest(path) for path in sorted(folder.iterdir())}
    (folder / CHECKSUMS_FILE).write_text(json.dumps(content, indent=2) + "\n", "utf-8")


def checksums_match(folder: Path) -> bool:
    """Return whether a folder has exactly the files of its `checksums.json`, with these sizes and contents."""
    try:
        expected = json.loads(read_regular_file(folder / CHECKSUMS_FILE))
        paths = {path.name: path for path in folder.iterdir() if path.name != CHECKSUMS_FILE}
        if expected.keys() != paths.keys():
            return False
        if any(path.stat().st_size != expected[name][0] for name, path in paths.items()):
            return False  # without reading everything
        return all(_size_and_digest(path) == expected[name] for name, path in paths.items())
    except (OSError, AttributeError, LookupError, TypeError, ValueError, RecursionError):
        return False


def _size_and_digest(path: Path) -> list[int | str]:
    import hashlib

    check_regular_file(path)
    with path.open("rb") as file:
        return [path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest()]


def remove_leftovers(path: Path) -> None:
    """Remove temporary files and folders of `path` that killed processes left."""
    name = re.compile(re.escape(_prefix(path)) + "[0-9a-f]{12}" + re.escape(SUFFIX))
    with suppress(OSError):  # the folder cannot be listed
        for leftover in [entry for entry in path.parent.iterdir() if name.fullmatch(entry.name)]:
            with suppress(OSError):  # another process is writing it, or has just removed it
                lock = _lock(leftover)
                _remove_folder(leftover) if leftover.is_dir() else _remove_file(leftover)
                os.close(lock)


def write_error_message(path: Path, error: Exception, *, remedy: str = "choose another place", then: str = "") -> str:
    """Return the message for a file that cannot be written: its path, the reason and the remedy.

    Args:
        path: the file or folder.
        error: an `OSError`, or an error of safetensors.
        remedy: what to do about it, unless the disk is full.
        then: what to do after that, such as `, then resume with --resume`.

    >>> write_error_message(Path("run.json"), PermissionError(errno.EACCES, "Permission denied"))
    'run.json: cannot be written (Permission denied); choose another place.'
    >>> write_error_message(Path("run.json"), OSError(errno.ENOSPC, "No space left on device"))
    'run.json: cannot be written (No space left on device); free some space.'
    """
    number = error.errno if isinstance(error, OSError) else None
    if match := re.search(r"os error (\d+)", str(error)):  # as safetensors reports it
        number = int(match[1])
    reason = str(error) if number is None else os.strerror(number)
    return f"{path}: cannot be written ({reason}); {'free some space' if number in FULL_DISK else remedy}{then}."


@contextmanager
def explain_write_errors(path: Path, *, remedy: str = "choose another place") -> Iterator[None]:
    """Turn an `OSError` of the body into a `DataError` about this path."""
    try:
        yield
    except OSError as error:
        raise DataError(write_error_message(path, error, remedy=remedy)) from None


@contextmanager
def _temporary(path: Path, create: Callable[[Path], None], remove: Callable[[Path], None]) -> Iterator[Path]:
    """Create a temporary file or folder next to `path` and lock it; remove it at the end if it is still there."""
    while True:
        temporary, lock = path.with_name(_prefix(path) + os.urandom(6).hex() + SUFFIX), None
        try:  # a signal may come between creating and locking it
            create(temporary)
            try:
                lock = _lock(temporary)
            except (BlockingIOError, FileNotFoundError):
                continue  # another process took it for a leftover
            except OSError:
                pass  # no locks on this system, so no process can take it for a leftover
            if temporary.exists():
                yield temporary
                return
        finally:
            remove(temporary)
            if lock is not None:
                os.close(lock)


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing; after an exception, closing it raises no other."""
    file = path.open("wb")
    try:
        yield file
        file.close()
    finally:
        with suppress(OSError):
            file.close()


def _prefix(path: Path) -> str:
    return f".{path.name}-"


def _create_file(path: Path) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))


def _remove_file(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


def _remove_folder(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)


def lock_file(file: IO[Any], *, shared: bool = False) -> None:
    """Lock an open file until it is closed or the process ends; OSError if another process holds the lock.

    Several processes can hold a `shared` lock; Windows has none.
    """
    if HAS_FLOCK:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    elif not shared:
        msvcrt: Any = import_module("msvcrt")  # of Windows, unknown to type checkers elsewhere
        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # the first byte, which need not exist


def _lock(path: Path) -> int:
    """Lock a file or folder until the returned descriptor is closed; BlockingIOError if another process holds it."""
    if fcntl is None:
        raise OSError("this system has no locks of folders, and cannot rename locked files")
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _finish_file(file: Path, folder: Path) -> None:
    """Set the permissions of a file, which follow from those of its new folder, and wait until it is on the disk."""
    file.chmod(folder.stat().st_mode & 0o666)
    descriptor = os.open(file, os.O_RDWR if IS_WINDOWS else os.O_RDONLY)  # Windows flushes only what can be written
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Wait until the entries of a folder are on the disk, where the system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
