"""Opening data files: local or remote, compressed or not, and patterns that stand for several files.

A name is a path, or a URL of any protocol that fsspec knows (`s3://`, `gs://`, `hf://`, `memory://`, …). The suffixes
`.gz`, `.xz` and `.zst` are decompressed while reading. Every error becomes one message about the file: one that is
missing, truncated or damaged, or a package that is not installed.
"""

import glob
import gzip
import io
import lzma
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

from regard.data.digests import READ_BYTES, SeekableFile, hashed, new_digest
from regard.errors import DataError
from regard.files import atomic_file, explain_write_errors

COMPRESSIONS = {".gz": "gzip", ".xz": "xz", ".zst": "Zstandard"}
URL = re.compile(r"([a-z][a-z0-9+.-]+)://", re.IGNORECASE)
PROTOCOL_PACKAGES = {  # for the message if one is missing
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "hf": "huggingface_hub",
    "az": "adlfs",
    "abfs": "adlfs",
    "http": "aiohttp",
    "https": "aiohttp",
    "ssh": "paramiko",
    "sftp": "paramiko",
}


def is_url(name: str) -> bool:
    """Return whether a name is a URL.

    >>> is_url("s3://bucket/pairs.tsv"), is_url("builtin:phrasebook"), is_url("c:/pairs.tsv")
    (True, False, False)
    """
    return URL.match(name) is not None


def compression_suffix(name: str) -> str:
    """Return the suffix of a compressed file, or an empty string.

    >>> compression_suffix("a.tsv.zst"), compression_suffix("a.tsv")
    ('.zst', '')
    """
    return next((suffix for suffix in COMPRESSIONS if name.lower().endswith(suffix)), "")


def without_compression(name: str) -> str:
    """Return a file name without the suffix of its compression.

    >>> without_compression("a.tsv.xz"), without_compression("a.tsv")
    ('a.tsv', 'a.tsv')
    """
    suffix = compression_suffix(name)
    return name[: -len(suffix)] if suffix else name


