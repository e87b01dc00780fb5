"""Texts with masks: the same tokens as without, and a mask token in the place of each masked word."""

import pytest

from regard.config.data import TokenizerConfig
from regard.data.masked_text import encode_fillers, encode_masked, format_masked
from regard.data.tokenizer import Tokenizer, train_tokenizer

TEXT = "The cat sat on the mat. No, on the dog!"
MASK_ID = 4


def train(kind: str) -> Tokenizer:
    size = 285 if kind == "bpe" else 330  # a larger one would merge words with punctuation
    return train_tokenizer([TEXT] * 3, TokenizerConfig(kind=kind), vocab_size=size, mask_token=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["bpe", "unigram", "byte-level", "word"])
def test_only_the_masked_word_is_missing(kind: str) -> None:
    tokenizer = train(kind)
    for word in ("The", "sat", "mat", "No", "dog"):
        start = TEXT.index(word)
        masked_text = f"{TEXT[:start]}[MASK]{TEXT[start + len(word) :]}"
        ids, full_ids = encode_masked(tokenizer, masked_text, MASK_ID), tokenizer.encode(TEXT)
        place = ids.index(MASK_ID)
        rest = len(ids) - place - 1
        assert ids[:place] == full_ids[:place]
        assert ids[place + 1 :] == full_ids[len(full_ids) - rest :]
        missing = tokenizer.decode(full_ids[place : len(full_ids) - rest])
        assert missing.strip() == word


@pytest.mark.parametrize("kind", ["bpe", "unigram", "byte-level", "word"])
@pytest.mark.parametrize("words", [["The"], ["sat"], ["No"], ["The", "dog"], ["cat", "mat", "No"]])
def test_fillers_have_the_masked_tokens(kind: str, words: list[str]) -> None:
    tokenizer, masked_text, masked_ids = train(kind), TEXT, list[int]()
    for word in words:
        masked_text = masked_text.replace(word, "[MASK]", 1)
        masked_ids += missing_ids(tokenizer, word)
    ids = encode_fillers(tokenizer, masked_text, " ".join(words), MASK_ID)
    assert tokenizer.ids_to_tokens(ids) == tokenizer.ids_to_tokens(masked_ids)


def missing_ids(tokenizer: Tokenizer, word: str) -> list[int]:
    """Return the ids of the text that are missing if the word is masked."""
    ids, full_ids = encode_masked(tokenizer, TEXT.replace(word, "[MASK]", 1), MASK_ID), tokenizer.encode(TEXT)
    place = ids.index(MASK_ID)
    return full_ids[place : place + 1 + len(full_ids) - len(ids)]


@pytest.mark.parametrize("kind", ["bpe", "unigram", "byte-level", "word"])
def test_filler_inside_a_word_starts_no_word(kind: str) -> None:
    tokenizer = train(kind)
    (ids,) = tokenizer.ids_to_tokens(encode_fillers(tokenizer, "No[MASK] the dog", ",", MASK_ID))
    assert ids == ","
    ids, *_ = tokenizer.ids_to_tokens(encode_fillers(tokenizer, "No [MASK] the dog", "on", MASK_ID))
    assert ids[0] in "▁Ġ"


def test_one_word_may_fill_several_masks() -> None:
    tokenizer = train("byte-level")
    ids = encode_fillers(tokenizer, "The [MASK][MASK]", "mats", MASK_ID)
    assert ids == tokenizer.encode(" mats")
    assert tokenizer.ids_to_tokens(ids) == ["Ġmat", "s"]
    ids = encode_fillers(tokenizer, "The [MASK][MASK]", "mat s", MASK_ID)
    assert tokenizer.ids_to_tokens(ids) == ["Ġmat", "s"]


def test_mask_among_characters() -> None:
    tokenizer = train("character")
    assert encode_masked(tokenizer, "c[MASK]t", MASK_ID) == [*tokenizer.encode("c"), MASK_ID, *tokenizer.encode("t")]


def test_adjacent_masks_and_masks_at_the_ends() -> None:
    tokenizer = train("bpe")
    assert encode_masked(tokenizer, "[MASK] [MASK] cat [MASK]", MASK_ID) == [
        MASK_ID,
        MASK_ID,
        *tokenizer.encode("cat"),
        MASK_ID,
    ]
    assert encode_masked(tokenizer, "the cat", MASK_ID) == tokenizer.encode("the cat")


@pytest.mark.parametrize("kind", ["bpe", "unigram", "byte-level", "word", "character"])
def test_formatted_masks(kind: str) -> None:
    tokenizer = train(kind)
    ids = tokenizer.encode("The cat sat")
    shown = format_masked(tokenizer, ids, [len(ids) - 1])
    assert shown.endswith("[MASK]")
    if kind == "word":
        assert shown == "The cat [MASK]"
        assert encode_masked(tokenizer, shown, MASK_ID) == [*ids[:-1], MASK_ID]


@pytest.mark.parametrize("kind", ["bpe", "unigram", "byte-level", "character", "word"])
def test_mask_token_is_optional(kind: str) -> None:
    assert train(kind).token_id("[MASK]") == MASK_ID
    plain = train_tokenizer([TEXT], TokenizerConfig(kind=kind), vocab_size=330)  # type: ignore[arg-type]
    assert plain.token_id("[MASK]") is None
    assert train(kind).decode([MASK_ID]) == ""
