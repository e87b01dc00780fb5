"""Batches built ahead: same numbers, same position in the data, and errors at their place."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from regard.data.batching import DataPosition
from regard.training.batches import Batch, Prefetcher, TokenBatch, prefetched
from small_runs import numbers, run, write_pairs

META = torch.device("meta")


def batches() -> Iterator[tuple[DataPosition, Batch]]:
    for number in itertools.count():
        ids = torch.full((4, 3), number)
        yield DataPosition(0, number + 1), TokenBatch(ids, ids)


def test_batches_arrive_in_order_and_on_the_device() -> None:
    items = prefetched(batches(), None, 1, 2, META)
    for number, (position, batch) in enumerate(itertools.islice(items, 5)):
        assert position == DataPosition(0, number + 1)
        local = batch.memo[1, 2, META]  # computed by the thread
        assert local is batch.local(1, 2, META)
        assert isinstance(local, TokenBatch)
        assert local.target.device == META
        assert local.host is not None
        assert local.host.target.tolist() == [[number] * 3] * 2


def test_on_a_cpu_nothing_is_built_ahead_by_default() -> None:
    source = batches()
    assert prefetched(source, None, 0, 1, torch.device("cpu")) is source


def test_an_error_is_raised_at_its_place() -> None:
    def failing() -> Iterator[int]:
        yield 1
        yield 2
        raise OSError("the disk is gone")

    items = Prefetcher(failing(), 5)
    assert [next(items), next(items)] == [1, 2]
    with pytest.raises(OSError, match="the disk is gone"):
        next(items)
    assert list(items) == []


def test_the_end_of_the_items_is_the_end() -> None:
    items = Prefetcher(iter(range(7)), 2, lambda item: item * item)
    assert list(items) == [0, 1, 4, 9, 16, 25, 36]


def test_the_thread_ends_with_its_iterator() -> None:
    items = Prefetcher(itertools.count(), 2)
    next(items)
    thread = items.thread
    del items
    thread.join(timeout=10)
    assert not thread.is_alive()


@pytest.mark.slow
def test_a_run_is_the_same_with_batches_built_ahead_and_blocks_computed_again(tmp_path: Path) -> None:
    data = write_pairs(tmp_path / "pairs.tsv")
    settings = ("tokenizer.dropout=0.1", "training.gradient_accumulation=2", "training.checkpoint_minutes=60")
    plain = run(tmp_path / "plain", data, *settings, "training.steps=9")
    changed = (*settings, "training.prefetch=3", "training.gradient_checkpointing=true")
    halves = run(tmp_path / "halves", data, *changed, "training.steps=4")
    run(halves, data, *changed, "training.steps=9", resume=True)
    steps = [[line for line in numbers(out) if "loss" in line] for out in (plain, halves)]
    assert steps[0] == steps[1]
    assert (halves / "last/model.safetensors").read_bytes() == (plain / "last/model.safetensors").read_bytes()
