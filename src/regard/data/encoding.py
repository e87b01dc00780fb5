"""Detection of text that is not UTF-8, and the command that converts it.

UTF-16 and UTF-32 are recognized by their byte order mark or by their zero bytes, Windows-1252 by its letters and
punctuation among ASCII letters. A few damaged lines in a UTF-8 file are not another encoding.
"""

import codecs
import shlex
from pathlib import Path

from regard.data.remote import compression_suffix, without_compression

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
