"""Batches of which each process reads only its rows: the same rows, padded in the same way, as of the whole batch."""

from itertools import islice
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch

from regard.config import ConfigSource, load_sources, validate_sources
from regard.data.batching import DataPosition
from regard.data.preparation import PreparedData, PreparedSplit
from regard.data.store import TokenColumn, TokenStore
from regard.data.tokenizer import Tokenizer
from regard.models import build
from regard.training.task import NetworkTask, get_task

FIELDS = ("target", "labels", "target_mask", "source", "source_mask")


def corpus(columns: int) -> TokenStore:
    random = np.random.default_rng(0)
    ends = [random.integers(1, 9, 60).cumsum() for _ in range(columns)]
    rows = tuple(TokenColumn(random.integers(4, 50, int(end[-1])).astype(np.uint16), end) for end in ends)
    return TokenStore(Path(), rows, {})


@pytest.mark.parametrize("task", ["translation", "gpt", "elmo"])
def test_rows_that_a_process_reads_are_those_of_the_whole_batch(task: str) -> None:
    definition = get_task(task)
    assert isinstance(definition, NetworkTask)
    source = ConfigSource("task", definition.default_settings())
    settings = ["model.vocab_size=50", "model.width=16", "model.layers=1", "training.batch_tokens=60"]
    config = validate_sources([source, *load_sources(None, [*settings, "data.context_length=8"])])
    store = corpus(2 if task == "translation" else 1)
    prepared = PreparedData(cast(Tokenizer, None), PreparedSplit(store), PreparedSplit(store), None)
    bound = definition.bind(config, prepared, build(config.model))
    for _, batch in islice(bound.batches(DataPosition()), 12):
        assert type(batch).__name__ == "LazyBatch"
        whole = batch.shard(0, 1)
        assert (batch.examples, batch.targets) == (whole.examples, whole.targets)
        assert bound.flops(batch) > 0
        for world_size in (2, 3, 70):  # the last is more than there are rows
            for rank in (0, 1, world_size - 1):
                part, expected = batch.shard(rank, world_size), whole.shard(rank, world_size)
                assert part.examples == expected.examples
                for name in FIELDS:
                    rows, expected_rows = getattr(part, name), getattr(expected, name)
                    assert (rows is None) == (expected_rows is None)
                    if rows is not None:
                        torch.testing.assert_close(rows, expected_rows, rtol=0, atol=0)
