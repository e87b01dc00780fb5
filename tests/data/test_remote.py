"""Files of any kind: compressed, remote, patterns and Parquet, and one message for each that cannot be read."""

import builtins
import gzip
import lzma
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import zstandard

from regard.config import Config, ConfigSource, validate_sources
from regard.data.data_key import data_key, files_fingerprint
from regard.data.digests import SeekableFile, file_digests
from regard.data.lines import InvalidLines
from regard.data.readers import read_documents, read_labeled, read_pair_files, read_pairs
from regard.data.readers.base import LabeledExample, Pair
from regard.data.remote import content_digest, expand_pattern, file_exists, open_output, open_seekable
from regard.errors import DataError

PAIRS = [Pair("Hello", "Ciao"), Pair("Yes", "Sì")]
TSV = "".join(f"{pair.source}\t{pair.target}\n" for pair in PAIRS).encode()
COMPRESS: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstandard.compress}


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    fsspec.filesystem("memory").store.clear()


def read(*files: str, **columns: str) -> list[Pair]:
    return list(read_pair_files(files, InvalidLines(), columns))


def message(*files: str, **columns: str) -> str:
    with pytest.raises(DataError) as error:
        read(*files, **columns)
    return str(error.value)


def parquet(name: str, columns: Mapping[str, Any], **options: Any) -> str:
    pyarrow.parquet.write_table(pyarrow.table(columns), name, **options)
    return name


@pytest.mark.parametrize("suffix", COMPRESS)
def test_compressed_files(suffix: str) -> None:
    content = COMPRESS[suffix](TSV)
    Path(f"a.tsv{suffix}").write_bytes(content)
    Path(f"twice.tsv{suffix}").write_bytes(content + content)  # several streams in one file
    assert read(f"a.tsv{suffix}") == PAIRS
    assert read(f"twice.tsv{suffix}") == PAIRS * 2


@pytest.mark.parametrize(("suffix", "kind"), [(".gz", "gzip"), (".xz", "xz"), (".zst", "Zstandard")])
def test_truncated_and_damaged_files_are_errors(suffix: str, kind: str) -> None:
    content = COMPRESS[suffix](TSV * 1000)
    for name, damaged in {"cut": content[:-9], "changed": content[:12] + b"\xff" * 8 + content[20:]}.items():
        if (name, suffix) == ("changed", ".zst"):  # has no checksum by default
            continue
        Path(f"{name}.tsv{suffix}").write_bytes(damaged)
        assert message(f"{name}.tsv{suffix}").startswith(f"{name}.tsv{suffix}: is a damaged {kind} file (")
    Path(f"plain.tsv{suffix}").write_bytes(TSV)
    assert message(f"plain.tsv{suffix}").endswith("copy it again, or compress it again.")


@pytest.mark.parametrize("suffix", ["", *COMPRESS])
@pytest.mark.parametrize("start", ["", "memory://corpus/", "file://"])
def test_output_is_read_back(start: str, suffix: str, tmp_path: Path) -> None:
    name = f"{start}{tmp_path if start == 'file://' else ''}/a.tsv{suffix}" if start else f"a.tsv{suffix}"
    with open_output(name) as output:
        output.write(TSV)
    assert read(name) == PAIRS
    assert file_exists(name)
    with pytest.raises(ValueError, match="stop"), open_output(f"{start or ''}partial.tsv"):
        raise ValueError("stop")
    assert not file_exists(f"{start or ''}partial.tsv")


def test_patterns_stand_for_sorted_files() -> None:
    for folder in ("", "memory://corpus/"):
        for name in ("b.tsv", "a.tsv", "c.txt"):
            with open_output(f"{folder}{name}") as output:
                output.write(f"{name}\tx\n".encode())
        assert [pair.source for pair in read(f"{folder}*.tsv")] == ["a.tsv", "b.tsv"]
    Path("odd[1].tsv").write_bytes(TSV)
    assert read("odd[1].tsv") == PAIRS  # the name of a file is not a pattern
    assert expand_pattern("*.txt") == ["c.txt"]
    assert message("*.jsonl") == "*.jsonl: matches no file; check the pattern."
    assert message("memory://corpus/*.jsonl") == "memory://corpus/*.jsonl: matches no file; check the pattern."


