"""Masking as in Devlin et al. (2019): equal to the definition, with the configured fractions; texts with masks."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tokenizers import Tokenizer as Library
from tokenizers import models

from regard.config import SpecialTokensConfig
from regard.config.data import TokenizerConfig
from regard.config.training import MaskingConfig
from regard.data.masking import MaskedTokens, MaskingDraws, TokenMasker, encode_fillers, encode_masked, format_masked
from regard.data.tokenizer import MASK_TOKEN, Tokenizer, train_tokenizer

TEXTS = ["the cat sat on the mat", "unbelievable cats, unthinkable dogs!", "don't [EOS] me: è così", "a"]
SPECIAL = SpecialTokensConfig(mask=4)
NOT_TEXT = {0, 1, 2, 3, 4}
KINDS: dict[str, dict[str, Any]] = {
    kind: {"kind": kind} for kind in ("bpe", "unigram", "byte-level", "character", "word")
}
TOKENIZERS = {
    kind: train_tokenizer(TEXTS * 3, TokenizerConfig(**settings), vocab_size=300, mask_token=True)
    for kind, settings in KINDS.items()
}
Ids = NDArray[np.int64]


def mask_in_loops(masker: TokenMasker, ids: Ids, draws: MaskingDraws) -> MaskedTokens:
    """Mask token by token, in loops."""
    input_ids, selected = ids.copy(), np.zeros(ids.shape, np.bool_)
    rate, masked, random = (
        masker.config.probability,
        masker.config.mask_fraction,
        masker.config.random_fraction,
    )
    starts = masker.unit_starts(ids)
    for row in range(len(ids)):
        words: list[list[int]] = []
        for place in range(ids.shape[1]):
            if starts[row, place]:
                words.append([])
            words[-1].append(place)
        words = [[place for place in word if ids[row, place] not in NOT_TEXT] for word in words]
        drawn = {word[0]: draws.selection[row, word[0]] for word in words if word}
        masked_batch = [word for word in words if word and drawn[word[0]] < rate]
        if not masked_batch and drawn:
            lowest = min(drawn, key=lambda place: drawn[place])
            masked_batch = [word for word in words if word and word[0] == lowest]
        for place in (place for word in masked_batch for place in word):
            selected[row, place] = True
            if draws.replacement[row, place] < masked:
                input_ids[row, place] = masker.mask_id
            elif draws.replacement[row, place] < masked + random:
                input_ids[row, place] = masker.replacement_ids[
                    int(draws.random_token[row, place] * len(masker.replacement_ids))
                ]
    return MaskedTokens(input_ids, selected)


@given(
    kind=st.sampled_from(sorted(TOKENIZERS)),
    seed=st.integers(0, 2**31),
    shape=st.tuples(st.integers(1, 4), st.integers(1, 20)),
    rate=st.floats(0.01, 0.9),
    masked=st.floats(0, 1),
    whole_words=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_vectorized_masking_equals_the_definition(
    kind: str, seed: int, shape: tuple[int, int], rate: float, masked: float, whole_words: bool
) -> None:
    config = MaskingConfig(
        probability=rate, mask_fraction=masked, random_fraction=(1 - masked) / 2, whole_words=whole_words
    )
    random = np.random.default_rng(seed)
    masker = TokenMasker(config, TOKENIZERS[kind], SPECIAL)
    ids = random.integers(0, len(TOKENIZERS[kind]), shape)
    draws = MaskingDraws.sample(ids.shape, random)
    quick, slow = masker.apply(ids, draws), mask_in_loops(masker, ids, draws)
    assert (quick.input_ids == slow.input_ids).all()
    assert (quick.selected == slow.selected).all()


def mask_large_batch(seed: int = 0, **config: float) -> tuple[TokenMasker, Ids, MaskedTokens]:
    """Return a large batch before and after masking."""
    masker = TokenMasker(MaskingConfig(**config), TOKENIZERS["byte-level"], SPECIAL)  # type: ignore[arg-type]
    ids = np.random.default_rng(1).integers(0, len(TOKENIZERS["byte-level"]), (200, 200))
    return masker, ids, masker.apply(ids, MaskingDraws.sample(ids.shape, np.random.default_rng(seed)))


def assert_fraction(count: int, of: int, fraction: float) -> None:
    """Check a fraction within five standard deviations of a binomial distribution."""
    assert abs(count - of * fraction) < 5 * (of * fraction * (1 - fraction)) ** 0.5


def test_fractions_match_the_config() -> None:
    masker, ids, masked_batch = mask_large_batch()
    selected = int(masked_batch.selected.sum())
    assert_fraction(selected, int(masker.maskable(ids).sum()), 0.15)
    assert_fraction(int((masked_batch.input_ids == 4)[masked_batch.selected].sum()), selected, 0.8)
    unchanged = int((masked_batch.input_ids == ids)[masked_batch.selected].sum())
    assert_fraction(unchanged, selected, 0.1 + 0.1 / len(masker.replacement_ids))  # a random token may be the original


def test_special_tokens_are_neither_masked_nor_drawn() -> None:
    _, ids, masked_batch = mask_large_batch(probability=0.9, mask_fraction=0.0, random_fraction=1.0)
    assert not np.isin(ids[masked_batch.selected], list(NOT_TEXT)).any()
    assert not np.isin(masked_batch.input_ids[masked_batch.selected], list(NOT_TEXT)).any()


def test_unselected_tokens_are_unchanged() -> None:
    _, ids, masked_batch = mask_large_batch(probability=0.5)
    assert (masked_batch.input_ids == ids)[~masked_batch.selected].all()


def test_masking_follows_from_the_seed() -> None:
    (_, _, first), (_, _, same), (_, _, other) = mask_large_batch(3), mask_large_batch(3), mask_large_batch(4)
    assert (first.input_ids == same.input_ids).all()
    assert (first.selected == same.selected).all()
    assert (first.selected != other.selected).any()


def test_every_text_has_at_least_one_masked_token() -> None:
    masker = TokenMasker(MaskingConfig(probability=0.001), TOKENIZERS["character"], SPECIAL)
    ids = np.array([[2, 7, 8, 3], [2, 1, 1, 3]])
    masked_batch = masker.apply(ids, MaskingDraws.sample(ids.shape, np.random.default_rng(0)))
    assert masked_batch.selected.sum(1).tolist() == [1, 0]


def words_of(tokenizer: Tokenizer, text: str) -> list[list[str]]:
    """Return the tokens of a text, grouped by word."""
    ids = np.array([tokenizer.encode(text)])
    starts = TokenMasker(MaskingConfig(whole_words=True), tokenizer, SPECIAL).unit_starts(ids)[0]
    words: list[list[str]] = []
    for piece, begins in zip(tokenizer.ids_to_tokens(ids[0].tolist()), starts, strict=True):
        words = [*words, [piece]] if begins else [*words[:-1], [*words[-1], piece]]
    return words


@pytest.mark.parametrize("kind", ["bpe", "unigram", "byte-level", "character", "word"])
def test_words_begin_at_spaces_and_punctuation(kind: str) -> None:
    tokenizer = TOKENIZERS[kind]
    joined = ["".join(word).strip("▁Ġ ") for word in words_of(tokenizer, "unbelievable cats, dogs!")]
    assert [word for word in joined if word] == ["unbelievable", "cats", ",", "dogs", "!"]


def test_line_ends_separate_byte_level_words() -> None:
    words = words_of(TOKENIZERS["byte-level"], "the cat\nsat")
    assert ["".join(word) for word in words] == ["the", "Ġcat", "Ċ", "sat"]


def test_hash_marks_in_byte_level_tokens_are_not_wordpiece() -> None:
    tokenizer = train_tokenizer(
        ["## the ##cat"] * 9, TokenizerConfig(kind="byte-level"), vocab_size=290, mask_token=True
    )
    assert tokenizer.token_id("##") is not None
    assert ["".join(word) for word in words_of(tokenizer, "## the ##cat")][-1] == "cat"


def test_wordpiece_continuations_belong_to_the_word() -> None:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", MASK_TOKEN, "un", "##believ", "##able", ","]
    library = Library(models.WordPiece({piece: n for n, piece in enumerate(pieces)}, unk_token="[UNK]"))
    masker = TokenMasker(MaskingConfig(whole_words=True), Tokenizer(library), SPECIAL)
    assert masker.unit_starts(np.array([[2, 5, 6, 7, 8, 5, 3]])).tolist() == [
        [True, True, False, False, True, True, True]
    ]


def test_tokens_of_a_word_are_masked_together() -> None:
    tokenizer = TOKENIZERS["character"]
    ids = np.array([tokenizer.encode("the cat sat on the mat " * 20)])
    masker = TokenMasker(MaskingConfig(probability=0.3, whole_words=True), tokenizer, SPECIAL)
    masked_batch = masker.apply(ids, MaskingDraws.sample(ids.shape, np.random.default_rng(0)))
    starts = np.flatnonzero(masker.unit_starts(ids)[0])
    for word in np.split(masked_batch.selected[0], starts[1:]):
        assert word.all() or not word.any()
    assert 0 < masked_batch.selected.sum() < ids.size


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
