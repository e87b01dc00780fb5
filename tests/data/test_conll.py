"""CoNLL columns and CoNLL-U: sentences, and the error message for every invalid line."""

from pathlib import Path

import pytest

from regard.data.lines import InvalidLines
from regard.data.readers import read_tagged
from regard.data.readers.base import TaggedExample
from regard.data.readers.conll import MAX_SENTENCE_WORDS, ConlluSentence, SurfaceToken, parse_conllu, read_conllu
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


def row(number: str, form: str = "w", head: str = "0") -> str:
    return "\t".join([number, form, "_", "_", "_", "_", head, "_", "_", "_"])


def sentences(*lines: str, skip: bool = False) -> list[ConlluSentence]:
    return list(parse_conllu("\n".join(lines), "a.conllu", InvalidLines(skip)))


def error_message(*lines: str) -> str:
    with pytest.raises(DataError) as error:
        sentences(*lines)
    return str(error.value).removesuffix(", or skip such lines with --skip-invalid.")


def test_ranges_empty_nodes_and_comments() -> None:
    result = sentences(
        "# newdoc",
        "",
        "# text = Vado nel parco",
        row("1", "Vado", "0"),
        row("2-3", "nel", "_"),
        row("2", "in", "4"),
        row("3", "il", "4"),
        row("3.1", "empty", "_"),
        row("4", "parco", "1"),
        "",
        "",
        row("1", "Sì"),
    )
    assert result == [
        ConlluSentence(
            "a.conllu:4",
            (SurfaceToken("Vado", 1, 1), SurfaceToken("nel", 2, 3), SurfaceToken("parco", 4, 4)),
            (0, 4, 4, 1),
        ),
        ConlluSentence("a.conllu:12", (SurfaceToken("Sì", 1, 1),), (0,)),
    ]


def test_several_files_with_any_line_ends(tmp_path: Path) -> None:
    for name, ends in (("a", "\n"), ("b", "\r\n")):
        (tmp_path / name).write_bytes(f"{row('1', name)}{ends}{ends}{row('1', name)}".encode())
    result = read_conllu([str(tmp_path / "a"), str(tmp_path / "b")], InvalidLines())
    assert [message.tokens[0].form for message in result] == ["a", "a", "b", "b"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["1 w 0"], "a.conllu:1: 1 column, but CoNLL-U has ten, separated by tabs; fix it"),
        (["1\tw\t_\t0"], "a.conllu:1: 4 columns, but CoNLL-U has ten, separated by tabs; fix it"),
        ([row("1"), row("3")], "a.conllu:2: begins with '3', but word 2 is next; number the words consecutively"),
        ([row("x")], "a.conllu:1: begins with 'x', but word 1 is next; number the words consecutively"),
        ([row("01")], "a.conllu:1: begins with '01', but word 1 is next; number the words consecutively"),
        (
            [row("1-3"), row("1"), row("2-3")],
            "a.conllu:3: begins with the range 2-3, but word 2 is next; number the words consecutively",
        ),
        (
            [row("2-1")],
            "a.conllu:1: begins with the range 2-1, but word 1 is next; number the words consecutively",
        ),
        ([row("1-2"), row("1")], "a.conllu:2: the sentence ends before its last word; complete it"),
        ([row("1.1")], "a.conllu:1: the sentence ends before its last word; complete it"),
        ([row("1", " ")], "a.conllu:1: no form in the second column; write the word there"),
        (
            [row("1", "w", "_")],
            "a.conllu:1: '_' is not a head (seventh column); write the number of a word, or 0",
        ),
        (
            ["# x", row("1", "w", "-1")],
            "a.conllu:2: '-1' is not a head (seventh column); write the number of a word, or 0",
        ),
        (
            [row("1"), row("2", "w", "3")],
            "a.conllu:2: its head is word 3, but the sentence has 2 words; correct it",
        ),
        ([row("1"), row("2")], "a.conllu:2: is a root, but word 1 is one too; only one word may have head 0"),
        (
            [row("1"), row("2", "w", "4"), row("3", "w", "2"), row("4", "w", "3")],
            "a.conllu:2: is in a cycle of heads (2 → 4 → 3 → 2); every word must lead to the root",
        ),
        (
            [row("1", "w", "1")],
            "a.conllu:1: is in a cycle of heads (1 → 1); every word must lead to the root",
        ),
    ],
)
def test_invalid_sentences_are_errors_with_location(lines: list[str], message: str) -> None:
    assert error_message(*lines) == message


def test_too_long_sentences_are_errors() -> None:
    lines = [row("1"), *(row(str(n), "w", "1") for n in range(2, MAX_SENTENCE_WORDS + 2))]
    assert error_message(*lines) == f"a.conllu:1: the sentence has more than {MAX_SENTENCE_WORDS:,} words; split it"


def test_skipped_sentences_keep_their_position() -> None:
    result = sentences(row("1", "a"), "", row("1"), row("2"), "", row("1", "b"), skip=True)
    assert [message.is_valid for message in result] == [True, False, True]


def test_invalid_utf8_skips_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "a.conllu"
    file.write_bytes(row("1").encode() + b"\n\n\xff\n\n" + row("1").encode())
    invalid = InvalidLines(skip=True)
    assert [message.is_valid for message in read_conllu([str(file)], invalid)] == [True, False, True]
    assert dict(invalid.counts) == {"not UTF-8": 1}
