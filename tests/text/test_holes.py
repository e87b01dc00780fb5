"""A text with holes has the tokens that it would have without, and a mask in the place of each hole."""

import pytest

from regard.config.tokenizer import TokenizerConfig
from regard.text.holes import encode_holes, show_holes
from regard.text.tokenizer import Tokenizer, train_tokenizer

TEXT = "The cat sat on the mat. No, on the dog!"
HOLE = 4


def tokenizer_of(kind: str) -> Tokenizer:
    size = 285 if kind == "bpe" else 330  # with more, it would join words and the signs after them
    return train_tokenizer([TEXT] * 3, TokenizerConfig(kind=kind), vocabulary=size, masked=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["bpe", "unigram", "byte-level", "word"])
def test_only_the_hidden_word_is_missing(kind: str) -> None:
    tokenizer = tokenizer_of(kind)
    for word in ("The", "sat", "mat", "No", "dog"):
        start = TEXT.index(word)
        holed = f"{TEXT[:start]}[MASK]{TEXT[start + len(word) :]}"
        found, whole = encode_holes(tokenizer, holed, HOLE), tokenizer.encode(TEXT)
        place = found.index(HOLE)
        rest = len(found) - place - 1
        assert found[:place] == whole[:place]
        assert found[place + 1 :] == whole[len(whole) - rest :]
        missing = tokenizer.decode(whole[place : len(whole) - rest])
        assert missing.strip() == word


def test_in_characters_a_hole_is_one_of_them() -> None:
    tokenizer = tokenizer_of("character")
    assert encode_holes(tokenizer, "c[MASK]t", HOLE) == [*tokenizer.encode("c"), HOLE, *tokenizer.encode("t")]


def test_a_hole_beside_a_hole_and_at_the_ends() -> None:
    tokenizer = tokenizer_of("bpe")
    assert encode_holes(tokenizer, "[MASK] [MASK] cat [MASK]", HOLE) == [HOLE, HOLE, *tokenizer.encode("cat"), HOLE]
    assert encode_holes(tokenizer, "the cat", HOLE) == tokenizer.encode("the cat")


@pytest.mark.parametrize("kind", ["bpe", "unigram", "byte-level", "word", "character"])
def test_holes_are_shown_where_they_are(kind: str) -> None:
    tokenizer = tokenizer_of(kind)
    ids = tokenizer.encode("The cat sat")
    shown = show_holes(tokenizer, ids, [len(ids) - 1])
    assert shown.endswith("[MASK]")
    if kind == "word":
        assert shown == "The cat [MASK]"
        assert encode_holes(tokenizer, shown, HOLE) == [*ids[:-1], HOLE]


@pytest.mark.parametrize("kind", ["bpe", "unigram", "byte-level", "character", "word"])
def test_only_tokenizers_for_masked_training_have_a_mask(kind: str) -> None:
    assert tokenizer_of(kind).number("[MASK]") == HOLE
    plain = train_tokenizer([TEXT], TokenizerConfig(kind=kind), vocabulary=330)  # type: ignore[arg-type]
    assert plain.number("[MASK]") is None
    assert tokenizer_of(kind).decode([HOLE]) == ""
