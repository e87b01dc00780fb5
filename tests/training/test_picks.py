"""Settings picked for the data: they grow with it, and they are valid whatever its size."""

import itertools

import pytest

from regard.config import Config, Source, check
from regard.text.scan import Scan
from regard.training.picks import Pick, picks_for_pairs, picks_for_text, source_of

KINDS = {picks_for_pairs: "encoder-decoder", picks_for_text: "decoder-only"}
SIZES = [1, 10, 1000, 29_000, 300_000, 10_000_000]


def settled(picks: list[Pick], kind: str) -> Config:
    return check([Source("kind", {"model": {"kind": kind}}), source_of(picks)])


@pytest.mark.parametrize("examples", SIZES)
def test_picks_are_valid_for_any_amount_of_data(examples: int) -> None:
    for picks, kind in KINDS.items():
        config = settled(picks(Scan(examples, 100 * examples)), kind)
        assert config.training.steps >= config.validation.every
        assert config.training.schedule.warmup < config.training.steps


def test_more_data_gets_a_larger_network_a_larger_vocabulary_and_less_dropout() -> None:
    for picks, kind in KINDS.items():
        sizes = [settled(picks(Scan(examples, 100 * examples)), kind).model for examples in SIZES]
        for smaller, larger in itertools.pairwise(sizes):
            assert smaller.width <= larger.width
            assert smaller.vocabulary <= larger.vocabulary
            assert smaller.dropout >= larger.dropout


def test_every_pick_says_why() -> None:
    for pick in [*picks_for_pairs(Scan(29_000, 3_600_000)), *picks_for_text(Scan(40_000, 1_100_000))]:
        assert pick.why
        assert not pick.why.endswith(".")


def test_nothing_is_held_out_where_there_is_validation_data() -> None:
    assert "data.held_out" not in {pick.setting for pick in picks_for_pairs(Scan(9, 90), hold_out=False)}
