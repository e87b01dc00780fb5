"""Tagged sentences in CoNLL columns."""

from pathlib import Path

import pytest

from regard.data.examples import TaggedExample
from regard.data.lines import InvalidLines
from regard.data.readers import read_tagged
from regard.errors import DataError


def read(path: Path, content: str, column: int | None = None) -> list[TaggedExample]:
    path.write_text(content, "utf-8")
    return list(read_tagged([str(path)], InvalidLines(), column))


def test_word_is_in_the_first_and_tag_in_the_last_column(tmp_path: Path) -> None:
    content = "-DOCSTART- -X- O O\n\nEU NNP I-NP B-ORG\nrejects VBZ I-VP O\n\n\nPeter NNP I-NP B-PER\n"
    assert read(tmp_path / "a.conll", content) == [
        TaggedExample(("EU", "rejects"), ("B-ORG", "O")),
        TaggedExample(("Peter",), ("B-PER",)),
    ]
    assert read(tmp_path / "a.conll", content, column=2)[0].tags == ("NNP", "VBZ")


def test_spaces_in_words_and_comments(tmp_path: Path) -> None:
    content = "# a comment\nNew York\tPLACE\n# is\tSIGN\n\n#\tSIGN\n"
    examples = read(tmp_path / "a.tsv", content)
    assert examples == [TaggedExample(("New York", "# is"), ("PLACE", "SIGN")), TaggedExample(("#",), ("SIGN",))]
    assert examples[0].texts == ("New\u00a0York #\u00a0is",)


def test_conllu_columns(tmp_path: Path) -> None:
    content = (
        "# sent_id = 1\n# text = vámonos\n1-2\tvámonos\t_\t_\n1\tvamos\tir\tVERB\t_\n2\tnos\tnosotros\tPRON\t_\n"
        "2.1\tvamos\tir\tVERB\t_\n\n"
    )
    assert read(tmp_path / "a.conllu", content) == [TaggedExample(("vamos", "nos"), ("VERB", "PRON"))]
    assert read(tmp_path / "a.conllu", content, column=3) == [TaggedExample(("vamos", "nos"), ("ir", "nosotros"))]


@pytest.mark.parametrize(
    ("content", "column", "message"),
    [
        ("a O\nb\n", None, "a.conll:2: 1 column; write word and tag on each line"),
        ("a\t\n", None, "a.conll:1: empty tag; fill it in"),
        ("\tO\n", None, "a.conll:1: empty word; fill it in"),
        ("a X O\n", 4, "a.conll:1: 3 columns; write 4 columns, as data.tag_column requires, on each line"),
    ],
)
def test_invalid_lines_are_errors(
    content: str, column: int | None, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError) as error:
        read(Path("a.conll"), content, column)
    assert str(error.value) == f"{message}, or skip such lines with --skip-invalid."


def test_sentence_with_an_invalid_line_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "a.conll"
    path.write_text("a O\nb\nc O\n\nd O\n", "utf-8")
    invalid = InvalidLines(skip=True)
    assert [example.words for example in read_tagged([str(path)], invalid)] == [("d",)]
    assert dict(invalid.counts) == {"too few columns": 1}