@contextmanager
def explain_read_errors(file: str) -> Iterator[None]:
    """Turn an `OSError` of the body into a `DataError` about this file."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"{file}: not found; check the path.") from None
    except IsADirectoryError:
        raise DataError(f"{file}: is a folder; pass the files in it.") from None
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error.strerror or error}).") from None


READ_ERRORS = (OSError, EOFError, zlib.error, lzma.LZMAError)


def read_error(file: str, error: BaseException) -> DataError:
    """Return the message for one of `READ_ERRORS`, which reading from an open file has raised."""
    if isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile):
        return DataError(f"{file}: cannot be read ({error.strerror or error}).")
    kind = COMPRESSIONS.get(compression_suffix(file), "compressed")
    return DataError(f"{file}: is a damaged {kind} file ({error}); copy it again, or compress it again.")


def open_binary(file: str) -> BinaryIO:
    """Open a file for reading, decompressed.

    Errors while opening it are explained; while it is read, `READ_ERRORS` may occur, and `read_error` explains them.
    """
    match compression_suffix(file):
        case ".gz":
            return _GzipFile(open_raw(file))  # type: ignore[return-value]
        case ".xz":
            return _XzFile(open_raw(file))  # type: ignore[return-value]
        case ".zst":
            zstandard = optional_module("zstandard", file)
            return io.BufferedReader(_ZstandardReader(open_raw(file), zstandard), READ_BYTES)
    return open_raw(file)


def open_raw(file: str) -> BinaryIO:
    """Open the bytes of a file as they are stored; inside `file_digests` they are hashed while they are read."""
    return hashed(_open_stored(file), file)


def _open_stored(file: str) -> BinaryIO:
    if is_url(file):
        return _remote(file, lambda system, path: system.open(path, "rb"))  # type: ignore[no-any-return]
    with explain_read_errors(file):
        return open(file, "rb")


def open_seekable(file: str) -> SeekableFile:
    """Open the bytes of a file for reading in any order; inside `file_digests` they can be hashed meanwhile."""
    return SeekableFile(_open_stored(file), file)


def content_digest(file: str) -> str:
    """Return a hash of the bytes of a file."""
    digest = new_digest()
    with open_raw(file) as stream, explain_read_errors(file):
        while content := stream.read(READ_BYTES):
            digest.update(content)
    return digest.hexdigest()


@contextmanager
def open_output(file: str) -> Iterator[BinaryIO]:
    """Yield a file to write to, compressed by its suffix; it appears, complete, if the body ends without an exception.

    A remote file is written to a temporary local one, which is uploaded at the end.
    """
    if is_url(file) and not file.startswith("file://"):
        with TemporaryDirectory(prefix="regard-") as folder:
            copy = Path(folder) / f"upload{compression_suffix(file)}"
            with open_output(str(copy)) as output:
                yield output
            _remote(file, lambda system, path: system.put_file(str(copy), path), write=True)
        return
    path = Path(file.removeprefix("file://"))
    with explain_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as local, _compressed(local, file) as output:
            yield output


@contextmanager
def _compressed(stream: BinaryIO, file: str) -> Iterator[BinaryIO]:
    match compression_suffix(file):
        case ".gz":
            with gzip.GzipFile(fileobj=stream, mode="wb", filename="", mtime=0) as output:
                yield output  # type: ignore[misc]
        case ".xz":
            with lzma.LZMAFile(stream, "wb") as output:
                yield output  # type: ignore[misc]
        case ".zst":
            with optional_module("zstandard", file).ZstdCompressor().stream_writer(stream, closefd=False) as output:
                yield output
        case _:
            yield stream


def file_exists(file: str) -> bool:
    """Return whether there is a file or folder of this name, or one that matches the pattern."""
    try:
        if has_pattern(file):
            return bool(expand_pattern(file))
        return bool(_remote(file, lambda system, path: system.exists(path))) if is_url(file) else Path(file).exists()
    except DataError:
        return False


def has_pattern(file: str) -> bool:
    """Return whether a name is a pattern such as `corpus/*.tsv`, and not that of an existing file.

    >>> has_pattern("corpus/*.tsv"), has_pattern("corpus/a.tsv")
    (True, False)
    """
    return glob.has_magic(file) and (is_url(file) or not os.path.lexists(file))


def expand_pattern(file: str) -> list[str]:
    """Return the files that a pattern stands for, sorted; any other name as it is. `**` matches subfolders."""
    if not has_pattern(file):
        return [file]
    if is_url(file):
        found = _remote(file, lambda system, path: [system.unstrip_protocol(name) for name in system.glob(path)])
    else:
        found = [name for name in glob.glob(file, recursive=True) if os.path.isfile(name)]
    if not found:
        raise DataError(f"{file}: matches no file; check the pattern.")
    return sorted(found)


def expand_patterns(files: Iterable[str]) -> list[str]:
    """Return files, with patterns replaced by the files they stand for."""
    return [name for file in files for name in expand_pattern(file)]


def _remote(file: str, call: Any, *, write: bool = False) -> Any:
    """Call a function with the file system and the path of a URL; explain what failed."""
    fsspec = optional_module("fsspec", file)
    protocol = file.partition("://")[0].lower()
    try:
        system, path = fsspec.core.url_to_fs(file)
        return call(system, path)
    except ImportError as error:
        package = PROTOCOL_PACKAGES.get(protocol)
        remedy = f"pip install {package}" if package else f"install the package of {protocol}:// ({error})"
        raise DataError(f"{file}: {protocol}:// needs a package that is not installed; {remedy}.") from None
    except FileNotFoundError:
        raise DataError(f"{file}: not found; check the address.") from None
    except Exception as error:  # every protocol raises exceptions of its own
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200].rstrip(".: ")
        if isinstance(error, ValueError) and "not known" in str(error):
            raise DataError(f"{file}: {protocol}:// is not a protocol that fsspec knows; check the address.") from None
        action = "written" if write else "read"
        raise DataError(f"{file}: cannot be {action} ({reason}); check the address and your credentials.") from None


def optional_module(module: str, file: str) -> Any:
    """Import a module of the extra `data`, which reading this file needs."""
    try:
        return import_module(module)
    except ImportError:
        raise DataError(
            f"{file}: needs {module.partition('.')[0]}; install it with: pip install 'regard[data]'."
        ) from None


class _GzipFile(gzip.GzipFile):
    """A gzip file that closes the stream it reads from."""

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__(fileobj=stream, mode="rb")
        self._stream = stream

    def close(self) -> None:
        super().close()
        self._stream.close()


class _XzFile(lzma.LZMAFile):
    """An xz file that closes the stream it reads from."""

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__(stream)
        self._stream = stream

    def close(self) -> None:
        super().close()
        self._stream.close()


class _ZstandardReader(io.RawIOBase):
    """Decompresses Zstandard frames; unlike the library's own reader it notices a truncated file."""

    def __init__(self, stream: BinaryIO, zstandard: Any) -> None:
        self._stream, self._zstandard = stream, zstandard
        self._frame: Any = None
        self._pending = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._pending:
            content = self._stream.read(READ_BYTES // 8)
            if not content:
                if self._frame is not None:
                    raise EOFError("it is truncated")
                return 0
            self._pending = memoryview(b"".join(self._decompressed(content)))
        size = min(len(buffer), len(self._pending))
        buffer[:size] = self._pending[:size]
        self._pending = self._pending[size:]
        return size

    def _decompressed(self, content: bytes) -> Iterator[bytes]:
        try:
            while content:
                self._frame = self._frame or self._zstandard.ZstdDecompressor().decompressobj()
                yield self._frame.decompress(content)
                if not self._frame.eof:
                    return
                content, self._frame = self._frame.unused_data, None
        except self._zstandard.ZstdError as error:
            raise EOFError(str(error)) from None

    def close(self) -> None:
        self._stream.close()
        super().close()
