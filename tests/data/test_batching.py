"""Batches: each example once, within the budget, with few pads, in an order that can be taken up anywhere."""

from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from regard.data.batching import BATCH_OVERHEAD, BatchSampler, DataPosition, split_by_budget

LENGTHS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=60).map(
    lambda rows: np.array(rows, dtype=np.int64).T
)


@given(lengths=LENGTHS, tokens=st.integers(1, 200), epoch=st.integers(0, 3))
def test_each_example_comes_once_an_epoch_and_batches_keep_the_budget(
    lengths: NDArray[np.int64], tokens: int, epoch: int
) -> None:
    batches = BatchSampler(lengths, tokens).epoch(epoch)
    assert sorted(np.concatenate(batches).tolist()) == list(range(lengths.shape[1]))
    for examples in batches:
        size = len(examples) * lengths[:, examples].max()
        assert size <= tokens or len(examples) == 1


def rising(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return lengths[:, np.argsort(lengths.max(0), kind="stable")]


@given(lengths=LENGTHS.map(rising), tokens=st.integers(1, 200))
def test_runs_follow_one_another_and_of_all_possible_ends_none_has_a_larger_share(
    lengths: NDArray[np.int64], tokens: int
) -> None:
    runs = list(split_by_budget(lengths, tokens))
    assert [start for start, _ in runs] == [0, *(end for _, end in runs[:-1])]
    assert runs[-1][1] == lengths.shape[1]

    def share(start: int, end: int) -> float:
        run = lengths[:, start:end]
        return float(run.sum() / ((end - start) * run.max(1).sum() + BATCH_OVERHEAD * tokens * 2))

    for start, end in runs:
        for other in range(start + 1, lengths.shape[1] + 1):
            if (other - start) * lengths[:, start:other].max() <= tokens:
                assert share(start, other) <= share(start, end) + 1e-12


def test_examples_of_equal_lengths_fill_their_batches() -> None:
    lengths = np.full((2, 1000), 7)
    assert [end - start for start, end in split_by_budget(lengths, 70)] == [10] * 100


def natural_lengths(count: int) -> NDArray[np.int64]:
    """Lengths like those of sentences and their translations."""
    random = np.random.default_rng(0)
    source = random.gamma(6, 2.5, count).astype(np.int64) + 1
    return np.stack([source, np.maximum(1, source + random.normal(0, 2, count)).astype(np.int64)])


def test_few_tokens_are_pads() -> None:
    lengths = natural_lengths(30_000)
    padded = sum(len(batch) * int(lengths[:, batch].max(1).sum()) for batch in BatchSampler(lengths, 4096).epoch(0))
    assert 1 - lengths.sum() / padded < 0.03


def test_a_few_long_sentences_do_not_fill_batches_with_pads() -> None:
    random = np.random.default_rng(0)
    source = random.lognormal(2.0, 0.4, 28_000).astype(np.int64) + 1  # everyday sentences: short, with a long tail
    lengths = np.stack([source, np.maximum(1, source * random.lognormal(0, 0.2, 28_000)).astype(np.int64)])
    batches = BatchSampler(lengths, 4096).epoch(0)
    padded = sum(len(batch) * int(lengths[:, batch].max(1).sum()) for batch in batches)
    assert 1 - lengths.sum() / padded < 0.05
    assert len(batches) < 1.12 * lengths.max(0).sum() / 4096  # at the cost of few batches more


def test_epochs_differ_and_seeds_differ_and_each_repeats() -> None:
    lengths = natural_lengths(500)

    def order(seed: int, epoch: int) -> list[int]:
        return [int(n) for n in np.concatenate(BatchSampler(lengths, 256, seed).epoch(epoch))]

    assert order(0, 0) == order(0, 0)
    assert order(0, 0) != order(0, 1)
    assert order(0, 0) != order(1, 0)


@given(start=st.integers(0, 80))
def test_a_place_is_enough_to_go_on(start: int) -> None:
    batches = BatchSampler(natural_lengths(200), 256, seed=3)
    whole = list(islice(batches.iterate(), 100))
    place = whole[start - 1][0] if start else DataPosition()
    for (here, expected), (there, resumed) in zip(whole[start:], batches.iterate(place), strict=False):
        assert here == there
        assert expected.tolist() == resumed.tolist()


@pytest.mark.parametrize("world", [2, 3])
def test_processes_share_the_batches_of_one(world: int) -> None:
    lengths = natural_lengths(400)
    alone = BatchSampler(lengths, 256).epoch(2)
    shares = [BatchSampler(lengths, 256, rank=rank, world_size=world).epoch(2) for rank in range(world)]
    assert len({len(share) for share in shares}) == 1
    together = [share[n].tolist() for n in range(len(shares[0])) for share in shares]
    assert together == [batch.tolist() for batch in alone[: len(together)]]
    assert len(alone) - len(together) < world
