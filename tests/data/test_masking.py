"""Tokens are hidden as Devlin et al. (2019) say: the quick way equals the definition, and chance keeps its shares."""

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
from regard.data.masking import MaskedTokens, MaskingDraws, TokenMasker
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


def by_definition(masking: TokenMasker, ids: Ids, draws: MaskingDraws) -> MaskedTokens:
    """Token after token, as one would do it by hand."""
    read, chosen = ids.copy(), np.zeros(ids.shape, np.bool_)
    rate, masked, random = (
        masking.config.probability,
        masking.config.mask_fraction,
        masking.config.random_fraction,
    )
    starts = masking.unit_starts(ids)
    for row in range(len(ids)):
        words: list[list[int]] = []
        for place in range(ids.shape[1]):
            if starts[row, place]:
                words.append([])
            words[-1].append(place)
        words = [[place for place in word if ids[row, place] not in NOT_TEXT] for word in words]
        drawn = {word[0]: draws.selection[row, word[0]] for word in words if word}
        hidden = [word for word in words if word and drawn[word[0]] < rate]
        if not hidden and drawn:
            lowest = min(drawn, key=lambda place: drawn[place])
            hidden = [word for word in words if word and word[0] == lowest]
        for place in (place for word in hidden for place in word):
            chosen[row, place] = True
            if draws.replacement[row, place] < masked:
                read[row, place] = masking.mask_id
            elif draws.replacement[row, place] < masked + random:
                read[row, place] = masking.replacement_ids[
                    int(draws.random_token[row, place] * len(masking.replacement_ids))
                ]
    return MaskedTokens(read, chosen)


