"""Tables as people have them: headers, chosen columns, CSV quoting, ids, spreadsheets' quotes, and nested JSON."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from regard.config import Config, ConfigSource, validate_sources
from regard.data.data_key import data_key
from regard.data.lines import InvalidLines
from regard.data.readers import read_documents, read_labeled, read_pair_files, read_tagged, read_texts
from regard.data.readers.base import LabeledExample, Pair
from regard.data.readers.columns import is_header, normalize_name
from regard.errors import ConfigError, DataError

ROWS = [Pair("Hello", "Ciao"), Pair("Yes", "Sì")]
NO_COLUMNS: Mapping[str, str] = {}


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def pairs(
    name: str, content: str, columns: Mapping[str, str] = NO_COLUMNS, *, skip: bool = False
) -> tuple[list[Pair], InvalidLines]:
    Path(name).write_text(content, "utf-8")
    invalid = InvalidLines(skip)
    return list(read_pair_files([name], invalid, columns)), invalid


def labeled(
    name: str, content: str, columns: Mapping[str, str] = NO_COLUMNS
) -> tuple[list[LabeledExample], InvalidLines]:
    Path(name).write_text(content, "utf-8")
    invalid = InvalidLines()
    return list(read_labeled([name], invalid, columns)), invalid


@pytest.mark.parametrize(
    ("content", "note"),
    [
        ("source\ttarget\nHello\tCiao\nYes\tSì\n", "source = column 1 (source), target = column 2 (target)"),
        ("target\tsource\nCiao\tHello\nSì\tYes\n", "source = column 2 (source), target = column 1 (target)"),
        ("EN\tIT\nHello\tCiao\nYes\tSì\n", "source = column 1 (EN), target = column 2 (IT)"),
        ("Source Text\tTarget Text\nHello\tCiao\nYes\tSì\n", "source = column 1 (Source Text), target = column 2"),
        (
            "id\tsrc\tquality\ttgt\n7\tHello\tx\tCiao\n8\tYes\tx\tSì\n",
            "source = column 2 (src), target = column 4 (tgt), not used: column 1 (id), column 3 (quality)",
        ),
    ],
)
def test_headers_of_pairs_are_recognized_and_noted(content: str, note: str) -> None:
    found, invalid = pairs("a.tsv", content)
    assert found == ROWS
    (message,) = invalid.notes
    assert message.startswith(f"a.tsv: line 1 is a header; {note}")


@pytest.mark.parametrize(
    "first", ["Hello\tCiao", "it\tesso", "Source\tFonte", "text\ttesto", "label\tetichetta", "no\tno"]
)
def test_ordinary_first_lines_are_no_header(first: str) -> None:
    found, invalid = pairs("a.tsv", f"{first}\nYes\tSì\n")
    assert len(found) == 2
    assert invalid.notes == []


def test_ordinary_labeled_texts_are_no_header() -> None:
    examples, invalid = labeled("a.tsv", "class\tWe had a nice class today.\nfood\tI like it.\n")
    assert [example.label for example in examples] == ["class", "food"]
    assert invalid.notes == []


def test_columns_are_chosen_by_name_or_number() -> None:
    content = "date\tenglisch\titalienisch\n1.1.\tHello\tCiao\n2.1.\tYes\tSì\n"
    assert pairs("a.tsv", content, {"source": "Englisch", "target": "3"})[0] == ROWS
    assert pairs("a.tsv", "Ciao\tx\tHello\nSì\ty\tYes\n", {"source": "3", "target": "1"})[0] == ROWS
    assert pairs("a.tsv", "source\ttarget\nCiao\tHello\nSì\tYes\n", {"source": "2", "target": "1"})[0] == ROWS
    assert pairs("a.tsv", "Ciao\tHello\nSì\tYes\n", {"source": "2"})[0] == ROWS


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"source": "english"},
            "a.tsv:1: has no column 'english' for the source; it has a, b, c (pass one of these names to "
            "--source-column, or a number from 1 to 3).",
        ),
        (
            {"target": "0"},
            "a.tsv:1: has no column '0' for the target; it has a, b, c (pass one of these names to "
            "--target-column, or a number from 1 to 3).",
        ),
        ({"source": "2"}, "a.tsv:1: 3 columns, and it is not known which has the target; pass --target-column."),
    ],
)
def test_columns_that_are_not_there_are_errors(columns: Mapping[str, str], message: str) -> None:
    with pytest.raises(DataError) as error:
        pairs("a.tsv", "a\tb\tc\n", columns)
    assert str(error.value) == message


def test_headers_without_a_role_are_errors() -> None:
    with pytest.raises(DataError, match=r"names the columns id, source, but none for the target; call it target"):
        pairs("a.tsv", "id\tsource\n1\tHello\n")


def test_extra_columns_are_noted() -> None:
    found, invalid = pairs("a.tsv", "Hello\tCiao\tCC-BY\nYes\tSì\tCC-BY\n")
    assert found == ROWS
    assert invalid.notes == [
        "a.tsv: 3 columns; source = column 1, target = column 2, not used: column 3; "
        "--source-column and --target-column can choose others"
    ]


def test_columns_of_ids_are_no_sentences() -> None:
    found, invalid = pairs("a.tsv", "12\tHello\t77\tCiao\n12\tYes\t78\tSì\n15\tNo\t90\tNo\n")
    assert found == [*ROWS, Pair("No", "No")]
    assert "not used: column 1 (ids), column 3 (ids)" in invalid.notes[0]


@pytest.mark.parametrize("text_first", [False, True])
def test_ids_are_never_labels(text_first: bool) -> None:
    rows = [(f"text {n}", "good" if n % 2 else "bad") for n in range(12)]
    lines = [
        f"{100 - n}\t{text}\t{label}" if text_first else f"{100 - n}\t{label}\t{text}"
        for n, (text, label) in enumerate(rows)
    ]
    examples, invalid = labeled("a.tsv", "\n".join(lines))
    assert [(example.text, example.label) for example in examples] == rows
    assert all(example.second is None for example in examples)
    assert "not used: column 1 (ids)" in invalid.notes[0]


def test_a_column_named_id_above_integers_is_a_header() -> None:
    rows = "".join(f"{n}\tHello {n}\tn{n}\tCiao {n}\n" for n in (5, 9, 2))
    found, invalid = pairs("a.tsv", f"id\ten\tremarks\tit\n{rows}")
    assert found[0] == Pair("Hello 5", "Ciao 5")
    assert len(found) == 3
    assert "line 1 is a header; source = column 2 (en), target = column 4 (it)" in invalid.notes[0]
    found, _ = pairs("a.tsv", f"id\ten\tremarks\tit\n{rows}", {"source": "2", "target": "4"})
    assert len(found) == 3
    with pytest.raises(DataError, match=r"a\.tsv:1: names the columns id, remarks, but none for the label"):
        labeled("a.tsv", "id\tremarks\n1\tone\n2\ttwo\n3\tthree\n")
    found, _ = pairs("a.tsv", "id\ten\nhalo\thello\nya\tyes\ntidak\tno\n")  # Indonesian
    assert found[0] == Pair("halo", "hello")
    found, _ = pairs("a.tsv", "key\tchiave\n1\tuno\ntwo\tdue\nthree\ttre\n")
    assert len(found) == 4


def test_ids_without_labels_are_an_error() -> None:
    with pytest.raises(DataError) as error:
        labeled("a.tsv", "1\tone\n2\ttwo\n3\tthree\n")
    assert str(error.value) == (
        "a.tsv:1: column 1 has ids (distinct integers), and it is not known which has the label; pass --label-column."
    )


def test_integers_that_repeat_are_labels() -> None:
    examples, _ = labeled("a.tsv", "".join(f"{n % 5}\ttext {n}\n" for n in range(12)))
    assert [example.label for example in examples] == [str(n % 5) for n in range(12)]
    assert [example.label for example in labeled("a.tsv", "0\ta\n1\tb\n")[0]] == ["0", "1"]


@pytest.mark.parametrize("name", ["a.tsv", "a.csv"])
def test_texts_before_their_labels_are_no_labels(name: str) -> None:
    comma = "\t" if name == "a.tsv" else ","
    rows = [(f"text {n}", f"premise {n % 9}", "good" if n % 3 else "bad") for n in range(12)]
    found, invalid = labeled(name, "".join(f"{text}{comma}{label}\n" for text, _, label in rows))
    assert [(example.text, example.label) for example in found] == [(text, label) for text, _, label in rows]
    assert invalid.notes == [
        f"{name}: 2 columns; label = column 2, text = column 1; --label-column and --text-column can choose others"
    ]
    found, invalid = labeled(name, "".join(f"{comma.join(row)}\n" for row in rows))
    assert [(example.text, example.second, example.label) for example in found] == rows
    assert "label = column 3, text = column 1, second = column 2" in invalid.notes[0]


@pytest.mark.parametrize(
    "rows",
    [
        [(f"label {n}", f"text {n}") for n in range(30)],  # texts do not repeat
        [(f"{n % 15}", "text" if n % 2 else "other") for n in range(30)],  # labels of which each occurs twice
        [(f"label {n}", "text") for n in range(9)],  # too few rows
    ],
)
def test_the_first_column_has_the_labels_where_it_is_not_clear(rows: list[tuple[str, str]]) -> None:
    found, invalid = labeled("a.tsv", "".join(f"{label}\t{text}\n" for label, text in rows))
    assert [(example.label, example.text) for example in found] == rows
    assert invalid.notes == []


def test_csv_with_quotes_delimiters_and_line_ends_in_cells() -> None:
    content = 'source,target\n"Hello, ""you""","Ciao, ""tu"""\n\n"Two\nlines","Due\nrighe"\nYes,Sì\n'
    found, _ = pairs("a.csv", content)
    assert found == [Pair('Hello, "you"', 'Ciao, "tu"'), Pair("Two\nlines", "Due\nrighe"), Pair("Yes", "Sì")]
    assert pairs("a.csv", "Hello, you;Ciao a te\nYes;Sì\n")[0] == [Pair("Hello, you", "Ciao a te"), ROWS[1]]
    examples, _ = labeled("b.csv", ',text,label\n0,"good, very",1\n1,bad,0\n')
    assert examples == [LabeledExample("1", "good, very"), LabeledExample("0", "bad")]
    assert [example.location for example in examples] == ["b.csv:2", "b.csv:3"]


