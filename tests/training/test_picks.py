"""Settings picked for the data: they grow with it, and they are valid whatever its size."""

import itertools
from collections.abc import Callable

import pytest

from regard.config import Config, ConfigSource, validate_sources
from regard.data.stats import CorpusStats
from regard.training.automatic_settings import (
    AutomaticSetting,
    UserSettings,
    as_source,
    picks_for_encoder,
    picks_for_pairs,
    picks_for_text,
    user_settings,
)

KINDS: list[tuple[Callable[[CorpusStats, UserSettings], list[AutomaticSetting]], str]] = [
    (picks_for_pairs, "encoder-decoder"),
    (picks_for_text, "decoder-only"),
    (picks_for_pairs, "recurrent-encoder-decoder"),
    (picks_for_text, "recurrent-language-model"),
    (picks_for_encoder, "encoder-only"),
]
SIZES = [1, 10, 1000, 29_000, 300_000, 10_000_000]


def settled(picks: list[AutomaticSetting], kind: str) -> Config:
    return validate_sources([ConfigSource("kind", {"model": {"kind": kind}}), as_source(picks)])


def said(kind: str) -> UserSettings:
    return user_settings([ConfigSource("kind", {"model": {"kind": kind}})])


@pytest.mark.parametrize("examples", SIZES)
def test_picks_are_valid_for_any_amount_of_data(examples: int) -> None:
    for picks, kind in KINDS:
        config = settled(picks(CorpusStats(examples, 100 * examples), said(kind)), kind)
        assert config.training.steps >= config.validation.every
        assert config.training.schedule.warmup_steps < config.training.steps


def test_more_data_gets_a_larger_network_a_larger_vocabulary_and_less_dropout() -> None:
    for picks, kind in KINDS:
        sizes = [settled(picks(CorpusStats(examples, 100 * examples), said(kind)), kind).model for examples in SIZES]
        for smaller, larger in itertools.pairwise(sizes):
            assert smaller.width <= larger.width
            assert smaller.vocab_size <= larger.vocab_size
            assert smaller.dropout >= larger.dropout


def test_every_pick_says_why() -> None:
    for pick in (pick for picks, kind in KINDS for pick in picks(CorpusStats(29_000, 3_600_000), said(kind))):
        assert pick.why
        assert not pick.why.endswith(".")


def test_a_recurrent_network_is_not_offered_what_only_a_transformer_has() -> None:
    """Checked by the settings themselves, which accept nothing unknown; and nothing is said to be as GPT has it."""
    for picks, kind in ((picks, kind) for picks, kind in KINDS if kind.startswith("recurrent")):
        chosen = picks(CorpusStats(29_000, 3_600_000), said(kind))
        settled(chosen, kind)
        assert not {"model.heads", "model.feed_forward"} & {pick.setting for pick in chosen}
        assert not any("GPT" in pick.why or "Transformer" in pick.why for pick in chosen)


def test_nothing_is_held_out_where_there_is_validation_data() -> None:
    given = UserSettings(validation=True)
    assert "data.validation_fraction" not in {pick.setting for pick in picks_for_pairs(CorpusStats(9, 90), given)}


@pytest.mark.parametrize("steps", [1, 7, 50, 500, 3000, 100_000])
def test_what_follows_from_the_steps_follows_from_those_that_the_user_said(steps: int) -> None:
    for picks, kind in KINDS:
        given = ConfigSource("--set", {"training": {"steps": steps}})
        named = ConfigSource("kind", {"model": {"kind": kind}})
        chosen = picks(CorpusStats(300_000, 30_000_000), user_settings([named, given]))
        config = validate_sources([named, as_source(chosen), given])
        assert config.training.schedule.warmup_steps == max(1, min(4000, steps // 10))
        assert config.validation.every <= steps
        validations = steps // config.validation.every
        assert config.training.patience <= max(2, validations // 2)


def test_epochs_and_larger_batches_make_a_shorter_run() -> None:
    def warmup(**said: float) -> int:
        picks = picks_for_text(CorpusStats(1, 3_500_000), user_settings([ConfigSource("--set", {"training": said})]))
        return next(int(pick.value) for pick in picks if pick.setting == "training.schedule.warmup_steps")

    assert warmup(epochs=10) == 240  # of 10 · 1,000,000 / 4096 steps
    assert warmup(epochs=10, batch_tokens=8192, gradient_accumulation=2) == 61


def test_a_vocabulary_of_characters_is_not_said_to_be_of_sub_words() -> None:
    def why(characters: int, kind: str | None = None) -> str:
        picks = picks_for_text(CorpusStats(1, characters), UserSettings(tokenizer=kind))
        return next(pick.why for pick in picks if pick.setting == "model.vocab_size")

    one_each = "the tokenizer has one token for each character of the text, at most"
    assert why(10_000) == why(10_000_000, "character") == one_each
    assert why(10_000, "byte-level") == "10,000 characters give that many sub-words a use"
    assert why(10_000, "word") == "10,000 characters give that many words a use"


def test_the_context_that_the_user_said_has_positions() -> None:
    for picked in (picks_for_text, picks_for_encoder):
        picks = picked(CorpusStats(1, 100), UserSettings(context=512))
        assert next(pick.value for pick in picks if pick.setting == "model.positions.max_length") == 512


@pytest.mark.parametrize("wrong", [0, -3, "many", True, None, 1.5])
def test_what_cannot_be_right_is_left_to_the_check_of_the_settings(wrong: object) -> None:
    settings = {"training": {"steps": wrong, "epochs": wrong}, "data": {"valid": wrong}, "tokenizer": wrong}
    picks_for_text(CorpusStats(1, 100), user_settings([ConfigSource("--set", settings)]))
