"""Preparation: splits that do not overlap, keys that follow content, and counts of what was left out."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.config import Config, load_config
from regard.data.examples import Pair
from regard.data.fingerprint import data_key
from regard.data.preparation import is_held_out
from regard.data.prepare_documents import prepare_documents, split_tail
from regard.data.prepare_pairs import prepare_pairs
from regard.data.stats import pair_stats
from regard.data.store import TokenColumn, TokenStore
from regard.errors import DataError


def no_report(what: str, count: int) -> None:
    pass


def config(data: Path, *settings: str) -> Config:
    return load_config(None, ["model.vocab_size=300", f"data.train.files={data}", *settings])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"source {n % 90}\ttarget {n % 90}\n" for n in range(300)))
    return path


def test_equal_pairs_are_in_the_same_split(data: Path, tmp_path: Path) -> None:
    settings = config(data, "data.validation_fraction=0.2")
    prepared = prepare_pairs(tmp_path / "data", "key", settings, no_report)
    decode = prepared.tokenizer.decode
    sides = [
        {decode(part.store.columns[0][n].tolist()) for n in range(len(part.store))} for part in prepared.splits.values()
    ]
    assert sides[0]
    assert sides[1]
    assert not sides[0] & sides[1]
    assert len(prepared.train.store) + len(prepared.valid.store) == 300
    assert [pair.source for pair in prepared.valid.pairs()] == [
        decode(prepared.valid.store.columns[0][n].tolist()) for n in range(len(prepared.valid.store))
    ]


def test_rejected_pairs_are_counted_by_reason(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    long = "word " * 300
    path.write_text(f"a b\tc d\n{long}\t{long}\na\t{'b ' * 40}\n")
    settings = config(path, f"data.valid.files={path}")
    prepared = prepare_pairs(tmp_path / "data", "key", settings, no_report)
    assert prepared.train.counts() == {"read": 3, "kept": 1, "too long": 1, "unequal lengths": 1}
    assert list(prepared.train.omissions()) == ["1 left out: too long", "1 left out: unequal lengths"]
    assert prepared.valid.counts() == {"read": 3, "kept": 3}  # validation keeps all lengths


def test_no_usable_examples_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("word " * 300 + "\t" + "word " * 300 + "\n")
    with pytest.raises(DataError) as error:
        prepare_pairs(tmp_path / "data", "key", config(path, f"data.valid.files={path}"), no_report)
    assert str(error.value) == "data.train has no usable examples (1 too long); pass more text."


def test_too_few_pairs_for_validation_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("a\tb\n" * 9)
    with pytest.raises(DataError) as error:
        prepare_pairs(tmp_path / "data", "key", config(path), no_report)
    assert str(error.value) == (
        "no pair was held out for validation, because there are too few different ones; "
        "raise data.validation_fraction, which is 0.05, or pass --valid."
    )


def test_data_key_follows_content_and_settings_but_not_paths(data: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved.tsv"
    moved.write_bytes(data.read_bytes())
    key = data_key(config(data))
    assert data_key(config(moved)) == key
    assert data_key(config(data, "training.steps=7", "model.width=64", "tokenizer.dropout=0.1")) == key
    for setting in (
        "model.vocab_size=299",
        "tokenizer.lowercase=true",
        "data.max_length=9",
        "data.validation_fraction=0.2",
    ):
        assert data_key(config(data, setting)) != key
    moved.write_text("x\ty\n")
    assert data_key(config(moved)) != key


def test_stats_count_pairs_and_characters(data: Path) -> None:
    stats = pair_stats(config(data).data.train, False, no_report)
    assert (stats.examples, stats.characters) == (300, data.stat().st_size - 2 * 300)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.floats(0.05, 0.95))
def test_split_tail_keeps_all_tokens(lengths: list[int], fraction: float) -> None:
    ends = np.cumsum(lengths)
    column = TokenColumn(np.arange(ends[-1], dtype=np.uint16), ends)
    first, last = split_tail(TokenStore(Path(), (column,), {}), fraction)

    def tokens(store: TokenStore) -> Iterator[int]:
        return (int(token) for n in range(len(store)) for token in store.columns[0][n])

    assert [*tokens(first), *tokens(last)] == list(range(int(ends[-1])))
    assert len(last.columns[0].ids) == ends[-1] - round(int(ends[-1]) * (1 - fraction))
    assert all(length > 0 for store in (first, last) for length in store.columns[0].lengths)


def test_language_model_is_validated_on_the_end_of_its_text(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("abcdefghij" * 100)
    settings = config(path, "model.kind=decoder-only", "tokenizer.kind=character", "data.validation_fraction=0.1")
    prepared = prepare_documents(tmp_path / "data", "key", settings, no_report)
    assert prepared.tokenizer.decode(prepared.valid.store.columns[0][0].tolist()) == ("abcdefghij" * 10 + "\n")[1:]


def test_held_out_pairs_follow_from_their_text() -> None:
    pair = Pair("I love you very much.", "Ti amo molto.")
    assert is_held_out(pair, 0.999999) is is_held_out(Pair(pair.source, pair.target), 0.999999) is True
    assert not is_held_out(pair, 0.0)
