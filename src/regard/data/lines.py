"""Lines of UTF-8 text from files (local, remote, compressed) and standard input, with locations, and invalid lines.

A line ends at a newline only. Other Unicode line separators are part of the text: splitting at them would misalign
parallel files. `prefetch` reads in a background thread: an interactive user gets an answer to each line at once, while
a large file is processed in large batches.

Text that is not UTF-8 is an error that names the encoding and the command that converts it. UTF-16 and UTF-32 are
recognized by their byte order mark or by their zero bytes, Windows-1252 by its letters and punctuation among ASCII
letters. A few damaged lines in a UTF-8 file are not another encoding.
"""

import codecs
import os
import shlex
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from io import UnsupportedOperation
from pathlib import Path
from queue import Empty, Queue
from typing import BinaryIO, TypeVar

from regard.data.remote import READ_ERRORS, compression_suffix, open_binary, read_error, without_compression
from regard.errors import DataError

STANDARD_INPUT = "-"
MAX_UNREADABLE_FRACTION = 0.05  # of the lines of a file that may be skipped; more are a problem of the whole file
MIN_UNREADABLE = 10  # this many lines may be skipped in any file
MIN_EARLY_LINES = 10_000  # a file is assumed to have at least this many lines, until its end is reached
UNLIMITED_REASONS = ("empty", "too long", "unknown label", "cannot be filled")  # of lines that could be read
MAX_LINE_BYTES = 16 * 2**20  # longer lines are not sentences and would fill the memory
SAMPLE_BYTES = 2**20  # of a file in which an encoding is looked for
UNKNOWN = "ENCODING"  # stands for the name of an encoding that is neither UTF-16 nor Windows-1252
WINDOWS = "WINDOWS-1252"
MIN_UNKNOWN_LINES = 3  # fewer lines that are not UTF-8 are damaged lines, not another encoding
MIN_ZEROS = 4  # fewer zero bytes are characters of a text
MIN_ZERO_FRACTION = 0.2  # of every second byte in UTF-16: spaces, line ends and ASCII letters have a zero byte
MAX_HIGH_FRACTION = 0.4  # of letters in Windows-1252 that are not ASCII; more are another alphabet
DECOMPRESS_COMMANDS = {".gz": "gunzip -c", ".xz": "xz -dc", ".zst": "zstd -dc"}
MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),  # begins with the mark of UTF-16
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)
WINDOWS_CHARACTERS = frozenset(
    "ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÑÒÓÔÕÖØÙÚÛÜßàáâãäåæçèéêëìíîïñòóôõöøùúûüŒœ"
    "\u2018\u2019\u201a\u201c\u201d\u201e\u2013\u2014…«»‹›€£§©®™°ªº·•¡¿´\u00a0"
)
T = TypeVar("T")
_END = object()


@dataclass
class InvalidLines:
    """Policy for lines that cannot be used: raise an error at the first, or skip and count them by reason.

    It also collects notes on how files were read.
    """

    skip: bool = False
    hint: str = ", or skip such lines with --skip-invalid"  # ends the error message
    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)  # the first message of each reason
    notes: list[str] = field(default_factory=list)  # how files were read, where the user should know it

    def add(self, reason: str, message: str) -> None:
        """Count an invalid line, or raise a `DataError` unless lines are skipped.

        Args:
            reason: short name that lines are counted by.
            message: location and problem without the final period, such as `a.tsv:2: empty source; fill it in`.
        """
        if not self.skip:
            raise DataError(f"{message}{self.hint}.")
        self.counts[reason] += 1
        self.examples.setdefault(reason, f"{message}.")

    @property
    def unreadable(self) -> int:
        """Number of skipped lines that do not have the format of their file; empty ones are not counted."""
        return sum(count for reason, count in self.counts.items() if reason not in UNLIMITED_REASONS)

    def note(self, message: str) -> None:
        """Add a note on how a file was read, such as a header that was found; without the final period."""
        if message not in self.notes:
            self.notes.append(message)


@dataclass(frozen=True)
class Line:
    """One line of a file, without its line end. `text` is None if the line was invalid and skipped."""

    text: str | None
    file: str
    number: int

    @property
    def location(self) -> str:
        """`file:line`, for error messages."""
        return f"{self.file}:{self.number}"


