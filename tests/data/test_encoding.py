"""Files that are not UTF-8: the message names the encoding and the command, and skipping lines has a limit."""

import gzip
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from regard.data.lines import InvalidLines, read_lines
from regard.data.readers import read_pair_files
from regard.errors import DataError

TEXT = "Perché no?\tWhy not?\nÈ così.\tIt is so.\nVa bene\tAll right\n"


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def error_of(name: str, content: bytes, *, skip: bool = False) -> str:
    Path(name).write_bytes(content)
    with pytest.raises(DataError) as error:
        list(read_lines(name, InvalidLines(skip)))
    return str(error.value)


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize(
    ("codec", "name"),
    [("utf-16", "UTF-16"), ("utf-16-le", "UTF-16LE"), ("utf-16-be", "UTF-16BE"), ("utf-32", "UTF-32")],
)
def test_utf16_is_an_error_even_if_lines_are_skipped(codec: str, name: str, skip: bool) -> None:
    assert error_of("a.tsv", TEXT.encode(codec), skip=skip) == (
        f"a.tsv: is {name}, not UTF-8; convert it with `iconv -f {name} -t UTF-8 a.tsv > a.utf8.tsv`."
    )


def test_zero_characters_are_not_utf16() -> None:
    Path("a.txt").write_bytes(b"a\0b\n" + b"plain text\n" * 3)
    assert [line.text for line in read_lines("a.txt", InvalidLines())] == ["a\0b", *["plain text"] * 3]


def test_windows_1252_is_named_with_the_command_that_converts_it() -> None:
    assert error_of("my text.tsv", TEXT.encode("cp1252")) == (
        "my text.tsv:1: not UTF-8 (byte 6 of the line is 0xe9), but probably WINDOWS-1252; "
        "convert it with `iconv -f WINDOWS-1252 -t UTF-8 'my text.tsv' > 'my text.utf8.tsv'`."
    )
    assert error_of("a.tsv.gz", gzip.compress(b"x\ty\n" + TEXT.encode("cp1252"))).endswith(
        "; convert it with `gunzip -c a.tsv.gz | iconv -f WINDOWS-1252 -t UTF-8 > a.utf8.tsv`."
    )
    quotes = "\u201cYes\u201d \u2013 it\u2019s 5 \u20ac\n".encode("cp1252")
    assert "probably WINDOWS-1252" in error_of("a.txt", quotes)


@pytest.mark.parametrize(("text", "codec"), [("Привет, как дела?\n", "cp1251"), ("こんにちは\n", "shift_jis")])
def test_other_encodings_are_not_guessed_and_skipping_is_not_offered(text: str, codec: str) -> None:
    message = error_of("a.txt", text.encode(codec) * 5)
    assert "probably" not in message
    assert message.endswith(
        "convert it with `iconv -f ENCODING -t UTF-8 a.txt > a.utf8.txt`, where ENCODING is its encoding."
    )


def test_a_damaged_line_of_a_utf8_file_can_be_skipped() -> None:
    damaged = TEXT.encode() + "però\n".encode("cp1252") + TEXT.encode()
    assert error_of("a.tsv", damaged).endswith("; convert the file, or skip such lines with --skip-invalid.")
    invalid = InvalidLines(skip=True)
    assert sum(line.text is None for line in read_lines("a.tsv", invalid)) == 1
    assert dict(invalid.counts) == {"not UTF-8": 1}


def test_standard_input_in_another_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(TEXT.encode("cp1252"))))
    with pytest.raises(DataError) as error:
        list(read_lines("-", InvalidLines()))
    assert str(error.value) == (
        "standard input:1: not UTF-8 (byte 6 of the line is 0xe9), but probably WINDOWS-1252; "
        "pipe it through `iconv -f WINDOWS-1252 -t UTF-8`."
    )


def test_many_unreadable_lines_are_too_many_to_skip() -> None:
    bad, good = "perché\n".encode("cp1252"), b"why\n"
    invalid = InvalidLines(skip=True)
    Path("a.txt").write_bytes((bad + 19 * good) * 50)
    assert sum(line.text is None for line in read_lines("a.txt", invalid)) == 50
    assert error_of("a.txt", (bad + 9 * good) * 50, skip=True) == (
        "a.txt: 50 lines cannot be read, more than 5%, which is too many to skip; "
        "convert it with `iconv -f WINDOWS-1252 -t UTF-8 a.txt > a.utf8.txt`."
    )
    Path("a.tsv").write_text("a\tb\n" * 80 + "no tab\n" * 20)
    with pytest.raises(DataError) as error:
        list(read_pair_files(["a.tsv"], InvalidLines(skip=True)))
    assert str(error.value) == (
        "a.tsv: 20 lines cannot be read, more than 5%, which is too many to skip; "
        "fix the file (too few columns: a.tsv:81: no tab; write source, tab, target)."
    )


def test_a_large_file_in_another_encoding_stops_before_its_end() -> None:
    Path("a.txt").write_bytes("perché\n".encode("cp1252") * 20_000)
    with pytest.raises(DataError, match="501 lines cannot be read"):
        list(read_lines("a.txt", InvalidLines(skip=True)))


def test_empty_sides_can_be_skipped_without_limit() -> None:
    Path("a.tsv").write_text("a\tb\n" * 80 + "a\t\n" * 20)
    invalid = InvalidLines(skip=True)
    assert len(list(read_pair_files(["a.tsv"], invalid))) == 80
    assert dict(invalid.counts) == {"empty": 20}
