"""Grouping tokens into words, and replaying BPE merges."""

import pytest

from regard.config import SpecialTokensConfig, TokenizerConfig
from regard.data.tokenizer import train_tokenizer
from regard.interpret.tokens import bpe_merges, group_words

TEXTS = ["ti amo molto.", "l'amico non è qui, no?", "dov'è il caffè"] * 3


@pytest.mark.parametrize("kind", ["bpe", "unigram", "byte-level", "character", "word"])
def test_tokens_of_every_tokenizer_are_grouped_into_words(kind: str) -> None:
    tokenizer = train_tokenizer(TEXTS, TokenizerConfig(kind=kind), vocab_size=330)  # type: ignore[arg-type]
    ids = [*tokenizer.encode("non è qui"), 3]
    words = group_words(ids, tokenizer, SpecialTokensConfig())
    assert [word.text for word in words] == ["non", "è", "qui", "[EOS]"]
    assert [place for word in words for place in word.tokens] == list(range(len(ids)))
    assert [word.special for word in words] == [False, False, False, True]


def test_character_made_of_byte_tokens_is_one_word() -> None:
    tokenizer = train_tokenizer(TEXTS, TokenizerConfig(), vocab_size=330)
    ids = tokenizer.encode("amo 猫 molto")
    assert len(ids) > 4
    assert [word.text for word in group_words(ids, tokenizer, SpecialTokensConfig())] == ["amo", "猫", "molto"]


@pytest.mark.parametrize("kind", ["bpe", "byte-level"])
def test_merges_end_with_the_tokens_of_the_tokenizer(kind: str) -> None:
    tokenizer = train_tokenizer(TEXTS, TokenizerConfig(kind=kind), vocab_size=330)  # type: ignore[arg-type]
    for text in TEXTS:
        built = bpe_merges(text, tokenizer)
        assert [piece for word in built for piece in word.stages[-1]] == tokenizer.ids_to_tokens(tokenizer.encode(text))
        for word in built:
            assert all(
                len(after) == len(before) - 1 for before, after in zip(word.stages, word.stages[1:], strict=False)
            )


def test_word_tokenizer_has_no_merges() -> None:
    assert bpe_merges("amo", train_tokenizer(TEXTS, TokenizerConfig(kind="word"), vocab_size=50)) == []


@pytest.mark.parametrize("kind", ["bpe", "byte-level"])
def test_byte_tokens_of_a_letter_belong_to_its_word(kind: str) -> None:
    """A vocabulary that has never seen a letter spells it in bytes, none of which is a letter by itself."""
    tokenizer = train_tokenizer(["ti amo molto"] * 3, TokenizerConfig(kind=kind), vocab_size=300)  # type: ignore[arg-type]
    text = "amo 猫👩 caffè molto"
    words = group_words(tokenizer.encode(text), tokenizer, SpecialTokensConfig())
    assert [word.text for word in words if not word.special] == ["amo", "猫", "👩", "caffè", "molto"]
