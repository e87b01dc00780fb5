"""The token store gives back what was put in, and is whole or not there."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import DataError
from regard.text.store import open_store, write_store

ROWS = st.lists(st.integers(0, 90_000), max_size=6)


@given(examples=st.lists(st.tuples(ROWS, ROWS), max_size=20))
def test_what_is_written_is_read(
    examples: list[tuple[list[int], list[int]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("store") / "corpus"
    write_store(folder, examples, columns=2, vocabulary=90_001, about={"counts": {"read": 7}})
    store = open_store(folder)
    assert store is not None
    assert len(store) == len(examples)
    assert store.counts == {"read": 7}
    for number, column in enumerate(store.columns):
        assert column.lengths.tolist() == [len(example[number]) for example in examples]
        assert [column[n].tolist() for n in range(len(examples))] == [example[number] for example in examples]


@pytest.mark.parametrize(("vocabulary", "dtype"), [(65_536, np.uint16), (65_537, np.uint32)])
def test_small_vocabularies_take_two_bytes_a_token(tmp_path: Path, vocabulary: int, dtype: type) -> None:
    write_store(tmp_path / "corpus", [[[vocabulary - 1]]], columns=1, vocabulary=vocabulary, about={})
    store = open_store(tmp_path / "corpus")
    assert store is not None
    assert store.columns[0].ids.dtype == dtype
    assert store.columns[0][0].tolist() == [vocabulary - 1]


def test_a_store_replaces_the_one_before(tmp_path: Path) -> None:
    for ids in ([1, 2], [3]):
        write_store(tmp_path / "corpus", [[ids]], columns=1, vocabulary=10, about={})
    store = open_store(tmp_path / "corpus")
    assert store is not None
    assert store.columns[0][0].tolist() == [3]


@pytest.mark.parametrize("file", ["store.json", "0.ids", "0.ends"])
@pytest.mark.parametrize("keep", [0, 3])
def test_a_damaged_store_is_none(tmp_path: Path, file: str, keep: int) -> None:
    write_store(tmp_path / "corpus", [[[1, 2, 3]], [[4]]], columns=1, vocabulary=10, about={})
    path = tmp_path / "corpus" / file
    path.write_bytes(path.read_bytes()[:keep])
    assert open_store(tmp_path / "corpus") is None
    path.unlink()
    assert open_store(tmp_path / "corpus") is None


def test_a_failure_on_the_way_leaves_nothing_behind(tmp_path: Path) -> None:
    def examples() -> Iterator[list[list[int]]]:
        yield [[1]]
        raise DataError("a.tsv:2: is bad.")

    with pytest.raises(DataError):
        write_store(tmp_path / "corpus", examples(), columns=1, vocabulary=10, about={})
    assert list(tmp_path.iterdir()) == []


def test_memory_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    program = f"""
import resource
from pathlib import Path
from regard.text.store import write_store
def examples(count):
    for n in range(count):
        yield [[n % 100] * 20, [n % 90] * 20]
def peak(count):
    write_store(Path({str(tmp_path)!r}) / "corpus", examples(count), columns=2, vocabulary=100, about={{}})
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
small, large = peak(20_000), peak(400_000)  # the larger one is 32 MB on disk
assert large - small < 5_000, (small, large)
"""
    subprocess.run([sys.executable, "-c", program], check=True)
