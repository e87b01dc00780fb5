"""Token stores: examples are read back, and stores are complete or absent."""

import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.store import TokenColumn, open_store, verify_store, write_document_store, write_store
from regard.errors import DataError
from regard.files import atomic_folder

ROWS = st.lists(st.integers(0, 90_000), max_size=6)


@given(examples=st.lists(st.tuples(ROWS, ROWS), max_size=20))
def test_written_examples_are_read_back(
    examples: list[tuple[list[int], list[int]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("store") / "corpus"
    write_store(folder, examples, columns=2, vocab_size=90_001, metadata={"counts": {"read": 7}})
    store = open_store(folder)
    assert store is not None
    assert len(store) == len(examples)
    assert store.counts == {"read": 7}
    for number, column in enumerate(store.columns):
        assert column.lengths.tolist() == [len(example[number]) for example in examples]
        assert [column[n].tolist() for n in range(len(examples))] == [example[number] for example in examples]


@pytest.mark.parametrize(("vocabulary", "dtype"), [(65_536, np.uint16), (65_537, np.uint32)])
def test_small_vocabularies_take_two_bytes_per_token(tmp_path: Path, vocabulary: int, dtype: type) -> None:
    write_store(tmp_path / "corpus", [[[vocabulary - 1]]], columns=1, vocab_size=vocabulary, metadata={})
    store = open_store(tmp_path / "corpus")
    assert store is not None
    assert store.columns[0].ids.dtype == dtype
    assert store.columns[0][0].tolist() == [vocabulary - 1]


def test_stores_are_replaced(tmp_path: Path) -> None:
    for ids in ([1, 2], [3]):
        write_store(tmp_path / "corpus", [[ids]], columns=1, vocab_size=10, metadata={})
    store = open_store(tmp_path / "corpus")
    assert store is not None
    assert store.columns[0][0].tolist() == [3]


@pytest.mark.parametrize("file", ["store.json", "0.ids", "0.ends"])
@pytest.mark.parametrize("keep", [0, 3])
def test_truncated_stores_are_not_opened(tmp_path: Path, file: str, keep: int) -> None:
    write_store(tmp_path / "corpus", [[[1, 2, 3]], [[4]]], columns=1, vocab_size=10, metadata={})
    path = tmp_path / "corpus" / file
    path.write_bytes(path.read_bytes()[:keep])
    assert open_store(tmp_path / "corpus") is None
    path.unlink()
    assert open_store(tmp_path / "corpus") is None


@given(parts=st.lists(st.tuples(ROWS, st.booleans()), max_size=20))
def test_examples_in_parts(parts: list[tuple[list[int], bool]], tmp_path_factory: pytest.TempPathFactory) -> None:
    parts = [*parts, ([7], True)]
    folder = tmp_path_factory.mktemp("store") / "corpus"
    write_document_store(folder, parts, vocab_size=90_001, metadata={})
    store = open_store(folder)
    assert store is not None
    examples: list[list[int]] = [[]]
    for ids, last in parts:
        examples[-1] += ids
        if last:
            examples.append([])
    assert [store.columns[0][n].tolist() for n in range(len(store))] == examples[:-1]


@given(lengths=st.lists(st.integers(0, 5), min_size=1, max_size=12), data=st.data())
def test_gather_equals_single_examples(lengths: list[int], data: st.DataObject) -> None:
    column = TokenColumn(np.arange(sum(lengths), dtype=np.uint16), np.cumsum(lengths))
    examples = data.draw(st.lists(st.integers(0, len(lengths) - 1)).map(lambda chosen: np.array(chosen, np.int64)))
    ids, sizes = column.gather(examples)
    assert ids.tolist() == [number for n in examples for number in column[n]]
    assert sizes.tolist() == [lengths[n] for n in examples]


def test_exception_leaves_nothing_behind(tmp_path: Path) -> None:
    def examples() -> Iterator[list[list[int]]]:
        yield [[1]]
        raise DataError("a.tsv:2: is bad.")

    with pytest.raises(DataError):
        write_store(tmp_path / "corpus", examples(), columns=1, vocab_size=10, metadata={})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_memory_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    program = f"""
import resource
from pathlib import Path
from regard.data.store import write_store
def examples(count):
    for n in range(count):
        yield [[n % 100] * 20, [n % 90] * 20]
def peak(count):
    write_store(Path({str(tmp_path)!r}) / "corpus", examples(count), columns=2, vocab_size=100, metadata={{}})
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
small, large = peak(20_000), peak(400_000)  # the larger store is 32 MB on disk
assert large - small < 5_000, (small, large)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


WRITER = """
import sys
from pathlib import Path
from regard.data.store import write_store
number = 0
while True:  # every token of a store is its number
    number = number % 60_000 + 1
    examples = ([[number] * 500] for _ in range(2000))
    write_store(Path(sys.argv[1]), examples, columns=1, vocab_size=2**16, metadata={"number": number})
    print(number, flush=True)
"""


@pytest.mark.slow
def test_killed_writers_leave_a_complete_store_or_none(tmp_path: Path) -> None:
    folder, seen = tmp_path / "corpus", 0
    for delay in np.random.default_rng(0).uniform(0.02, 0.12, 8):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(folder)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"1\n"
            time.sleep(delay)
            writer.kill()
        store = open_store(folder)
        if store is None:
            assert not folder.exists()
        else:
            seen += 1
            assert len(store) == 2000
            assert (store.columns[0].ids == store.metadata["number"]).all()
    assert seen
    write_store(folder, [[[1]]], columns=1, vocab_size=10, metadata={})
    assert os.listdir(tmp_path) == ["corpus"]  # leftovers of killed writers are removed


def test_temporary_folder_of_another_writer_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    with atomic_folder(folder, replace=True) as other:
        write_store(folder, [[[1]]], columns=1, vocab_size=10, metadata={})
        assert sorted(tmp_path.iterdir()) == sorted([folder, other])
    assert list(tmp_path.iterdir()) == [folder]


def test_stores_have_default_permissions(tmp_path: Path) -> None:
    write_store(tmp_path / "corpus", [[[1]]], columns=1, vocab_size=10, metadata={})
    (tmp_path / "plain").mkdir()
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("corpus", "plain")]
    assert modes[0] == modes[1]


@pytest.mark.parametrize("file", ["0.ids", "1.ids", "0.ends", "1.ends"])
def test_changed_bytes_are_detected(tmp_path: Path, file: str) -> None:
    folder = tmp_path / "corpus"
    write_store(folder, [[[1, 2, 3], [4]], [[5], []]], columns=2, vocab_size=10, metadata={})
    store = open_store(folder)
    assert store is not None
    verify_store(store)
    content = bytearray((folder / file).read_bytes())
    content[0] ^= 1
    (folder / file).write_bytes(content)
    with pytest.raises(DataError) as error:
        verify_store(store)
    assert str(error.value) == (
        f"{folder / file}: is damaged, its bytes have changed since it was written; "
        f"remove the folder {folder}, and it is prepared again."
    )


def test_unwritable_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "corpus"
    with pytest.raises(DataError) as error:
        write_store(folder, [], columns=1, vocab_size=10, metadata={})
    assert str(error.value) == (f"{folder}: cannot be written (File exists); choose another place.")


@pytest.mark.parametrize(
    "change",
    [
        {"format": 99},
        {"examples": 1},
        {"checksums": {}},
        {"checksums": {"0.ids": 0}},
        {"columns": 0, "examples": 0},
        {"dtype": "uint32"},
    ],
)
def test_a_store_whose_metadata_does_not_fit_its_files_is_not_opened(tmp_path: Path, change: dict[str, object]) -> None:
    folder = tmp_path / "corpus"
    write_store(folder, [[[1, 2, 3]], [[4]]], columns=1, vocab_size=9, metadata={})
    path = folder / "store.json"
    metadata = json.loads(path.read_text("utf-8"))
    assert open_store(folder) is not None
    path.write_text(json.dumps(metadata | change), "utf-8")
    assert open_store(folder) is None


def test_truncated_ids_are_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    write_store(folder, [[[1, 2, 3]], [[4]]], columns=1, vocab_size=9, metadata={})
    (folder / "0.ids").write_bytes((folder / "0.ids").read_bytes()[:-2])
    assert open_store(folder) is None
