"""What is wrong with data: the first fault ends the reading, or each is skipped and counted by its reason."""

import gzip
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from io import UnsupportedOperation
from typing import BinaryIO

from regard.errors import DataError


@dataclass
class InvalidLines:
    """Faults met so far. Nothing is dropped silently: what was skipped is counted, with an example of each reason."""

    skip: bool = False
    hint: str = ", or skip such lines with --skip-invalid"  # what else a user can do about one
    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def add(self, reason: str, fault: str) -> None:
        """Note a fault, such as `a.tsv:2: has an empty source; fill it`; unless faults are skipped, it is an error."""
        if not self.skip:
            raise DataError(f"{fault}{self.hint}.")
        self.counts[reason] += 1
        self.examples.setdefault(reason, f"{fault}.")


STANDARD_INPUT = "-"
MAX_LINE_BYTES = 16 * 2**20  # bytes; a longer line is no sentence, and would fill the memory


@dataclass(frozen=True)
class Line:
    """One line of a file, without its end. `text` is None where it could not be read and was skipped."""

    text: str | None
    file: str
    number: int

    @property
    def location(self) -> str:
        """`file:line`, as an error names it."""
        return f"{self.file}:{self.number}"


def read_lines(file: str, faults: InvalidLines) -> Iterator[Line]:
    """The lines of a file; `.gz` is unpacked on the way, `-` is standard input.

    A line that is not UTF-8, or far too long, is a fault; where faults are skipped, it comes with no text, so that
    what is aligned stays aligned.
    """
    shown = "standard input" if file == STANDARD_INPUT else file
    with _open(file) as stream:
        for number, raw in enumerate(_raw_lines(stream, shown), start=1):
            yield Line(_decode(raw, f"{shown}:{number}", number == 1, faults), shown, number)


@contextmanager
def check_gzip_on_error(*files: str) -> Iterator[None]:
    """While it lasts, a complaint about a line of a compressed file is made only if the file is whole.

    A damaged one unpacks to nonsense, whose lines are not to blame; that it is damaged shows only at its end.
    """
    try:
        yield
    except DataError:
        for file in files:
            if file.endswith(".gz"):
                with _open(file) as stream:
                    for _ in _raw_lines(stream, file):
                        pass
        raise


def _decode(raw: bytes | None, place: str, first: bool, faults: InvalidLines) -> str | None:
    if raw is None:
        faults.add("too long to read", f"{place}: is longer than {MAX_LINE_BYTES:,} bytes; break it into lines")
        return None
    try:
        return raw.decode("utf-8-sig" if first else "utf-8")  # a byte order mark is no part of the text
    except UnicodeDecodeError as error:
        byte = f"byte {error.start + 1} of the line is 0x{raw[error.start]:02x}"
        faults.add("not UTF-8", f"{place}: is not UTF-8 ({byte}); convert the file")
        return None


def _raw_lines(stream: BinaryIO, shown: str) -> Iterator[bytes | None]:
    """Lines without their ends; None for one that is too long, which is passed over piece by piece."""
    while raw := _read(stream, shown):
        if len(raw) <= MAX_LINE_BYTES:
            yield raw.removesuffix(b"\n").removesuffix(b"\r")
            continue
        while raw and not raw.endswith(b"\n"):
            raw = _read(stream, shown)
        yield None


def _read(stream: BinaryIO, shown: str) -> bytes:
    try:
        return stream.readline(MAX_LINE_BYTES + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{shown}: is a damaged gzip file ({error}); copy it again, or compress it again.") from None
    except OSError as error:
        raise DataError(f"{shown}: cannot be read ({error.strerror}).") from None


def _open(file: str) -> AbstractContextManager[BinaryIO]:
    if file == STANDARD_INPUT:
        return _standard_input()
    with explain_read_errors(file):
        return gzip.open(file, "rb") if file.endswith(".gz") else open(file, "rb")  # type: ignore[return-value]


def _standard_input() -> AbstractContextManager[BinaryIO]:
    """A reader of its own: Python cannot exit while a thread waits in the one that it made itself."""
    if sys.stdin is None:
        raise DataError("standard input: is closed; give it something to read, or name a file.")
    try:
        return open(sys.stdin.fileno(), "rb", closefd=False)
    except UnsupportedOperation:  # someone has put another object there
        return nullcontext(sys.stdin.buffer)


@contextmanager
def explain_read_errors(file: str) -> Iterator[None]:
    """While it lasts, what keeps a file from being read becomes a sentence."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"{file}: is not there; check the path.") from None
    except IsADirectoryError:
        raise DataError(f"{file}: is a folder; give the files in it.") from None
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error.strerror}).") from None