@given(
    kind=st.sampled_from(sorted(TOKENIZERS)),
    seed=st.integers(0, 2**31),
    shape=st.tuples(st.integers(1, 4), st.integers(1, 20)),
    rate=st.floats(0.01, 0.9),
    masked=st.floats(0, 1),
    whole_words=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_hiding_many_at_once_equals_the_definition(
    kind: str, seed: int, shape: tuple[int, int], rate: float, masked: float, whole_words: bool
) -> None:
    wish = MaskingConfig(
        probability=rate, mask_fraction=masked, random_fraction=(1 - masked) / 2, whole_words=whole_words
    )
    random = np.random.default_rng(seed)
    masking = TokenMasker(wish, TOKENIZERS[kind], SPECIAL)
    ids = random.integers(0, len(TOKENIZERS[kind]), shape)
    draws = MaskingDraws.sample(ids.shape, random)
    quick, slow = masking.apply(ids, draws), by_definition(masking, ids, draws)
    assert (quick.input_ids == slow.input_ids).all()
    assert (quick.selected == slow.selected).all()


def many(seed: int = 0, **wish: float) -> tuple[TokenMasker, Ids, MaskedTokens]:
    """A large batch, as it was and with tokens hidden."""
    masking = TokenMasker(MaskingConfig(**wish), TOKENIZERS["byte-level"], SPECIAL)  # type: ignore[arg-type]
    ids = np.random.default_rng(1).integers(0, len(TOKENIZERS["byte-level"]), (200, 200))
    return masking, ids, masking.apply(ids, MaskingDraws.sample(ids.shape, np.random.default_rng(seed)))


def assert_share(found: int, of: int, share: float) -> None:
    """Within five standard deviations of a binomial distribution."""
    assert abs(found - of * share) < 5 * (of * share * (1 - share)) ** 0.5


def test_the_shares_are_those_of_the_settings() -> None:
    masking, ids, hidden = many()
    chosen = int(hidden.selected.sum())
    assert_share(chosen, int(masking.maskable(ids).sum()), 0.15)
    assert_share(int((hidden.input_ids == 4)[hidden.selected].sum()), chosen, 0.8)
    unchanged = int((hidden.input_ids == ids)[hidden.selected].sum())
    assert_share(unchanged, chosen, 0.1 + 0.1 / len(masking.replacement_ids))  # a random token may be the right one


def test_special_tokens_are_never_hidden_and_never_drawn() -> None:
    _, ids, hidden = many(probability=0.9, mask_fraction=0.0, random_fraction=1.0)
    assert not np.isin(ids[hidden.selected], list(NOT_TEXT)).any()
    assert not np.isin(hidden.input_ids[hidden.selected], list(NOT_TEXT)).any()


def test_what_is_not_chosen_is_read_as_it_is() -> None:
    _, ids, hidden = many(probability=0.5)
    assert (hidden.input_ids == ids)[~hidden.selected].all()


def test_the_same_seed_hides_the_same() -> None:
    (_, _, one), (_, _, same), (_, _, other) = many(3), many(3), many(4)
    assert (one.input_ids == same.input_ids).all()
    assert (one.selected == same.selected).all()
    assert (one.selected != other.selected).any()


def test_something_is_hidden_in_every_text_that_has_something_to_hide() -> None:
    masking = TokenMasker(MaskingConfig(probability=0.001), TOKENIZERS["character"], SPECIAL)
    ids = np.array([[2, 7, 8, 3], [2, 1, 1, 3]])
    hidden = masking.apply(ids, MaskingDraws.sample(ids.shape, np.random.default_rng(0)))
    assert hidden.selected.sum(1).tolist() == [1, 0]


def words_of(tokenizer: Tokenizer, text: str) -> list[list[str]]:
    """The tokens of a text, those of a word together."""
    ids = np.array([tokenizer.encode(text)])
    starts = TokenMasker(MaskingConfig(whole_words=True), tokenizer, SPECIAL).unit_starts(ids)[0]
    words: list[list[str]] = []
    for piece, begins in zip(tokenizer.ids_to_tokens(ids[0].tolist()), starts, strict=True):
        words = [*words, [piece]] if begins else [*words[:-1], [*words[-1], piece]]
    return words


@pytest.mark.parametrize("kind", ["bpe", "unigram", "byte-level", "character", "word"])
def test_words_begin_at_spaces_and_signs(kind: str) -> None:
    tokenizer = TOKENIZERS[kind]
    joined = ["".join(word).strip("▁Ġ ") for word in words_of(tokenizer, "unbelievable cats, dogs!")]
    assert [word for word in joined if word] == ["unbelievable", "cats", ",", "dogs", "!"]


def test_a_line_begins_a_word_in_byte_level_tokens() -> None:
    words = words_of(TOKENIZERS["byte-level"], "the cat\nsat")
    assert ["".join(word) for word in words] == ["the", "Ġcat", "Ċ", "sat"]


def test_a_heading_of_byte_level_tokens_is_not_taken_for_pieces_of_bert() -> None:
    tokenizer = train_tokenizer(
        ["## the ##cat"] * 9, TokenizerConfig(kind="byte-level"), vocab_size=290, mask_token=True
    )
    assert tokenizer.token_id("##") is not None
    assert ["".join(word) for word in words_of(tokenizer, "## the ##cat")][-1] == "cat"


def test_pieces_of_bert_that_go_on_with_a_word_are_part_of_it() -> None:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", MASK_TOKEN, "un", "##believ", "##able", ","]
    library = Library(models.WordPiece({piece: n for n, piece in enumerate(pieces)}, unk_token="[UNK]"))
    masking = TokenMasker(MaskingConfig(whole_words=True), Tokenizer(library), SPECIAL)
    assert masking.unit_starts(np.array([[2, 5, 6, 7, 8, 5, 3]])).tolist() == [
        [True, True, False, False, True, True, True]
    ]


def test_all_tokens_of_a_word_are_hidden_together() -> None:
    tokenizer = TOKENIZERS["character"]
    ids = np.array([tokenizer.encode("the cat sat on the mat " * 20)])
    masking = TokenMasker(MaskingConfig(probability=0.3, whole_words=True), tokenizer, SPECIAL)
    hidden = masking.apply(ids, MaskingDraws.sample(ids.shape, np.random.default_rng(0)))
    starts = np.flatnonzero(masking.unit_starts(ids)[0])
    for word in np.split(hidden.selected[0], starts[1:]):
        assert word.all() or not word.any()
    assert 0 < hidden.selected.sum() < ids.size
