"""Epochs in plan shards: small corpora as before, every example once, exact positions, weights, rows of processes."""

from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from regard.config import SpecialTokensConfig
from regard.data.batching import (
    BatchSampler,
    CorpusWeights,
    DataPosition,
    EpochSampler,
    corpus_weights,
    make_pair_batch,
)
from regard.data.language_batches import BlockBatches, PackedBatches, row_lengths
from regard.data.store import TokenColumn, TokenStore

TOKENS = SpecialTokensConfig()


def column(count: int, seed: int) -> TokenColumn:
    random = np.random.default_rng(seed)
    ends = random.integers(1, 30, count).cumsum()
    return TokenColumn(random.integers(4, 99, int(ends[-1])).astype(np.uint16), ends)


COLUMNS = (column(500, 1), column(500, 2))


def epoch_of(sampler: EpochSampler, number: int) -> list[NDArray[np.int64]]:
    batches = []
    for position, examples in sampler.iterate(DataPosition(number)):
        if position.epoch != number:
            break
        batches.append(examples)
    return batches


def flat(batches: list[NDArray[np.int64]]) -> list[int]:
    return [int(example) for example in np.concatenate(batches)]


def test_a_small_corpus_is_planned_as_a_whole() -> None:
    lengths = np.stack([column.lengths for column in COLUMNS]) + 1
    plain = BatchSampler(lengths, 300, seed=7)
    sampler = EpochSampler(COLUMNS, 300, 7, extra_tokens=1)
    assert sampler.batches_per_epoch == len(plain.epoch(0))
    for (position, expected), (other, examples) in islice(zip(plain.iterate(), sampler.iterate(), strict=True), 150):
        assert position == other
        assert expected.tolist() == examples.tolist()


@pytest.mark.parametrize("plan_examples", [64, 100, 499])
def test_plan_shards_have_every_example_once_within_the_budget(plan_examples: int) -> None:
    sampler = EpochSampler(COLUMNS, 300, 7, plan_examples=plan_examples)
    first, second = epoch_of(sampler, 0), epoch_of(sampler, 1)
    lengths = np.stack([column.lengths for column in COLUMNS])
    for batches in (first, second):
        assert sorted(flat(batches)) == list(range(500))
        assert all(len(batch) * lengths[:, batch].max() <= 300 for batch in batches)
    assert flat(first) != flat(second)
    assert abs(sampler.batches_per_epoch - len(first)) <= 0.2 * len(first)


@pytest.mark.parametrize("weights", [None, CorpusWeights([200, 500], [0.5, 2.0])])
def test_resuming_at_any_position_gives_the_same_batches(weights: CorpusWeights | None) -> None:
    def sampler() -> EpochSampler:
        return EpochSampler(COLUMNS, 300, 7, weights=weights, plan_examples=100)

    everything = list(islice(sampler().iterate(), 150))
    used = sampler()
    for start in (0, 1, 17, 40, 77, 120):
        position = everything[start - 1][0] if start else DataPosition()
        for resumed in (sampler(), used):  # with and without known counts
            for (expected, examples), (after, found) in zip(
                everything[start:], resumed.iterate(position), strict=False
            ):
                assert expected == after
                assert examples.tolist() == found.tolist()


def test_a_shard_that_is_skipped_is_not_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = EpochSampler(COLUMNS, 300, 7, plan_examples=100)
    epoch = epoch_of(sampler, 0)
    planned: list[int] = []
    plan = EpochSampler._plan

    def counted(self: EpochSampler, epoch: int, shard: int) -> list[NDArray[np.int64]]:
        planned.append(shard)
        return plan(self, epoch, shard)

    monkeypatch.setattr(EpochSampler, "_plan", counted)
    next(sampler.iterate(DataPosition(0, len(epoch) - 1)))
    assert len(planned) == 1


def test_weights_decide_how_often_examples_occur() -> None:
    weights = CorpusWeights([100, 300, 500], [2.0, 0.25, 1.5])
    sampler = EpochSampler(COLUMNS, 300, 3, weights=weights, plan_examples=128)
    totals = np.zeros(500)
    for epoch in range(8):
        counts = np.bincount(flat(epoch_of(sampler, epoch)), minlength=500)
        assert (counts[:100] == 2).all()
        assert set(counts[100:300]) == {0, 1}
        assert set(counts[300:]) == {1, 2}
        totals += counts
    assert abs(totals[100:300].mean() / 8 - 0.25) < 0.03
    assert abs(totals[300:].mean() / 8 - 1.5) < 0.03
    assert len(set(totals[100:300])) > 2  # drawn again in each epoch
    assert corpus_weights([3, 4], [1.0, 1.0]) is None


# --- the rows of a process --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world_size", [2, 3, 8])
def test_a_process_reads_its_rows_of_pairs_only(world_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    store = TokenStore(Path(), COLUMNS, {})
    examples = np.array([5, 0, 77, 410, 33])
    whole = make_pair_batch(store, examples, TOKENS)
    read: list[int] = []
    gather = TokenColumn.gather

    def counted(self: TokenColumn, rows: NDArray[np.int64]) -> tuple[NDArray[np.integer], NDArray[np.int64]]:
        read.extend(rows)
        return gather(self, rows)

    monkeypatch.setattr(TokenColumn, "gather", counted)
    for rank in range(world_size):
        read.clear()
        part = make_pair_batch(store, examples, TOKENS, rank, world_size)
        assert read == examples[rank::world_size].tolist() * 2
        for name in ("source", "source_mask", "target", "target_mask", "labels"):
            np.testing.assert_array_equal(getattr(part, name), getattr(whole, name)[rank::world_size])


@pytest.mark.parametrize("kind", [BlockBatches, PackedBatches])
@pytest.mark.parametrize("world_size", [2, 3])
def test_a_process_reads_its_rows_of_text_only(kind: type[BlockBatches] | type[PackedBatches], world_size: int) -> None:
    source = kind(COLUMNS[0], 20, 150, TOKENS, 4)
    for _, spans in islice(source.iterate_spans(), 40):
        whole = source.batch(spans)
        assert row_lengths(spans).tolist() == (
            [whole.ids.shape[1]] * len(whole.ids) if whole.mask is None else whole.mask.sum(1).tolist()
        )
        for rank in range(world_size):
            part, expected = source.batch(spans, rank, world_size), whole.rows(rank, world_size)
            for name in ("ids", "labels", "mask", "document_ids"):
                if getattr(expected, name) is None:
                    assert getattr(part, name) is None
                else:
                    np.testing.assert_array_equal(getattr(part, name), getattr(expected, name))
