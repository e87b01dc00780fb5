"""Schedules: formulas of learning rates, warmup and minimum, and batches per update."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.config import WsdScheduleConfig
from regard.training.schedules import (
    batches_of_update,
    build_schedule,
    constant,
    cosine,
    inverse_square_root,
    paper_peak,
    updates_of_batches,
    warmup_stable_decay,
)


@given(step=st.integers(1, 200_000), width=st.sampled_from([128, 512, 1024]), warmup=st.integers(1, 8000))
def test_inverse_sqrt_is_the_formula_of_the_paper(step: int, width: int, warmup: int) -> None:
    learning_rate = inverse_square_root(paper_peak(width, warmup), warmup)(step)
    assert learning_rate == pytest.approx(width**-0.5 * min(step**-0.5, step * warmup**-1.5))


@given(step=st.integers(1, 500), warmup=st.integers(0, 50))
def test_warmup_rises_to_the_peak(step: int, warmup: int) -> None:
    stable = warmup_stable_decay(0.3, warmup, 600, 50)
    for learning_rate in (inverse_square_root(0.3, warmup), cosine(0.3, warmup, 400), constant(0.3, warmup), stable):
        assert 0 <= learning_rate(step) <= 0.3 + 1e-12
        if warmup:
            assert learning_rate(warmup) == pytest.approx(0.3)
        if step < warmup:
            assert learning_rate(step) < learning_rate(step + 1)


def test_cosine_ends_at_its_minimum() -> None:
    learning_rate = cosine(1.0, 10, 100, minimum=0.1)
    assert learning_rate(100) == pytest.approx(0.1)
    assert learning_rate(10_000) == pytest.approx(0.1)
    assert learning_rate(55) == pytest.approx(0.55)


def test_warmup_stable_decay_is_constant_and_then_linear_to_its_minimum() -> None:
    config = WsdScheduleConfig(learning_rate=1.0, warmup_steps=10, decay_fraction=0.4, min_learning_rate=0.2)
    learning_rate = build_schedule(config, width=8, steps=100)
    assert {learning_rate(step) for step in range(10, 61)} == {1.0}
    assert learning_rate(80) == pytest.approx(0.6)
    assert learning_rate(100) == learning_rate(1000) == pytest.approx(0.2)


def test_a_decay_that_overlaps_warmup_stays_below_both() -> None:
    learning_rate = warmup_stable_decay(1.0, 50, 100, decay=100)
    assert learning_rate(25) == pytest.approx(0.5)
    assert learning_rate(60) == pytest.approx(0.4)


@given(accumulation=st.integers(1, 20), ramp=st.integers(0, 40), batches=st.integers(1, 300))
def test_a_ramp_grows_by_one_to_the_full_batch_and_uses_the_same_batches(
    accumulation: int, ramp: int, batches: int
) -> None:
    counts = [batches_of_update(step, accumulation, ramp) for step in range(1, ramp + 400)]
    assert counts[0] == (1 if ramp else accumulation)
    assert set(counts[ramp:]) == {accumulation}
    assert all(after - before >= 0 for before, after in pairwise(counts))
    assert ramp < accumulation or all(after - before <= 1 for before, after in pairwise(counts))
    steps = updates_of_batches(batches, accumulation, ramp)
    assert sum(counts[: steps - 1]) < batches <= sum(counts[:steps])