def test_broken_csv_is_an_error_with_its_line() -> None:
    content = 'source,target\n"Two\nlines",Due\nYes,"Sì" no\nHello,Ciao\n'
    with pytest.raises(DataError, match=r"a\.csv:4: cannot be read as CSV .*; check its quotes, or skip"):
        pairs("a.csv", content)
    found, invalid = pairs("a.csv", content, skip=True)
    assert found == [Pair("Two\nlines", "Due"), ROWS[0]]
    assert dict(invalid.counts) == {"broken quoting": 1}
    with pytest.raises(DataError, match=r"a\.csv:2: 1 column; write 2 columns, as in its header"):
        pairs("a.csv", "source,target\nHello\n")


def test_quotes_of_spreadsheets_are_undone_in_tsv() -> None:
    found, _ = pairs("a.tsv", '"a ""b"" c"\t"""Sì"""\n"Yes," she said, "I do."\t""\n'.replace('\t""\n', '\t"Sì"\n'))
    assert found == [Pair('a "b" c', '"Sì"'), Pair('"Yes," she said, "I do."', '"Sì"')]


def test_documents_from_the_text_column_of_a_table() -> None:
    Path("a.csv").write_text('id,text\n1,"one, two"\n2,three\n', "utf-8")
    assert ["".join(document) for document in read_documents(["a.csv"], InvalidLines())] == ["one, two", "three"]
    assert list(read_texts(["a.csv"], InvalidLines(), {"text": "id"})) == ["1", "2"]
    Path("b.tsv").write_text("text\tof a book\nnext\tline\n", "utf-8")
    invalid = InvalidLines()
    assert ["".join(document) for document in read_documents(["b.tsv"], invalid)] == ["text\tof a book\nnext\tline\n"]
    assert list(read_texts(["b.tsv"], InvalidLines())) == ["text\tof a book", "next\tline"]
    assert invalid.notes == ["b.tsv: is read as plain text; --text-column reads one column of it"]