def read_lines(file: str, invalid: InvalidLines) -> Iterator[Line]:
    """Yield the lines of a file; compressed files are decompressed, `-` is standard input.

    A line that is not UTF-8 or too long is invalid. If invalid lines are skipped, it is yielded without text, so that
    parallel files stay aligned. A file in UTF-16, or one with many unreadable lines, is an error even then.
    """
    name = "standard input" if file == STANDARD_INPUT else file
    number, skipped = 0, invalid.unreadable
    with _open(file) as stream:
        for number, raw in enumerate(_raw_lines(stream, name), start=1):
            if number == 1 and raw is not None and (b"\0" in raw or raw[:1] in (b"\xff", b"\xfe")):
                encoding = wide_encoding(_sample(file, raw))
                if encoding is not None:
                    raise DataError(f"{name}: is {encoding}, not UTF-8; {conversion(file, encoding)}.")
            try:
                text = raw.decode("utf-8-sig" if number == 1 else "utf-8") if raw is not None else None
            except UnicodeDecodeError as error:
                text = None
                _add_undecodable(error, file, f"{name}:{number}", invalid)
                _check_fraction(file, invalid, invalid.unreadable - skipped, max(number, MIN_EARLY_LINES))
            if raw is None:
                problem = f"longer than {MAX_LINE_BYTES:,} bytes; split it into lines"
                invalid.add("too long to read", f"{name}:{number}: {problem}")
            yield Line(text, name, number)
    _check_fraction(file, invalid, invalid.unreadable - skipped, number)


@contextmanager
def check_compression_on_error(*files: str) -> Iterator[None]:
    """If the body raises a `DataError`, decompress these files to the end, and report a damaged one instead.

    A damaged compressed file decompresses to garbage lines before its checksum is reached.
    """
    try:
        yield
    except DataError:
        for file in files:
            if compression_suffix(file):
                with _open(file) as stream:
                    for _ in _raw_lines(stream, file):
                        pass
        raise


def _add_undecodable(error: UnicodeDecodeError, file: str, location: str, invalid: InvalidLines) -> None:
    """Report a line that is not UTF-8. If the whole file is in another encoding, skipping lines is not offered."""
    problem = f"not UTF-8 (byte {error.start + 1} of the line is 0x{error.object[error.start]:02x})"
    encoding = None if invalid.skip else _file_encoding(file, error.object)
    if encoding is not None:
        probably = "" if encoding == UNKNOWN else f", but probably {encoding}"
        raise DataError(f"{location}: {problem}{probably}; {conversion(file, encoding)}.")
    invalid.add("not UTF-8", f"{location}: {problem}; convert the file")


def _check_fraction(file: str, invalid: InvalidLines, skipped: int, lines: int) -> None:
    """Raise an error if too many lines of a file were skipped because they cannot be read."""
    if skipped <= MIN_UNREADABLE or skipped <= MAX_UNREADABLE_FRACTION * lines:
        return
    reason, message = next(
        (reason, text) for reason, text in invalid.examples.items() if reason not in UNLIMITED_REASONS
    )
    encoding = _file_encoding(file) if invalid.counts["not UTF-8"] else None
    name = "standard input" if file == STANDARD_INPUT else file
    advice = f"fix the file ({reason}: {message.removesuffix('.')})" if encoding is None else conversion(file, encoding)
    raise DataError(
        f"{name}: {skipped:,} lines cannot be read, more than {MAX_UNREADABLE_FRACTION:.0%}, "
        f"which is too many to skip; {advice}."
    )


def _file_encoding(file: str, line: bytes = b"") -> str | None:
    """Return the encoding of a file with lines that are not UTF-8, from its beginning and one such line."""
    return detect_encoding(b"\n".join([_sample(file, b""), line]))


def _sample(file: str, line: bytes) -> bytes:
    """Return the beginning of a file; of standard input or a pipe, which cannot be read again, only this line."""
    if file == STANDARD_INPUT or not os.path.isfile(file):
        return line
    lines, size = [], 0
    with _open(file) as stream:
        for raw in _raw_lines(stream, file):
            lines.append(raw or b"")
            size += len(lines[-1])
            if size >= SAMPLE_BYTES:
                break
    return b"\n".join(lines)


def _raw_lines(stream: BinaryIO, name: str) -> Iterator[bytes | None]:
    """Yield lines without their ends, and None for a line that is too long."""
    while raw := _read(stream, name):
        if len(raw) <= MAX_LINE_BYTES:
            yield raw.removesuffix(b"\n").removesuffix(b"\r")
            continue
        while raw and not raw.endswith(b"\n"):
            raw = _read(stream, name)
        yield None


def _read(stream: BinaryIO, name: str) -> bytes:
    try:
        return stream.readline(MAX_LINE_BYTES + 1)
    except READ_ERRORS as error:
        raise read_error(name, error) from None


def _open(file: str) -> AbstractContextManager[BinaryIO]:
    return _standard_input() if file == STANDARD_INPUT else open_binary(file)