def test_patterns_of_aligned_files() -> None:
    for number in range(2):
        Path(f"{number}.en").write_text(f"source {number}\n")
        Path(f"{number}.it").write_text(f"target {number}\n")

    def config(**files: Any) -> Config:
        return validate_sources([ConfigSource("", {"data": {"train": files}})])

    corpus = config(source="*.en", target="*.it").data.train
    assert [pair.target for pair in read_pairs(corpus, InvalidLines())] == ["target 0", "target 1"]
    key = data_key(config(source="*.en", target="*.it"))
    Path("1.it").write_text("other\n")
    assert data_key(config(source="*.en", target="*.it")) != key
    Path("2.en").write_text("source 2\n")
    with pytest.raises(DataError, match="there are 3 source files and 2 target files"):
        list(read_pairs(corpus, InvalidLines()))


def test_unreadable_urls_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    assert message("memory://corpus/a.tsv") == "memory://corpus/a.tsv: not found; check the address."
    assert message("nonsense://a/b.tsv") == (
        "nonsense://a/b.tsv: nonsense:// is not a protocol that fsspec knows; check the address."
    )
    assert message("s3://bucket/a.tsv") == (
        "s3://bucket/a.tsv: s3:// needs a package that is not installed; pip install s3fs."
    )
    assert not file_exists("s3://bucket/*.tsv")

    def broken(*arguments: object, **options: object) -> object:
        raise RuntimeError("no credentials\nat all.")

    monkeypatch.setattr("fsspec.implementations.memory.MemoryFileSystem._open", broken)
    assert message("memory://corpus/a.tsv") == (
        "memory://corpus/a.tsv: cannot be read (RuntimeError: no credentials at all); "
        "check the address and your credentials."
    )


