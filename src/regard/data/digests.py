"""Digests of the files of a corpus, computed while they are read, so that no file is read for its digest alone."""

import hashlib
import io
import os
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, BinaryIO

READ_BYTES = 2**20  # of a file that are read at once
_digests: ContextVar[MutableMapping[str, str] | None] = ContextVar("digests", default=None)


@contextmanager
def file_digests() -> Iterator[MutableMapping[str, str]]:
    """Yield a mapping that gets the digest of the content of each file that the body reads from start to end."""
    token = _digests.set({})
    try:
        digests = _digests.get()
        assert digests is not None
        yield digests
    finally:
        _digests.reset(token)


def new_digest() -> hashlib.blake2b:
    """Return the hash of no bytes."""
    return hashlib.blake2b(digest_size=16)


def hashed(stream: BinaryIO, file: str) -> BinaryIO:
    """Return a stream that hashes what is read, inside `file_digests`; otherwise the stream itself."""
    digests = _digests.get()
    if digests is None or file in digests:
        return stream
    return io.BufferedReader(_HashingReader(stream, file, digests), READ_BYTES)


class _HashingReader(io.RawIOBase):
    """Hashes what is read from a stream, and adds the digest to a mapping at its end."""

    def __init__(self, stream: BinaryIO, file: str, digests: MutableMapping[str, str]) -> None:
        self._stream, self._file, self._digests = stream, file, digests
        self._hash = new_digest()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = self._stream.read(len(buffer))
        self._hash.update(content)
        if not content:
            self._digests[self._file] = self._hash.hexdigest()
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        self._stream.close()
        super().close()


class SeekableFile(io.RawIOBase):
    """Reads a file in any order and hashes it from start to end, so that most bytes are read only once.

    A table in columns ends with its index, which is read first: the end of the file is kept until the hash arrives
    there. All else is expected in the order of the file, and what is skipped is read for the hash. What is read again
    is read twice.
    """

    def __init__(self, stream: BinaryIO, file: str) -> None:
        digests = _digests.get()
        self._stream, self._file, self._digests = stream, file, None if file in (digests or ()) else digests
        self._hash = new_digest()
        self._size = stream.seek(0, os.SEEK_END)
        self._position = 0
        self._hashed = 0  # bytes from the start
        self._end = b""  # the last bytes of the file

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the position of the next read."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        """Return the position of the next read."""
        return self._position

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes: exactly as many, unless the file ends."""
        start = min(self._position, self._size)
        stop = self._size if size is None or size < 0 else min(start + size, self._size)
        self._position = stop
        kept = self._size - len(self._end)  # where the end that is kept begins
        if self._digests is None or start < min(self._hashed, kept):
            return self._fetch(start, stop)
        if stop > kept or stop == self._size:
            if start < kept:
                self._end = self._fetch(start, kept) + self._end
                kept = start
            return self._end[start - kept : stop - kept]
        self._hash_until(start)
        content = self._fetch(start, stop)
        self._add(content)
        return content

    def finish(self) -> None:
        """Hash the rest, and add the digest to that of the other files."""
        if self._digests is not None:
            kept = self._size - len(self._end)
            self._hash_until(kept)
            self._hash.update(self._end[self._hashed - kept :])
            self._digests[self._file] = self._hash.hexdigest()

    def close(self) -> None:
        """Close the file."""
        self._stream.close()
        super().close()

    def _hash_until(self, position: int) -> None:
        while self._hashed < position:
            self._add(self._fetch(self._hashed, min(self._hashed + READ_BYTES, position)))

    def _add(self, content: bytes) -> None:
        self._hash.update(content)
        self._hashed += len(content)

    def _fetch(self, start: int, stop: int) -> bytes:
        self._stream.seek(start)
        content = self._stream.read(stop - start)
        if len(content) < stop - start:
            raise OSError("it has become shorter while it was read")
        return content
