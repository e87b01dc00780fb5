"""Pairs: storing, length filter, padding and batches for teacher forcing."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.config import SpecialTokensConfig
from regard.config.data import TokenizerConfig
from regard.data.batching import make_pair_batch, pad_sequences
from regard.data.prepare_pairs import LengthFilter, store_pairs
from regard.data.readers.base import Pair
from regard.data.store import TokenStore, open_store
from regard.data.tokenizer import train_tokenizer

PAIRS = [Pair("abc", "ab"), Pair("a", "abcabc"), Pair("c" * 9, "c"), Pair("a" * 30, "b" * 30), Pair("b", "c")]
TOKENIZER = train_tokenizer(["abc"], TokenizerConfig(kind="character", byte_fallback=False))  # a, b, c are 4, 5, 6


@pytest.fixture
def store(tmp_path: Path) -> TokenStore:
    store_pairs(
        tmp_path / "pairs",
        PAIRS,
        TOKENIZER,
        LengthFilter(max_length=20, max_ratio=2, lenient_length=6),
        {"made": "here"},
    )
    store = open_store(tmp_path / "pairs")
    assert store is not None
    return store


def test_rejected_pairs_are_counted_by_reason(store: TokenStore) -> None:
    assert store.counts == {"read": 5, "kept": 3, "unequal lengths": 1, "too long": 1}
    assert [row.tolist() for row in map(store.columns[0].__getitem__, range(3))] == [[4, 5, 6], [4], [5]]


def test_empty_pairs_are_rejected() -> None:
    assert LengthFilter().reject_reason([], [1]) == "empty"
    assert LengthFilter().reject_reason([1], [1]) is None


def test_target_is_shifted_right(store: TokenStore) -> None:
    batch = make_pair_batch(store, np.array([0, 2]), SpecialTokensConfig())
    assert batch.source.tolist() == [[4, 5, 6, 3], [5, 3, 0, 0]]
    assert batch.source_mask.tolist() == [[True] * 4, [True, True, False, False]]
    assert batch.target.tolist() == [[2, 4, 5], [2, 6, 0]]
    assert batch.labels.tolist() == [[4, 5, 3], [6, 3, 0]]
    assert batch.target_mask.tolist() == [[True] * 3, [True, True, False]]


@given(
    rows=st.lists(st.lists(st.integers(4, 90), max_size=6), min_size=1, max_size=6),
    before=st.lists(st.just(2), max_size=2),
    after=st.lists(st.just(3), max_size=2),
)
def test_padding_equals_row_by_row(rows: list[list[int]], before: list[int], after: list[int]) -> None:
    ids, real = pad_sequences([np.array(row, np.uint16) for row in rows], before=before, after=after, pad_id=0)
    whole = [[*before, *row, *after] for row in rows]
    assert ids.dtype == np.int64
    assert [row[keep].tolist() for row, keep in zip(ids, real, strict=True)] == whole
    assert ids.shape[1] == max(map(len, whole))
    assert not ids[~real].any()


def test_progress_counts_pairs(tmp_path: Path) -> None:
    seen: list[int] = []
    store_pairs(tmp_path / "pairs", PAIRS * 1000, TOKENIZER, LengthFilter(), {}, seen.append)
    assert seen == [4096, 5000]