@pytest.mark.parametrize(
    ("module", "name"), [("fsspec", "memory://a.tsv"), ("zstandard", "a.tsv.zst"), ("pyarrow", "a.parquet")]
)
def test_missing_packages_are_named(module: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not name.startswith("memory"):
        Path(name).write_bytes(b"")
    for loaded in [loaded for loaded in sys.modules if loaded.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, loaded)
    imported = builtins.__import__

    def without(name: str, *arguments: Any) -> Any:
        if name.partition(".")[0] == module:
            raise ImportError(name)
        return imported(name, *arguments)

    monkeypatch.setattr("importlib.import_module", lambda name: without(name))
    monkeypatch.setattr("regard.data.remote.import_module", lambda name: without(name))
    assert message(name) == f"{name}: needs {module}; install it with: pip install 'regard[data]'."


# --- Parquet ----------------------------------------------------------------------------------------------------------


def test_parquet_pairs_by_name_position_and_choice() -> None:
    sources, targets = [pair.source for pair in PAIRS], [pair.target for pair in PAIRS]
    assert read(parquet("a.parquet", {"id": [1, 2], "target": targets, "source": sources})) == PAIRS
    assert read(parquet("b.parquet", {"en": sources, "it": targets, "score": [0.5, 1.0]})) == PAIRS
    assert read(parquet("c.parquet", {"left": sources, "right": targets})) == PAIRS
    odd = parquet("d.parquet", {"x": targets, "y": sources, "z": sources})
    assert read(odd, source="y", target="1") == PAIRS
    nested = [{"en": pair.source, "it": pair.target} for pair in PAIRS]
    assert read(parquet("e.parquet", {"translation": nested})) == PAIRS
    assert read("e.parquet", source="it", target="en") == [Pair(pair.target, pair.source) for pair in PAIRS]


def test_parquet_of_documents_and_labeled_texts() -> None:
    texts = parquet("a.parquet", {"title": ["t", "u"], "text": ["One\ntwo", "three"]}, row_group_size=1)
    assert ["".join(document) for document in read_documents([texts], InvalidLines())] == ["One\ntwo", "three"]
    labeled = parquet("b.parquet", {"sentence": ["good", "bad"], "label": [1, 0]})
    assert list(read_labeled([labeled], InvalidLines())) == [LabeledExample("1", "good"), LabeledExample("0", "bad")]


def test_parquet_without_the_columns_names_those_it_has() -> None:
    name = parquet("a.parquet", {"x": ["a"], "y": ["b"], "z": ["c"]})
    assert message(name) == (
        "a.parquet: has no column that is known to be the source; its columns are x, y, z "
        "(pass one of these to --source-column)."
    )
    assert "a.parquet: has no column 'w' for the target; it has x, y, z" in message(name, source="x", target="w")
    nested = parquet("b.parquet", {"translation": [{"en": "a", "it": "b"}]})
    assert message(nested, source="de") == "b.parquet: has no 'de' in the column translation; it has en, it."


def test_damaged_and_incomplete_parquet() -> None:
    name = parquet("a.parquet", {"source": ["a", "b"], "target": ["c", None]})
    assert message(name) == (
        "a.parquet:2: no text in a column of the pair; fill it in, or skip such lines with --skip-invalid."
    )
    Path("cut.parquet").write_bytes(Path(name).read_bytes()[:-20])
    assert message("cut.parquet").startswith("cut.parquet: is a damaged Parquet file (")
    Path("a.parquet.gz").write_bytes(b"")
    assert message("a.parquet.gz") == (
        "a.parquet.gz: Parquet is compressed already and needs random access; decompress the .gz."
    )


# --- digests ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz", "a.tsv.xz", "a.tsv.zst", "memory://a.tsv"])
def test_reading_a_file_also_hashes_it(name: str) -> None:
    with open_output(name) as output:
        output.write(TSV * 100)
    with file_digests() as digests:
        assert len(read(name)) == 200
    assert digests == {name: content_digest(name)}


@pytest.mark.parametrize("rows", [20, 1_000, 9_000])  # smaller and larger than the end that pyarrow reads first
@pytest.mark.parametrize("remote", [False, True])
def test_parquet_is_hashed_while_each_byte_is_read_once(
    rows: int, remote: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("id", "source", "x", "target", "y")
    texts = {name: [f"{name} {n * 7919 % 100_003}" for n in range(rows)] for name in names}
    name = parquet("a.parquet", texts, row_group_size=max(10, rows // 5), use_dictionary=False, compression="none")
    if remote:
        with open_output("memory://a.parquet") as output:
            output.write(Path(name).read_bytes())
        name = "memory://a.parquet"
    fetched: list[range] = []
    fetch = SeekableFile._fetch

    def counted(self: SeekableFile, start: int, stop: int) -> bytes:
        fetched.append(range(start, stop))
        return fetch(self, start, stop)

    monkeypatch.setattr(SeekableFile, "_fetch", counted)
    with file_digests() as digests:
        pairs = read(name)
    assert [pair.source for pair in pairs] == texts["source"]
    assert digests == {name: content_digest(name)}
    fetched = sorted(filter(None, fetched), key=lambda part: part.start)
    assert fetched[0].start == 0
    assert fetched[-1].stop == Path("a.parquet").stat().st_size
    assert all(left.stop == right.start for left, right in pairwise(fetched))


def test_bytes_that_are_read_in_any_order_are_hashed_in_theirs() -> None:
    content = np.random.default_rng(0).bytes(5000)
    Path("a.bin").write_bytes(content)
    for seed in range(20):
        random = np.random.default_rng(seed)
        with file_digests() as digests, open_seekable("a.bin") as file:
            for _ in range(random.integers(12)):
                start, size = (int(n) for n in random.integers(5200, size=2))
                file.seek(start)
                assert file.read(size) == content[start : start + size]
            assert digests == {}
            file.finish()
        assert digests == {"a.bin": content_digest("a.bin")}


def test_a_file_that_is_not_read_to_its_end_has_no_digest() -> None:
    Path("a.tsv").write_bytes(TSV + b"x" * 2**21)
    with file_digests() as digests:
        next(read_pair_files(["a.tsv"], InvalidLines()))
    assert digests == {}


def test_key_of_remote_files_follows_their_content() -> None:
    with open_output("memory://a.tsv") as output:
        output.write(TSV)
    Path("a.tsv").write_bytes(TSV)
    assert files_fingerprint(["memory://a.tsv"], {}) == files_fingerprint(["a.tsv"], {})
