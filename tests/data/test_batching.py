"""Batches by length: every example once, within the budget, with little padding, resumable."""

from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from regard.data.batching import BATCH_OVERHEAD, BatchSampler, DataPosition, _as_int16, split_by_budget

LENGTHS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=60).map(
    lambda rows: np.array(rows, dtype=np.int64).T
)


@given(lengths=LENGTHS, tokens=st.integers(1, 200), epoch=st.integers(0, 3))
def test_each_example_is_in_one_batch_within_the_budget(lengths: NDArray[np.int64], tokens: int, epoch: int) -> None:
    batches = BatchSampler(lengths, tokens).epoch(epoch)
    assert sorted(np.concatenate(batches).tolist()) == list(range(lengths.shape[1]))
    for examples in batches:
        size = len(examples) * lengths[:, examples].max()
        assert size <= tokens or len(examples) == 1


def sort_by_length(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return lengths[:, np.argsort(lengths.max(0), kind="stable")]


@given(lengths=LENGTHS.map(sort_by_length), tokens=st.integers(1, 200))
def test_runs_are_consecutive_and_of_maximal_efficiency(lengths: NDArray[np.int64], tokens: int) -> None:
    runs = list(split_by_budget(lengths, tokens))
    assert [start for start, _ in runs] == [0, *(end for _, end in runs[:-1])]
    assert runs[-1][1] == lengths.shape[1]

    def efficiency(start: int, end: int) -> float:
        run = lengths[:, start:end]
        return float(run.sum() / ((end - start) * run.max(1).sum() + BATCH_OVERHEAD * tokens * 2))

    for start, end in runs:
        for other in range(start + 1, lengths.shape[1] + 1):
            if (other - start) * lengths[:, start:other].max() <= tokens:
                assert efficiency(start, other) <= efficiency(start, end) + 1e-12


def test_examples_of_equal_length_fill_batches() -> None:
    lengths = np.full((2, 1000), 7)
    assert [end - start for start, end in split_by_budget(lengths, 70)] == [10] * 100


def natural_lengths(count: int) -> NDArray[np.int64]:
    """Return lengths like those of sentences and their translations."""
    random = np.random.default_rng(0)
    source = random.gamma(6, 2.5, count).astype(np.int64) + 1
    return np.stack([source, np.maximum(1, source + random.normal(0, 2, count)).astype(np.int64)])


def test_padding_is_below_three_percent() -> None:
    lengths = natural_lengths(30_000)
    padded = sum(len(batch) * int(lengths[:, batch].max(1).sum()) for batch in BatchSampler(lengths, 4096).epoch(0))
    assert 1 - lengths.sum() / padded < 0.03


def test_long_sentences_add_little_padding() -> None:
    random = np.random.default_rng(0)
    source = random.lognormal(2.0, 0.4, 28_000).astype(np.int64) + 1  # everyday sentences: short, with a long tail
    lengths = np.stack([source, np.maximum(1, source * random.lognormal(0, 0.2, 28_000)).astype(np.int64)])
    batches = BatchSampler(lengths, 4096).epoch(0)
    padded = sum(len(batch) * int(lengths[:, batch].max(1).sum()) for batch in batches)
    assert 1 - lengths.sum() / padded < 0.05
    assert len(batches) < 1.12 * lengths.max(0).sum() / 4096  # at the cost of a few more batches


def test_order_follows_from_seed_and_epoch() -> None:
    lengths = natural_lengths(500)

    def order(seed: int, epoch: int) -> list[int]:
        return [int(n) for n in np.concatenate(BatchSampler(lengths, 256, seed).epoch(epoch))]

    assert order(0, 0) == order(0, 0)
    assert order(0, 0) != order(0, 1)
    assert order(0, 0) != order(1, 0)


@given(start=st.integers(0, 80))
def test_iteration_resumes_at_a_position(start: int) -> None:
    batches = BatchSampler(natural_lengths(200), 256, seed=3)
    whole = list(islice(batches.iterate(), 100))
    position = whole[start - 1][0] if start else DataPosition()
    for (expected_position, expected), (resumed_position, resumed) in zip(
        whole[start:], batches.iterate(position), strict=False
    ):
        assert expected_position == resumed_position
        assert expected.tolist() == resumed.tolist()


@pytest.mark.parametrize("world_size", [2, 3])
def test_processes_divide_the_batches(world_size: int) -> None:
    lengths = natural_lengths(400)
    alone = BatchSampler(lengths, 256).epoch(2)
    parts = [BatchSampler(lengths, 256, rank=rank, world_size=world_size).epoch(2) for rank in range(world_size)]
    assert len({len(efficiency) for efficiency in parts}) == 1
    together = [efficiency[n].tolist() for n in range(len(parts[0])) for efficiency in parts]
    assert together == [batch.tolist() for batch in alone[: len(together)]]
    assert len(alone) - len(together) < world_size


@pytest.mark.parametrize("longest", [32_766, 32_767, 32_768, 40_000, 65_536])
def test_sort_keys_keep_their_values_in_16_bits(longest: int) -> None:
    keys = np.array([longest, 0, -longest, 5])
    assert _as_int16(keys).tolist() == keys.tolist()
    assert (_as_int16(keys).dtype == np.int16) == (longest < 2**15)
