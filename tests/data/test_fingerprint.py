"""Keys of prepared data: stores are reused until files or settings change."""

import os
from pathlib import Path

import pytest

from regard.config import load_config
from regard.data import fingerprint
from regard.data.fingerprint import data_key, load_or_build_store
from regard.data.readers import builtin
from regard.data.store import write_store
from regard.errors import DataError

key_of = fingerprint.fingerprint


def test_key_follows_from_content_and_settings(tmp_path: Path) -> None:
    names = ["a.tsv", "b.tsv", "c.jsonl", "d.tsv.gz"]
    a, b, c, d = (str(tmp_path / name) for name in names)
    for path in (a, b, c, d):
        Path(path).write_text("x\ty\n")
    key = key_of([a], {"longest": 9})
    assert len(key) == 32
    assert key == key_of([a], {"longest": 9}) == key_of([b], {"longest": 9})
    others = [([a], {"longest": 8}), ([c], {"longest": 9}), ([d], {"longest": 9}), ([a, b], {"longest": 9})]
    assert len({key, *(key_of(files, settings) for files, settings in others)}) == 5
    Path(a).write_text("x\tz\n")
    assert key_of([a], {"longest": 9}) != key
    assert key_of([a, b], {}) != key_of([b, a], {})


def test_key_of_builtin_corpora_follows_from_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [*builtin.PAIR_CORPORA, *builtin.DOCUMENT_CORPORA]
    keys = {key_of([name], {}) for name in names}
    assert len(keys) == len(names)
    monkeypatch.setattr(builtin, "__version__", "99")
    assert not keys & {key_of([name], {}) for name in names}


def error_message(file: str) -> str:
    with pytest.raises(DataError) as error:
        key_of([file], {})
    return str(error.value)


def test_unreadable_files_are_errors(tmp_path: Path) -> None:
    missing, pipe = tmp_path / "missing", tmp_path / "pipe"
    os.mkfifo(pipe)
    assert error_message(str(missing)) == f"{missing}: not found; check the path."
    assert error_message(str(tmp_path)) == f"{tmp_path}: is a folder; pass the files in it."
    assert error_message(str(pipe)) == f"{pipe}: can be read only once; save it to a file, and pass the file."
    assert error_message("-") == "standard input can be read only once; save it to a file, and pass the file."
    assert error_message("builtin:x").startswith("builtin:x: is not a builtin corpus")
    assert error_message("a\0b") == "'a\\x00b': is not a path; check it."


def test_store_is_reused_while_complete_and_of_the_same_key(tmp_path: Path) -> None:
    folder, built = tmp_path / "corpus", list[str]()

    def store(key: str) -> list[int]:
        def build(place: Path) -> None:
            write_store(place, [[[len(built)]]], columns=1, vocab_size=10, metadata={"key": key})
            built.append(key)

        return [int(number) for number in load_or_build_store(folder, key, build).columns[0][0]]

    assert [store("a"), store("a"), store("b"), store("b"), store("a")] == [[0], [0], [1], [1], [2]]
    (folder / "0.ids").write_bytes(b"")
    assert store("a") == [3]
    assert built == ["a", "b", "a", "a"]


def test_store_without_key_is_a_programming_error(tmp_path: Path) -> None:
    def build(place: Path) -> None:
        write_store(place, [], columns=1, vocab_size=10, metadata={})

    with pytest.raises(ValueError, match="was written without its key"):
        load_or_build_store(tmp_path / "corpus", "a", build)
    with pytest.raises(DataError) as error:
        load_or_build_store(tmp_path / "other", "a", lambda place: None)
    assert str(error.value) == f"{tmp_path / 'other'}: was written but cannot be read again; check the disk."


@pytest.mark.parametrize(
    ("name", "settings", "key"),
    [
        ("k.tsv", ["model.vocab_size=300"], "92352df23c631dc7eb2df8ea60929bb5"),
        ("k.tsv", ["model.kind=encoder-only", "model.head.kind=classes"], "c6ec7c2bf212935e3599b16760169a2d"),
    ],
)
def test_keys_equal_those_of_version_0_1(name: str, settings: list[str], key: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("a\tb\nc\td\n")
    assert data_key(load_config(None, [f"data.train.files={tmp_path / name}", *settings])) == key
