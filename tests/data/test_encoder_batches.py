"""Encoder inputs within the maximum length, and passages: every token once per epoch, between start and end tokens."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.config import SpecialTokensConfig
from regard.data.batching import CorpusWeights, DataPosition
from regard.data.encoder_batches import InputTemplate, JoinedPassages, PassagePlan, SeparatePassages
from regard.data.store import TokenColumn
from regard.errors import DataError

ids = st.lists(st.integers(10, 99), max_size=20)
words = st.lists(st.lists(st.integers(10, 99), max_size=5), max_size=12)


@given(ids, ids, st.integers(4, 30))
def test_pairs_fit_and_the_longer_text_is_truncated_first(
    first_text: list[int], second_text: list[int], max_length: int
) -> None:
    wrapped = InputTemplate(2, 3, max_length).wrap(first_text, second_text)
    assert len(wrapped.ids) <= max_length
    assert wrapped.truncated == (len(first_text) + len(second_text) + 3 > max_length)
    if wrapped.truncated:
        assert len(wrapped.ids) == max_length
    second = wrapped.ids[len(wrapped.ids) - wrapped.second_length :]
    first = wrapped.ids[: len(wrapped.ids) - wrapped.second_length]
    assert (first[0], first[-1], second[-1]) == (2, 3, 3)
    kept, of_other = first[1:-1], second[:-1]
    assert first_text[: len(kept)] == kept
    assert second_text[: len(of_other)] == of_other
    if len(kept) < len(first_text):
        assert len(kept) >= len(of_other) - 1
    if len(of_other) < len(second_text):
        assert len(of_other) >= len(kept) - 1


@given(words, st.integers(4, 12))
def test_long_sentences_are_split_between_words(sentence: list[list[int]], max_length: int) -> None:
    rows = list(InputTemplate(2, 3, max_length).wrap_words(sentence, unknown=1))
    assert all(len(row) <= max_length and (row[0], row[-1]) == (2, 3) for row, _ in rows)
    firsts = [row[place] for row, places in rows for place in places]
    assert firsts == [pieces[0] if pieces else 1 for pieces in sentence]
    text = [number for row, _ in rows for number in row[1:-1]]
    assert text == [number for pieces in sentence for number in (pieces[: max_length - 2] or [1])]


SPECIAL = SpecialTokensConfig()
LENGTHS = [5, 1, 12, 7, 30, 2, 9]
COLUMN = TokenColumn(np.arange(10, 10 + sum(LENGTHS), dtype=np.uint16), np.cumsum(LENGTHS))


def rows(plan: PassagePlan) -> list[list[int]]:
    batch = plan.read(0, 1)
    assert batch.ids.shape == plan.shape
    assert batch.mask.sum(1).tolist() == plan.lengths.tolist()
    return [row[mask].tolist() for row, mask in zip(batch.ids, batch.mask, strict=True)]


@pytest.mark.parametrize("passage_type", [JoinedPassages, SeparatePassages])
@pytest.mark.parametrize("length", [3, 8, 100])
def test_every_token_occurs_once_per_epoch_between_start_and_end(
    passage_type: type[JoinedPassages | SeparatePassages], length: int
) -> None:
    source = passage_type(COLUMN, length, max_tokens=40, special=SPECIAL, seed=3)
    epoch = [batch for _, (_, batch) in zip(range(source.batches_per_epoch), source.iterate(), strict=False)]
    for batches in (epoch, list(source.validation_batches())):
        passages = [row for batch in batches for row in rows(batch)]
        assert all(row[0] == SPECIAL.start and row[-1] == SPECIAL.end for row in passages)
        assert all(len(row) <= length for row in passages)
        assert sorted(number for row in passages for number in row if number > 3) == COLUMN.ids.tolist()
        assert all(np.prod(batch.shape) <= max(40, length) for batch in batches)


def test_separate_documents_share_no_passage() -> None:
    document = {number: n for n in range(len(LENGTHS)) for number in COLUMN[n].tolist()}
    for batch in SeparatePassages(COLUMN, 8, 40, SPECIAL).validation_batches():
        for row in rows(batch):
            assert len({document[number] for number in row[1:-1]}) == 1


def test_joined_documents_are_separated_by_end_tokens() -> None:
    (batch,) = JoinedPassages(COLUMN, 100, 200, SPECIAL).validation_batches()
    (row,) = rows(batch)
    assert row[:10] == [2, 10, 11, 12, 13, 14, 3, 15, 3, 16]


@pytest.mark.parametrize("passage_type", [JoinedPassages, SeparatePassages])
def test_iteration_resumes_in_the_middle(passage_type: type[JoinedPassages | SeparatePassages]) -> None:
    source = passage_type(COLUMN, 8, 20, SPECIAL, seed=5)
    uninterrupted = [rows(batch) for _, (_, batch) in zip(range(12), source.iterate(), strict=False)]
    positions = [position for _, (position, _) in zip(range(12), source.iterate(), strict=False)]
    resumed = [rows(batch) for _, (_, batch) in zip(range(8), source.iterate(positions[3]), strict=False)]
    assert resumed == uninterrupted[4:]
    assert positions[0] == DataPosition(0, 1)


def test_empty_corpus_is_an_error() -> None:
    with pytest.raises(DataError) as error:
        JoinedPassages(TokenColumn(np.empty(0, np.uint16), np.empty(0, np.int64)), 8, 20, SPECIAL)
    assert str(error.value) == "there is no text to make batches of; pass some."


@pytest.mark.parametrize("passage_type", [JoinedPassages, SeparatePassages])
def test_passages_of_weighted_corpora(passage_type: type[JoinedPassages | SeparatePassages]) -> None:
    source = passage_type(COLUMN, 8, 40, SPECIAL, seed=3, weights=CorpusWeights([4, 7], [1.0, 2.0]))
    epoch = [plan for _, (_, plan) in zip(range(source.batches_per_epoch), source.iterate(), strict=False)]
    tokens = sorted(number for plan in epoch for row in rows(plan) for number in row if number > 3)
    once, twice = COLUMN.ids[: sum(LENGTHS[:4])].tolist(), COLUMN.ids[sum(LENGTHS[:4]) :].tolist()
    assert tokens == sorted([*once, *twice, *twice])
