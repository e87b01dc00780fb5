"""Batches of which each process reads only its rows: the same rows, padded in the same way, as of the whole batch."""

import json
from collections.abc import Iterator
from dataclasses import fields, replace
from functools import cache
from itertools import islice
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.config import ConfigSource, TokenizerConfig, load_sources, validate_sources
from regard.data.batching import DataPosition
from regard.data.preparation import PreparedData, PreparedSplit
from regard.data.store import TokenColumn, TokenStore
from regard.data.tokenizer import Tokenizer, mask_token_id, train_tokenizer
from regard.models import build
from regard.training.batches import Batch
from regard.training.distributed import ProcessGroup
from regard.training.optimizers import total_targets
from regard.training.task import NetworkTask, get_task

LABELS = ("a", "b", "c")
WORDS = ["uno", "due", "tre", "quattro", "cinque", "sei", "sette"]
TASKS = {  # what each is trained with, and the columns of its store
    "translation": [],
    "dropout": ["tokenizer.dropout=0.5"],
    "gpt": [],
    "packed": ["data.documents=separate"],
    "elmo": [],
    "masked": [],
    "whole words": ["training.masking.whole_words=true"],
    "passages": ["data.documents=separate"],
    "classify": ["model.segments=2"],
    "tag": [],
}
TASK_OF = {
    "dropout": "translation",
    "packed": "gpt",
    "whole words": "masked",
    "passages": "masked",
}
POSITIONS = {"gpt", "packed", "elmo", "masked", "whole words"}  # a block reads the token before it as well


class SpiedIds(np.ndarray[Any, Any]):
    """Ids that note which of them are read."""

    read: set[int]

    def __getitem__(self, key: Any) -> Any:
        self.read.update(np.arange(len(self))[key].ravel().tolist())
        return np.asarray(self)[key]


def spied(ids: NDArray[Any]) -> SpiedIds:
    view = ids.view(SpiedIds)
    view.read = set()
    return view


@cache
def tokenizer() -> Tokenizer:
    return train_tokenizer([" ".join(WORDS)] * 2, TokenizerConfig(), 300, mask_token=True)


def corpus(task: str) -> TokenStore:
    """A store of 60 examples; every token is read through a spy."""
    random = np.random.default_rng(0)

    def texts() -> list[list[int]]:
        return [tokenizer().encode(" ".join(random.choice(WORDS, random.integers(1, 6)))) for _ in range(60)]

    rows = [texts()]
    if task in ("translation", "dropout"):
        rows.append(texts())
    elif task == "classify":
        rows += [[[int(n)] for n in random.integers(3, size=60)], [[int(n)] for n in random.integers(2, size=60)]]
    elif task == "tag":
        rows.append([[1 + n % 3 if n % 2 == 0 else 0 for n in range(len(row))] for row in rows[0]])
    elif task in ("masked", "whole words", "passages"):
        rows[0][3:9] = [[1] * len(row) for row in rows[0][3:9]]  # unknown tokens, which are not masked
    columns = [
        TokenColumn(spied(np.array([n for row in side for n in row], np.uint16)), np.cumsum([*map(len, side)]))
        for side in rows
    ]
    return TokenStore(Path(), tuple(columns), {})


def bind(task: str, store: TokenStore) -> Any:
    definition = get_task(TASK_OF.get(task, task))
    assert isinstance(definition, NetworkTask)
    settings = ["model.vocab_size=300", "model.width=16", "model.layers=1", "training.batch_tokens=80"]
    settings.append("data.context_length=12")
    if task in ("classify", "tag"):
        settings.append(f"model.head.labels={json.dumps(LABELS)}")
    source = ConfigSource("task", definition.default_settings())
    config = validate_sources([source, *load_sources(None, [*settings, *TASKS[task]])])
    special = config.tokens.model_copy(update={"mask": mask_token_id(tokenizer())})
    config = config.model_copy(update={"tokens": special})
    prepared = PreparedData(tokenizer(), PreparedSplit(store), PreparedSplit(store), None, LABELS)
    return definition.bind(config, prepared, build(config.model))


def positions_read(store: TokenStore) -> Iterator[tuple[int, int]]:
    """The column and position of all tokens that were read since the last call."""
    for n, column in enumerate(store.columns):
        assert isinstance(column.ids, SpiedIds)
        yield from ((n, position) for position in column.ids.read)
        column.ids.read.clear()


@pytest.mark.parametrize("task", TASKS)
def test_rows_that_a_process_reads_are_those_of_the_whole_batch(task: str) -> None:
    store = corpus(task)
    bound = bind(task, store)
    for _, batch in islice(bound.batches(DataPosition()), 12):
        assert type(batch).__name__ == "LazyBatch"
        whole = batch.shard(0, 1)
        assert (batch.examples, batch.targets) == (whole.examples, whole.targets)
        assert bound.flops(batch) > 0
        for world_size in (2, 3, 70):  # the last is more than there are rows
            for rank in (0, 1, world_size - 1):
                part, expected = batch.shard(rank, world_size), whole.shard(rank, world_size)
                assert part.examples == expected.examples
                assert_same_rows(part, expected, same_padding=task != "dropout")


def assert_same_rows(part: Batch, expected: Batch, *, same_padding: bool) -> None:
    for field in fields(expected):
        rows, expected_rows = getattr(part, field.name), getattr(expected, field.name)
        assert isinstance(rows, Tensor) == isinstance(expected_rows, Tensor)
        if isinstance(rows, Tensor):
            if not same_padding:  # how long the rows of other processes are is not known
                assert not expected_rows[:, rows.size(1) :].any()
                expected_rows = expected_rows[:, : rows.size(1)]
            torch.testing.assert_close(rows, expected_rows, rtol=0, atol=0)


@pytest.mark.parametrize("task", TASKS)
def test_a_process_reads_no_tokens_of_the_rows_of_others(task: str) -> None:
    store = corpus(task)
    batches = islice(bind(task, store).batches(DataPosition()), 8)
    set(positions_read(store))  # what a task reads at the start
    for _, batch in batches:
        assert not set(positions_read(store))  # nothing is read before a process takes its rows
        batch.shard(0, 1)
        whole = set(positions_read(store))
        assert whole
        parts = []
        for rank in range(3):
            batch.shard(rank, 3)
            parts.append(set(positions_read(store)))
        assert set.union(*parts) == whole
        twice = sum(map(len, parts)) - len(whole)
        assert twice == 0 or (task in POSITIONS and twice <= 2 * batch.examples)


class ThreadGroup(ProcessGroup):
    """One of several processes, which are threads here; `totals` are what they add."""

    def sum(self, values: Tensor) -> Tensor:
        totals[self.rank] = int(values)
        barrier.wait(timeout=20)
        return torch.tensor(sum(totals.values()))


totals: dict[int, int] = {}
barrier = Barrier(3)


@pytest.mark.parametrize("task", TASKS)
def test_processes_know_the_number_of_targets_of_the_whole_batch(task: str) -> None:
    bound = bind(task, corpus(task))
    for _, batch in islice(bound.batches(DataPosition()), 4):
        expected, counts = batch.shard(0, 1).targets, dict[int, int]()

        def count(rank: int, batch: Any = batch, counts: dict[int, int] = counts) -> None:
            counts[rank] = total_targets(replace(batch), ThreadGroup(rank, 3))

        threads = [Thread(target=count, args=(rank,)) for rank in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert counts == dict.fromkeys(range(3), expected)
        assert total_targets(batch, ProcessGroup()) == expected
