"""Readers: every format, the registry, and the exact message for every invalid line."""

import gzip
import io
import json
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data import lines
from regard.data.lines import InvalidLines, read_lines
from regard.data.readers import (
    READERS,
    ExampleType,
    Reader,
    format_name,
    read_documents,
    read_pair_files,
    read_texts,
    reader_for,
)
from regard.data.readers.aligned import read_aligned
from regard.data.readers.base import Pair
from regard.errors import DataError

Write = Callable[[str, str | bytes], str]
SKIP = ", or skip such lines with --skip-invalid."
PAIRS = [Pair("I love you", "Ti amo"), Pair("Good day", "Buongiorno")]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes a file, compressed if its name ends in .gz, and returns its path."""

    def write(name: str, content: str | bytes) -> str:
        raw = content.encode() if isinstance(content, str) else content
        (tmp_path / name).write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
        return str(tmp_path / name)

    return write


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_aligned_files(write: Write, suffix: str) -> None:
    source, target = write(f"a.en{suffix}", "I love you\nGood day\n"), write(f"a.it{suffix}", "Ti amo\nBuongiorno")
    assert list(read_aligned([source], [target], InvalidLines())) == PAIRS
    assert list(read_aligned([source, source], [target, target], InvalidLines())) == PAIRS * 2


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_pairs_from_tsv_and_json_lines(write: Write, suffix: str) -> None:
    tsv = write(f"a.tsv{suffix}", "I love you\tTi amo\tmore\r\nGood day\tBuongiorno\r\n")
    rows = [{"source": pair.source, "target": pair.target, "id": 7} for pair in PAIRS]
    jsonl = write(f"a.jsonl{suffix}", "\n".join(json.dumps(row) for row in rows))
    assert list(read_pair_files([tsv, jsonl], InvalidLines())) == PAIRS * 2


def test_documents(write: Write) -> None:
    book = write("book.txt", "One.\n\n  Two.\nlast")
    articles = write("articles.jsonl", '{"text": "A\\nB"}\n{"text": ""}\n')
    read = ["".join(document) for document in read_documents([book, articles], InvalidLines())]
    assert read == ["One.\n\n  Two.\nlast\n", "A\nB", ""]


def test_texts(write: Write) -> None:
    plain, table = write("a.txt", "one\n\n two \n"), write("a.jsonl", '{"text": "a\\nb"}\n{"text": ""}\n')
    assert list(read_texts([plain, table], InvalidLines())) == ["one", "", " two ", "a\nb", ""]
    assert next(read_texts(["builtin:python-docs-dev"], InvalidLines())) == "".join(
        next(read_documents(["builtin:python-docs-dev"], InvalidLines()))
    )


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"I love you\tTi amo\nGood day\tBuongiorno\n")))
    assert list(read_pair_files(["-"], InvalidLines())) == PAIRS


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\t\r")), min_size=1))
def test_lines_end_only_at_newlines(texts: list[str]) -> None:
    raw = io.BytesIO("\n".join(["first", *texts, "last"]).encode())
    assert [line.decode() if line else "" for line in lines._raw_lines(raw, "file")] == ["first", *texts, "last"]


def test_byte_order_mark_is_dropped(write: Write) -> None:
    tsv = write("a.tsv", b"\xef\xbb\xbfI love you\tTi amo\n")
    assert list(read_pair_files([tsv], InvalidLines())) == PAIRS[:1]


INVALID = [
    ("a.tsv", b"a\tb\nno tab\nc\td\n", "too few columns", "{}:2: no tab; write source, tab, target"),
    ("a.tsv", b"a\tb\n\t\nc\td\n", "empty", "{}:2: empty source; fill it in"),
    ("a.tsv", b"a\tb\nx\t \nc\td\n", "empty", "{}:2: empty target; fill it in"),
    (
        "a.tsv",
        b"a\tb\ncaf\xff\tx\nc\td\n",
        "not UTF-8",
        "{}:2: not UTF-8 (byte 4 of the line is 0xff); convert the file",
    ),
    (
        "a.tsv",
        b"a\tb\n" + b"x" * 50 + b"\nc\td\n",
        "too long to read",
        "{}:2: longer than 40 bytes; split it into lines",
    ),
    (
        "a.jsonl",
        b'{"source": "a", "target": "b"}\n{"source": "a"}\n{"source": "c", "target": "d"}',
        "missing field",
        '{}:2: no text under \'target\'; write {{"source": "…", "target": "…"}}',
    ),
    (
        "a.jsonl",
        b'{"source": "a", "target": "b"}\n[]\n{"source": "c", "target": "d"}',
        "missing field",
        '{}:2: no text under \'source\'; write {{"source": "…", "target": "…"}}',
    ),
    (
        "a.jsonl",
        b'{"source": "a", "target": "b"}\nx\n{"source": "c", "target": "d"}',
        "not JSON",
        "{}:2: not valid JSON (Expecting value: line 1 column 1 (char 0)); fix it",
    ),
]


@pytest.mark.parametrize(("name", "content", "reason", "message"), INVALID)
def test_invalid_lines_are_errors_or_skipped_and_counted(
    write: Write, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes, reason: str, message: str
) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 40)
    file = write(name, content)
    with pytest.raises(DataError) as error:
        list(read_pair_files([file], InvalidLines()))
    assert str(error.value) == message.format(file) + SKIP
    assert error.value.exit_code == 3
    invalid = InvalidLines(skip=True)
    assert list(read_pair_files([file], invalid)) == [Pair("a", "b"), Pair("c", "d")]
    assert dict(invalid.counts) == {reason: 1}
    assert invalid.examples == {reason: f"{message.format(file)}."}


def test_skipped_lines_keep_files_aligned(write: Write) -> None:
    source, target = write("a.en", b"a\n\xff\nc\n\ne\n"), write("a.it", b"A\nB\nC\nD\nE\n")
    invalid = InvalidLines(skip=True)
    assert list(read_aligned([source], [target], invalid)) == [Pair("a", "A"), Pair("c", "C"), Pair("e", "E")]
    assert dict(invalid.counts) == {"not UTF-8": 1, "empty": 1}


def error_message(sources: list[str], targets: list[str]) -> str:
    with pytest.raises(DataError) as error:
        list(read_aligned(sources, targets, InvalidLines(skip=True)))
    return str(error.value)


def test_unequal_files_are_an_error_even_if_lines_are_skipped(write: Write) -> None:
    short, long = write("short", "a\nb\n"), write("long", "A\nB\nC\nD\n")
    because = "ends before it; aligned files must have the same number of lines."
    assert error_message([short], [long]) == f"{long}:3: no matching line, because {short} {because}"
    assert error_message([long], [short]) == f"{long}:3: no matching line, because {short} {because}"
    assert error_message([short, short], [long]) == (
        "there are 2 source files and 1 target files; pass one target for each source."
    )


def test_unreadable_files_are_errors(write: Write, tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    assert error_message([missing], [missing]) == f"{missing}: not found; check the path."
    assert error_message([str(tmp_path)], [missing]) == f"{tmp_path}: is a folder; pass the files in it."
    compressed = write("a.gz", "text\n" * 1000)
    cut = tmp_path / "cut.gz"
    cut.write_bytes(Path(compressed).read_bytes()[:-12])
    assert error_message([str(cut)], [str(cut)]).startswith(f"{cut}: is a damaged gzip file (")
    plain = tmp_path / "plain.gz"
    plain.write_text("not compressed\n")
    assert error_message([str(plain)], [str(plain)]).startswith(f"{plain}: is a damaged gzip file (")


@pytest.mark.parametrize("name", ["a.tsv.gz", "a.jsonl.gz", "a.txt.gz"])
def test_damaged_gzip_files_are_reported_instead_of_their_lines(write: Write, name: str) -> None:
    compressed = bytearray(gzip.compress(b"".join(b"line %d\tof %d\n" % (n, n * n) for n in range(2000)), 0))
    compressed[5000] = 0xFF  # stored without compression, so that the byte appears in the text, which is then not UTF-8
    path = write("raw", bytes(compressed))
    file = str(Path(path).rename(Path(path).with_name(name)))

    def read() -> None:
        if name.startswith("a.txt"):
            list(chain.from_iterable(read_documents([file], InvalidLines())))
        else:
            list(read_pair_files([file], InvalidLines()))

    with pytest.raises(DataError) as error:
        read()
    assert str(error.value).startswith(f"{file}: is a damaged gzip file (CRC check failed ")
    assert str(error.value).endswith("); copy it again, or compress it again.")
    assert error_message([file], [file]).startswith(f"{file}: is a damaged gzip file (CRC check failed ")


def test_lone_surrogates_in_json_are_invalid(write: Write) -> None:
    file = write("pairs.jsonl", '{"source": "a", "target": "b"}\n{"source": "\\ud800", "target": "b"}\n')
    with pytest.raises(DataError) as error:
        list(read_pair_files([file], InvalidLines()))
    assert str(error.value) == f"{file}:2: half of a character (a lone surrogate); fix it{SKIP}"
    invalid = InvalidLines(skip=True)
    assert list(read_pair_files([file], invalid)) == [Pair("a", "b")]
    assert invalid.counts == {"broken Unicode": 1}


@pytest.fixture
def subtitle_reader() -> Iterator[type[Reader]]:
    """A reader of subtitles, registered for one test."""

    @READERS.register("subtitles")
    class SubtitleReader(Reader):
        suffixes = (".srt",)

        def documents(self, file: str, invalid: InvalidLines) -> Iterator[Iterator[str]]:
            texts = (line.text for line in read_lines(file, invalid) if line.text)
            yield (f"{text}\n" for text in texts if not text.isdigit() and "-->" not in text)

    yield SubtitleReader
    del READERS._objects["subtitles"]


@pytest.mark.usefixtures("subtitle_reader")
def test_registered_readers_add_a_format(write: Write) -> None:
    file = write("film.SRT.gz", "1\n00:00:01 --> 00:00:02\nI love you\n\n2\n00:00:03 --> 00:00:04\nGood day\n")
    assert ["".join(document) for document in read_documents([file], InvalidLines())] == ["I love you\nGood day\n"]
    assert list(read_texts([file], InvalidLines())) == ["I love you\nGood day\n"]
    assert format_name(file) == "subtitles"


@pytest.mark.usefixtures("subtitle_reader")
def test_default_format_is_used_for_other_example_types(write: Write) -> None:
    file = write("film.srt", "I love you\tTi amo\n")
    assert list(read_pair_files([file], InvalidLines())) == PAIRS[:1]


@pytest.mark.parametrize(
    ("file", "examples", "name"),
    [
        ("a.tsv", "pairs", "TsvReader"),
        ("a.jsonl.gz", "labeled", "JsonLinesReader"),
        ("a.unknown", "documents", "TextReader"),
        ("a.tsv", "documents", "TsvReader"),
        ("a.csv.gz", "pairs", "CsvReader"),
        ("a.md", "documents", "TextReader"),
        ("a.jsonl", "tagged", "ConllReader"),
        ("a.conllu", "tagged", "ConlluReader"),
        ("builtin:phrasebook", "tagged", "BuiltinReader"),
    ],
)
def test_reader_follows_from_name_and_example_type(file: str, examples: ExampleType, name: str) -> None:
    assert type(reader_for(file, examples)).__name__ == name
