"""Passages for encoders: every token once an epoch, each passage from its start to its end."""

import numpy as np
import pytest

from regard.config import SpecialTokensConfig
from regard.data.batching import DataPosition
from regard.data.passages import JoinedPassages, PassageBatch, SeparatePassages
from regard.data.store import TokenColumn
from regard.errors import DataError

SPECIAL = SpecialTokensConfig()
LENGTHS = [5, 1, 12, 7, 30, 2, 9]
COLUMN = TokenColumn(np.arange(10, 10 + sum(LENGTHS), dtype=np.uint16), np.cumsum(LENGTHS))


def rows(batch: PassageBatch) -> list[list[int]]:
    return [row[real].tolist() for row, real in zip(batch.ids, batch.mask, strict=True)]


@pytest.mark.parametrize("kind", [JoinedPassages, SeparatePassages])
@pytest.mark.parametrize("length", [3, 8, 100])
def test_every_token_comes_once_an_epoch_between_start_and_end(
    kind: type[JoinedPassages | SeparatePassages], length: int
) -> None:
    plan = kind(COLUMN, length, max_tokens=40, special=SPECIAL, seed=3)
    epoch = [batch for _, (_, batch) in zip(range(plan.batches_per_epoch), plan.iterate(), strict=False)]
    for batches in (epoch, list(plan.validation_batches())):
        passages = [row for batch in batches for row in rows(batch)]
        assert all(row[0] == SPECIAL.start and row[-1] == SPECIAL.end for row in passages)
        assert all(len(row) <= length for row in passages)
        assert sorted(number for row in passages for number in row if number > 3) == COLUMN.ids.tolist()
        assert all(batch.ids.size <= max(40, length) for batch in batches)


def test_documents_that_are_apart_share_no_passage() -> None:
    document = {number: n for n in range(len(LENGTHS)) for number in COLUMN[n].tolist()}
    for batch in SeparatePassages(COLUMN, 8, 40, SPECIAL).validation_batches():
        for row in rows(batch):
            assert len({document[number] for number in row[1:-1]}) == 1


def test_joined_documents_have_an_end_between_them() -> None:
    (batch,) = JoinedPassages(COLUMN, 100, 200, SPECIAL).validation_batches()
    (row,) = rows(batch)
    assert row[:10] == [2, 10, 11, 12, 13, 14, 3, 15, 3, 16]


@pytest.mark.parametrize("kind", [JoinedPassages, SeparatePassages])
def test_a_place_in_the_middle_gives_the_same_batches(kind: type[JoinedPassages | SeparatePassages]) -> None:
    plan = kind(COLUMN, 8, 20, SPECIAL, seed=5)
    whole = [rows(batch) for _, (_, batch) in zip(range(12), plan.iterate(), strict=False)]
    places = [place for _, (place, _) in zip(range(12), plan.iterate(), strict=False)]
    again = [rows(batch) for _, (_, batch) in zip(range(8), plan.iterate(places[3]), strict=False)]
    assert again == whole[4:]
    assert places[0] == DataPosition(0, 1)


def test_no_text_is_a_sentence() -> None:
    with pytest.raises(DataError) as error:
        JoinedPassages(TokenColumn(np.empty(0, np.uint16), np.empty(0, np.int64)), 8, 20, SPECIAL)
    assert str(error.value) == "there is no text to make batches of; pass some."
