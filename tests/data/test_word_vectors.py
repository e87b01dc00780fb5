"""Word vectors: every text format, and the message for every error."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from regard.config import TokenizerConfig
from regard.data.tokenizer import train_tokenizer
from regard.data.word_tokens import whole_words
from regard.data.word_vectors import read_word_vectors, vector_size, write_word_vectors
from regard.errors import DataError

GLOVE = "the 0.1 -0.2 3e-1\ncat 1 2 3\n"
WORD2VEC = "2 3\n" + GLOVE


def write_file(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize("content", [GLOVE, WORD2VEC, WORD2VEC.replace("\n", " \n"), GLOVE.replace("\n", "\r\n")])
def test_text_formats(content: str, tmp_path: Path) -> None:
    path = write_file(tmp_path / "vectors.txt", content)
    assert vector_size(path) == 3
    result = read_word_vectors(path, {"cat", "the"})
    assert {word: vector.tolist() for word, vector in result.vectors.items()} == {
        "the": pytest.approx([0.1, -0.2, 0.3]),
        "cat": [1, 2, 3],
    }
    assert (result.num_words, result.lowercase) == (2, True)


def test_gzip_files(tmp_path: Path) -> None:
    path = write_file(tmp_path / "vectors.txt.gz", gzip.compress(WORD2VEC.encode()))
    assert vector_size(path) == 3
    assert read_word_vectors(path, {"cat"}).vectors["cat"].tolist() == [1, 2, 3]


def test_requested_words_and_first_of_duplicates(tmp_path: Path) -> None:
    path = write_file(tmp_path / "vectors.txt", "Cat 1 2\ndog 3 4\nCat 5 6\n")
    result = read_word_vectors(path, {"Cat"})
    assert {word: vector.tolist() for word, vector in result.vectors.items()} == {"Cat": [1, 2]}
    assert (result.num_words, result.lowercase) == (3, False)


def test_words_with_spaces_and_invalid_utf8(tmp_path: Path) -> None:
    path = write_file(tmp_path / "vectors.txt", b"a 1 2\n. . . 3 4\n\xff\xfe 5 6\nb 7 8\n")
    result = read_word_vectors(path, {"b", ". . ."})
    assert result.vectors[". . ."].tolist() == [3, 4]
    assert result.vectors["b"].tolist() == [7, 8]
    assert result.num_words == 4


def test_written_vectors_are_read_back(tmp_path: Path) -> None:
    vectors = np.array([[0.125, -3], [1e-7, 2]], np.float32)
    write_word_vectors(tmp_path / "vectors.txt", ["più", "meno"], vectors)
    assert (tmp_path / "vectors.txt").read_text("utf-8").startswith("2 2\npiù 0.125 -3\n")
    result = read_word_vectors(tmp_path / "vectors.txt", {"più", "meno"})
    np.testing.assert_allclose(result.vectors["meno"], vectors[1])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", ":1: expected a word and its numbers; pass word vectors in text format."),
        ("word\n", ":1: expected a word and its numbers; pass word vectors in text format."),
        ("The quick brown fox\n", ":1: 'quick' is not a number; fix the line, or remove it."),
        ("a 1 2\nb 3\n", ":2: the word 'b' has 1 numbers instead of 2; fix the line, or remove it."),
        ("1 2\nb 3\n", ":2: the word 'b' has 1 numbers instead of 2; fix the line, or remove it."),
        ("a 1 2\nb 3 x\n", ":2: 'x' is not a number; fix the line, or remove it."),
        ("a 1 2\nb 3 nan\n", ":2: 'nan' is not a number; fix the line, or remove it."),
        ("3 2\na 1 2\nb 3 4\n", ": its header says 3 words, but it has 2; get the complete file."),
        ("1 3\nb \0\1\2\3\n", ": is in a binary format; save the vectors as text."),
    ],
)
def test_invalid_files_are_errors(content: str, message: str, tmp_path: Path) -> None:
    path = write_file(tmp_path / "vectors.txt", content)
    with pytest.raises(DataError) as error:
        read_word_vectors(path, {"a", "b"})
    assert str(error.value) == f"{path}{message}"


def test_unreadable_files_are_errors(tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        vector_size(tmp_path / "missing.txt")
    assert str(error.value) == (
        f"{tmp_path / 'missing.txt'}: cannot be read (No such file or directory); "
        "pass the path of word vectors in text format."
    )
    for content in (b"no gzip", gzip.compress(WORD2VEC.encode())[:-12]):
        path = write_file(tmp_path / "vectors.gz", content)
        with pytest.raises(DataError) as error:
            read_word_vectors(path, {"cat"})
        assert (
            str(error.value) == f"{path}: cannot be decompressed; get the complete file, or one that is not compressed."
        )


@pytest.mark.parametrize("kind", ["bpe", "byte-level", "word", "character"])
def test_whole_words(kind: str) -> None:
    config = TokenizerConfig.model_validate({"kind": kind})
    tokenizer = train_tokenizer(["the cat, the hat", "the caterpillar (the cat)"] * 20, config, vocab_size=400)
    words = whole_words(tokenizer)
    assert len(words) == len(tokenizer)
    assert ("the" in words, "cat" in words) == ((True, True) if kind != "character" else (False, False))
    for number, word in enumerate(words):
        piece = tokenizer.ids_to_tokens([number])[0]
        if word is not None and word.isalpha() and kind != "word":
            assert piece[0] in "▁Ġ"