def test_columns_of_labeled_texts() -> None:
    content = 'Review,Stars\n"good, very",5\nbad,1\n'
    expected = [LabeledExample("5", "good, very"), LabeledExample("1", "bad")]
    assert labeled("a.csv", content, {"text": "review", "label": "stars"})[0] == expected
    jsonl = '{"Review": "good, very", "Stars": 5}\n{"Review": "bad", "Stars": 1}\n'
    assert labeled("a.jsonl", jsonl, {"text": "Review", "label": "Stars"})[0] == expected


def test_columns_that_do_not_apply_are_errors() -> None:
    with pytest.raises(ConfigError, match=r"--label-column: does not apply to sentence pairs; remove it\."):
        pairs("a.tsv", "a\tb\n", {"label": "1"})
    with pytest.raises(ConfigError, match=r"--text-column: does not apply to tagged words; remove it\."):
        list(read_tagged(["a.conll"], InvalidLines(), columns={"text": "1"}))
    with pytest.raises(ConfigError, match=r"a\.txt: has no columns to choose from; remove --text-column\."):
        list(read_documents(["a.txt"], InvalidLines(), {"text": "1"}))


def test_json_lines_with_translations_and_named_keys() -> None:
    nested = (
        '{"id": 1, "translation": {"en": "Hello", "it": "Ciao"}}\n{"id": 2, "translation": {"it": "Sì", "en": "Yes"}}\n'
    )
    found, invalid = pairs("a.jsonl", nested)
    assert found == ROWS
    assert invalid.notes == [
        "a.jsonl: source = 'en', target = 'it', as in the first line; "
        "--source-column and --target-column can choose others"
    ]
    swapped, invalid = pairs("a.jsonl", nested, {"source": "it", "target": "en"})
    assert swapped == [Pair("Ciao", "Hello"), Pair("Sì", "Yes")]
    assert invalid.notes == []
    flat = '{"en": "Hello", "it": "Ciao"}\n{"en": "Yes", "it": "Sì"}\n'
    assert pairs("a.jsonl", flat, {"source": "en", "target": "it"})[0] == ROWS
    assert pairs("a.jsonl", '{"src": "Hello", "translation": "Ciao"}\n')[0] == ROWS[:1]
    with pytest.raises(DataError) as error:
        pairs("a.jsonl", flat, {"source": "en", "target": "fr"})
    assert str(error.value).startswith(
        'a.jsonl:1: no text under \'fr\'; write {"en": "…", "fr": "…"}, or choose among its keys \'en\', \'it\' with '
        "--source-column and --target-column, or "
    )


def test_columns_are_part_of_the_key_of_prepared_data() -> None:
    Path("a.tsv").write_text("source\ttarget\nHello\tCiao\n", "utf-8")

    def config(**columns: str | int) -> Config:
        data = {"train": {"files": ["a.tsv"], **columns}}
        return validate_sources([ConfigSource("test", {"data": data})])

    keys = {data_key(config(**columns)) for columns in ({}, {"source_column": 2}, {"target_column": "2"})}
    assert len(keys) == 3
    assert data_key(config(source_column=2)) == data_key(config(source_column="2"))


def test_headers_have_known_names() -> None:
    assert is_header([normalize_name(name) for name in ("ID", "Text", "Label")], ("label", "text", "second"))
    assert not is_header(["source", "source"], ("source", "target"))
