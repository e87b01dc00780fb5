"""A text with holes has the tokens that it would have without, and a mask in the place of each hole."""

import pytest

from regard.config.data import TokenizerConfig
from regard.data.masked_text import encode_fillers, encode_masked, format_masked
from regard.data.tokenizer import Tokenizer, train_tokenizer

TEXT = "The cat sat on the mat. No, on the dog!"
HOLE = 4


def tokenizer_of(kind: str) -> Tokenizer:
    size = 285 if kind == "bpe" else 330  # with more, it would join words and the signs after them
    return train_tokenizer([TEXT] * 3, TokenizerConfig(kind=kind), vocab_size=size, mask_token=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["bpe", "unigram", "byte-level", "word"])
def test_only_the_hidden_word_is_missing(kind: str) -> None:
    tokenizer = tokenizer_of(kind)
    for word in ("The", "sat", "mat", "No", "dog"):
        start = TEXT.index(word)
        holed = f"{TEXT[:start]}[MASK]{TEXT[start + len(word) :]}"
        found, whole = encode_masked(tokenizer, holed, HOLE), tokenizer.encode(TEXT)
        place = found.index(HOLE)
        rest = len(found) - place - 1
        assert found[:place] == whole[:place]
        assert found[place + 1 :] == whole[len(whole) - rest :]
        missing = tokenizer.decode(whole[place : len(whole) - rest])
        assert missing.strip() == word


@pytest.mark.parametrize("kind", ["bpe", "unigram", "byte-level", "word"])
@pytest.mark.parametrize("words", [["The"], ["sat"], ["No"], ["The", "dog"], ["cat", "mat", "No"]])
def test_what_fills_holes_has_the_tokens_that_were_hidden(kind: str, words: list[str]) -> None:
    tokenizer, holed, hidden = tokenizer_of(kind), TEXT, list[int]()
    for word in words:
        holed = holed.replace(word, "[MASK]", 1)
        hidden += hidden_ids(tokenizer, word)
    found = encode_fillers(tokenizer, holed, " ".join(words), HOLE)
    assert tokenizer.ids_to_tokens(found) == tokenizer.ids_to_tokens(hidden)


def hidden_ids(tokenizer: Tokenizer, word: str) -> list[int]:
    """The ids that a text of ours has, and the same with a hole in the place of a word has not."""
    ids, whole = encode_masked(tokenizer, TEXT.replace(word, "[MASK]", 1), HOLE), tokenizer.encode(TEXT)
    place = ids.index(HOLE)
    return whole[place : place + 1 + len(whole) - len(ids)]


@pytest.mark.parametrize("kind", ["bpe", "unigram", "byte-level", "word"])
def test_what_fills_a_hole_within_a_word_starts_none(kind: str) -> None:
    tokenizer = tokenizer_of(kind)
    (found,) = tokenizer.ids_to_tokens(encode_fillers(tokenizer, "No[MASK] the dog", ",", HOLE))
    assert found == ","
    found, *_ = tokenizer.ids_to_tokens(encode_fillers(tokenizer, "No [MASK] the dog", "on", HOLE))
    assert found[0] in "▁Ġ"


def test_one_word_may_fill_several_holes() -> None:
    tokenizer = tokenizer_of("byte-level")
    found = encode_fillers(tokenizer, "The [MASK][MASK]", "mats", HOLE)
    assert found == tokenizer.encode(" mats")
    assert tokenizer.ids_to_tokens(found) == ["Ġmat", "s"]
    found = encode_fillers(tokenizer, "The [MASK][MASK]", "mat s", HOLE)
    assert tokenizer.ids_to_tokens(found) == ["Ġmat", "s"]


def test_in_characters_a_hole_is_one_of_them() -> None:
    tokenizer = tokenizer_of("character")
    assert encode_masked(tokenizer, "c[MASK]t", HOLE) == [*tokenizer.encode("c"), HOLE, *tokenizer.encode("t")]


def test_a_hole_beside_a_hole_and_at_the_ends() -> None:
    tokenizer = tokenizer_of("bpe")
    assert encode_masked(tokenizer, "[MASK] [MASK] cat [MASK]", HOLE) == [HOLE, HOLE, *tokenizer.encode("cat"), HOLE]
    assert encode_masked(tokenizer, "the cat", HOLE) == tokenizer.encode("the cat")


@pytest.mark.parametrize("kind", ["bpe", "unigram", "byte-level", "word", "character"])
def test_holes_are_shown_where_they_are(kind: str) -> None:
    tokenizer = tokenizer_of(kind)
    ids = tokenizer.encode("The cat sat")
    shown = format_masked(tokenizer, ids, [len(ids) - 1])
    assert shown.endswith("[MASK]")
    if kind == "word":
        assert shown == "The cat [MASK]"
        assert encode_masked(tokenizer, shown, HOLE) == [*ids[:-1], HOLE]


@pytest.mark.parametrize("kind", ["bpe", "unigram", "byte-level", "character", "word"])
def test_only_tokenizers_for_masked_training_have_a_mask(kind: str) -> None:
    assert tokenizer_of(kind).token_id("[MASK]") == HOLE
    plain = train_tokenizer([TEXT], TokenizerConfig(kind=kind), vocab_size=330)  # type: ignore[arg-type]
    assert plain.token_id("[MASK]") is None
    assert tokenizer_of(kind).decode([HOLE]) == ""
