"""Labeled texts from every format, and their error messages."""

import gzip
import json
from pathlib import Path

import pytest

from regard.data.lines import InvalidLines
from regard.data.readers import read_labeled
from regard.data.readers.base import LabeledExample
from regard.errors import DataError


def read(path: Path, content: str, *, skip: bool = False) -> list[LabeledExample]:
    path.write_text(content, "utf-8")
    return list(read_labeled([str(path)], InvalidLines(skip)))


def test_header_names_columns_in_any_order(tmp_path: Path) -> None:
    for header in ("label\tsentence", "Label\tcontent", "class\ttext"):
        assert read(tmp_path / "a.tsv", f"{header}\n0\ta b\n") == [LabeledExample("0", "a b")]
    rows = "id\tsentence1\tsentence2\tlabel\n7\tone\ttwo\tsame\n"
    assert read(tmp_path / "a.tsv", rows) == [LabeledExample("same", "one", "two")]


def test_without_header_columns_are_label_text_and_second_text(tmp_path: Path) -> None:
    examples = read(tmp_path / "a.tsv", "good\ta b\nbad\tc\td\n")
    assert examples == [LabeledExample("good", "a b"), LabeledExample("bad", "c", "d")]
    assert [example.location for example in examples] == [f"{tmp_path / 'a.tsv'}:{n}" for n in (1, 2)]


def test_json_lines_and_gzip(tmp_path: Path) -> None:
    lines = [{"label": 1, "text": "a"}, {"label": "no", "sentence1": "b", "sentence2": "c"}]
    content = "".join(json.dumps(line) + "\n" for line in lines)
    expected = [LabeledExample("1", "a"), LabeledExample("no", "b", "c")]
    assert read(tmp_path / "a.jsonl", content) == expected
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(content.encode()))
    assert list(read_labeled([str(tmp_path / "b.jsonl.gz")], InvalidLines())) == expected


def test_phrasebook_topics() -> None:
    examples = list(read_labeled(["builtin:phrasebook-topics-dev"], InvalidLines()))
    assert len({example.label for example in examples}) == 15
    assert len(examples) > 1000


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", "good\n", "a.tsv:1: 1 column; write label, tab, text, or skip such lines with --skip-invalid."),
        (
            "a.tsv",
            "label\tid\ttext\ngood\t1\n",
            "a.tsv:2: 2 columns; write 3 columns, as in its header, or skip such lines with --skip-invalid.",
        ),
        (
            "a.tsv",
            "label\tscore\n",
            "a.tsv:1: names the columns label, score, but none for the text; call it text, sentence, content, text1, "
            "sentence1, first or premise, or pass --text-column.",
        ),
        (
            "a.tsv",
            "sentence\tscore\n",
            "a.tsv:1: names the columns sentence, score, but none for the label; call it label, class or category, "
            "or pass --label-column.",
        ),
        ("a.tsv", "\ta\n", "a.tsv:1: empty label; fill it in, or skip such lines with --skip-invalid."),
        ("a.tsv", "x\t \n", "a.tsv:1: empty text; fill it in, or skip such lines with --skip-invalid."),
        ("a.tsv", "x\ta\t\n", "a.tsv:1: empty second text; fill it in, or skip such lines with --skip-invalid."),
        (
            "a.jsonl",
            '{"text": "a"}\n',
            'a.jsonl:1: nothing under \'label\'; write {"label": "…", "text": "…"}, or skip such lines with '
            "--skip-invalid.",
        ),
        (
            "a.jsonl",
            "no\n",
            "a.jsonl:1: not valid JSON (Expecting value: line 1 column 1 (char 0)); fix it, or skip such lines with "
            "--skip-invalid.",
        ),
        (
            "a.jsonl",
            '{"label": "x", "text": "\\ud800"}\n',
            "a.jsonl:1: half of a character (a lone surrogate); fix it, or skip such lines with --skip-invalid.",
        ),
    ],
)
def test_invalid_lines_are_errors(
    name: str, content: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError) as error:
        read(Path(name), content)
    assert str(error.value) == message


def test_skipped_lines_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("good\ta\nbad\n\tb\ngood\tc\n", "utf-8")
    invalid = InvalidLines(skip=True)
    assert [example.text for example in read_labeled([str(path)], invalid)] == ["a", "c"]
    assert dict(invalid.counts) == {"too few columns": 1, "empty": 1}


def test_builtin_corpus_without_labels_is_an_error() -> None:
    with pytest.raises(DataError) as error:
        list(read_labeled(["builtin:python-docs"], InvalidLines()))
    assert str(error.value) == (
        "builtin:python-docs: holds documents, not labeled texts; use builtin:phrasebook-topics, "
        "builtin:phrasebook-topics-dev and builtin:phrasebook-topics-test."
    )
