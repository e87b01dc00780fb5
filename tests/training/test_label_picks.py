"""Settings picked for labelled data: valid whatever its size, and gentler where a network has learned before."""

import itertools

import pytest

from regard.config import Config, ConfigSource, validate_sources
from regard.data.stats import CorpusStats
from regard.training.automatic_settings import UserSettings, as_source, picks_for_classes, picks_for_tags, user_settings

KINDS = {picks_for_classes: "classes", picks_for_tags: "tags"}
SIZES = [1, 10, 1000, 29_000, 300_000, 10_000_000]


def settled(examples: int, picks: object, said: UserSettings | None = None, *more: ConfigSource) -> Config:
    for known, head in KINDS.items():
        if known is picks:
            found = known(CorpusStats(examples, 60 * examples), said or UserSettings())
            return validate_sources(
                [ConfigSource("", {"model": {"kind": "encoder-only", "head": head}}), as_source(found), *more]
            )
    raise AssertionError(picks)


@pytest.mark.parametrize("tuning", [False, True])
@pytest.mark.parametrize("examples", SIZES)
def test_picks_are_valid_for_any_amount_of_data(examples: int, tuning: bool) -> None:
    for picks in KINDS:
        config = settled(examples, picks, UserSettings(tuning=tuning))
        assert config.training.steps >= config.validation.every
        assert config.training.schedule.warmup_steps < config.training.steps
        assert config.training.patience >= 2


def test_more_data_gets_a_larger_network_and_less_dropout() -> None:
    for picks in KINDS:
        sizes = [settled(examples, picks).model for examples in SIZES]
        for smaller, larger in itertools.pairwise(sizes):
            assert smaller.width <= larger.width
            assert smaller.vocab_size <= larger.vocab_size
            assert smaller.dropout >= larger.dropout


def test_what_has_learned_before_is_trained_shorter_and_more_gently() -> None:
    for picks in KINDS:
        fresh, tuned = settled(5000, picks), settled(5000, picks, UserSettings(tuning=True))
        assert tuned.training.steps < fresh.training.steps
        assert (tuned.training.schedule.learning_rate or 0) < (fresh.training.schedule.learning_rate or 0)
        settings = {pick.setting for pick in picks(CorpusStats(5000, 300_000), UserSettings(tuning=True))}
        assert not settings & {"model.width", "model.vocab_size", "model.layers"}


def test_every_pick_says_why() -> None:
    for picks in KINDS:
        for pick in picks(CorpusStats(29_000, 3_600_000), UserSettings()):
            assert pick.why
            assert not pick.why.endswith(".")


def test_nothing_is_held_out_where_there_is_validation_data() -> None:
    for picks in KINDS:
        assert "data.validation_fraction" not in {
            pick.setting for pick in picks(CorpusStats(9, 90), UserSettings(validation=True))
        }


def test_a_model_to_start_from_is_noticed() -> None:
    assert user_settings([ConfigSource("", {"training": {"start_from": "runs/x"}})]).tuning
    assert not user_settings([]).tuning