def _standard_input() -> AbstractContextManager[BinaryIO]:
    """Open standard input again: Python cannot exit while a thread blocks in `sys.stdin.buffer` itself."""
    if sys.stdin is None:
        raise DataError("standard input: is closed; pipe something into it, or pass a file.")
    try:
        return open(sys.stdin.fileno(), "rb", closefd=False)
    except UnsupportedOperation:  # replaced by an object without a file descriptor, as in tests
        return nullcontext(sys.stdin.buffer)


def prefetch(items: Iterable[T], max_items: int) -> Iterator[list[T]]:
    """Yield lists of at most `max_items` items; an exception of the source is raised after the items before it.

    >>> all(len(batch) <= 2 for batch in prefetch(range(5), max_items=2))
    True
    """
    queue: Queue[object] = Queue(maxsize=max_items)
    threading.Thread(target=_fill, args=(items, queue), daemon=True).start()
    end: object = None
    while end is None:
        batch: list[T] = []
        while len(batch) < max_items:
            try:
                item = queue.get(block=not batch)
            except Empty:
                break
            if item is _END or isinstance(item, _Failure):
                end = item
                break
            batch.append(item)  # type: ignore[arg-type]
        if batch:
            yield batch
    if isinstance(end, _Failure):
        raise end.error


class _Failure:
    """An exception of the source, passed through the queue."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


def _fill(items: Iterable[T], queue: Queue[object]) -> None:
    try:
        for item in items:
            queue.put(item)
    except BaseException as error:
        queue.put(_Failure(error))
    else:
        queue.put(_END)


def wide_encoding(sample: bytes) -> str | None:
    """Return UTF-16 or UTF-32 if bytes are that; None otherwise.

    >>> wide_encoding("ciao".encode("utf-16")), wide_encoding("ciao".encode("utf-16-be")), wide_encoding(b"ciao")
    ('UTF-16', 'UTF-16BE', None)
    """
    marked = next((name for mark, name in MARKS if sample.startswith(mark)), None)
    if marked is not None or b"\0" not in sample:
        return marked
    zeros = [sample[start::2].count(0) / max(1, len(sample) // 2) for start in (0, 1)]
    if sample.count(0) < MIN_ZEROS or max(zeros) < MIN_ZERO_FRACTION or min(zeros) > max(zeros) / 4:
        return None
    return "UTF-16BE" if zeros[0] > zeros[1] else "UTF-16LE"


def detect_encoding(sample: bytes) -> str | None:
    """Return the encoding of bytes that are not UTF-8, `UNKNOWN` for another one; None if only a few lines are damaged.

    >>> detect_encoding("È così.\\nPerché no?".encode("cp1252")), detect_encoding(b"a\\xff\\nb")
    ('WINDOWS-1252', None)
    """
    wide = wide_encoding(sample)
    if wide is not None:
        return wide
    lines = [line for line in sample.split(b"\n") if not line.isascii()]
    broken = [line for line in lines if not _is_utf8(line)]
    if 2 * len(broken) <= len(lines):
        return None
    if _is_windows(b"".join(broken)):
        return WINDOWS
    return UNKNOWN if len(broken) >= MIN_UNKNOWN_LINES else None


def conversion(file: str, encoding: str) -> str:
    """Return what to do with a file in another encoding; `-` is standard input.

    >>> conversion("my text.tsv", "UTF-16")
    "convert it with `iconv -f UTF-16 -t UTF-8 'my text.tsv' > 'my text.utf8.tsv'`"
    """
    command = f"iconv -f {encoding} -t UTF-8"
    where = ", where ENCODING is its encoding" if encoding == UNKNOWN else ""
    if file == "-":
        return f"pipe it through `{command}`{where}"
    path = Path(without_compression(file))
    output = shlex.quote(str(path.with_name(f"{path.stem}.utf8{path.suffix}")))
    decompress = DECOMPRESS_COMMANDS.get(compression_suffix(file))
    source = f"{decompress} {shlex.quote(file)} | {command}" if decompress else f"{command} {shlex.quote(file)}"
    return f"convert it with `{source} > {output}`{where}"


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _is_windows(text: bytes) -> bool:
    try:
        decoded = text.decode("cp1252")
    except UnicodeDecodeError:  # five bytes are not assigned
        return False
    high = [character for character in decoded if character > "\x7f"]
    letters = sum(character.isalpha() for character in decoded)
    high_letters = sum(character.isalpha() for character in high)
    return WINDOWS_CHARACTERS.issuperset(high) and high_letters <= MAX_HIGH_FRACTION * letters
