"""Folders and several files in place of one data file."""

import json
from pathlib import Path

import pytest

from commands import regard
from random_models import SMALL, saved
from regard.config import Config, ConfigSource, DecoderOnlyConfig, resolve_paths, validate_sources
from regard.data.data_key import data_key
from regard.data.lines import InvalidLines
from regard.data.readers import read_documents, read_labeled, read_pair_files, read_tagged
from regard.errors import DataError
from small_runs import SETTINGS, pairs


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data" / "sub").mkdir(parents=True)
    return tmp_path / "data"


def documents(*files: str) -> tuple[list[str], list[str]]:
    invalid = InvalidLines()
    return ["".join(document) for document in read_documents(files, invalid)], invalid.notes


def test_text_of_a_folder(folder: Path) -> None:
    (folder / "b.txt").write_text("b\n")
    (folder / "sub" / "c.md").write_text("c\n")
    (folder / "a.py").write_text("a\n")
    (folder / ".hidden").write_text("h\n")
    (folder / "logo.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0")
    (folder / "runs").mkdir()
    (folder / "runs" / "run.json").write_text("{}")
    assert documents("data") == (["a\n", "b\n", "c\n"], ["data: 3 files; left out: logo.png"])


def test_examples_of_a_folder_are_in_files_of_their_formats(folder: Path) -> None:
    (folder / "README.md").write_text("About these data.\n")
    (folder / "a.tsv").write_text("x\ty\n")
    (folder / "b.jsonl").write_text('{"source": "v", "target": "w", "label": "x", "text": "y"}\n')
    invalid = InvalidLines()
    assert [pair.source for pair in read_pair_files(["data"], invalid)] == ["x", "v"]
    assert invalid.notes == ["data: 2 files; left out: README.md"]
    assert [example.text for example in read_labeled(["data"], InvalidLines())] == ["y", "y"]
    (folder / "sub" / "c.conll").write_text("dog NOUN\n")
    assert [example.words for example in read_tagged(["data"], InvalidLines())] == [("dog",)]


def test_a_folder_without_text_is_an_error(folder: Path) -> None:
    with pytest.raises(DataError) as error:
        documents("data")
    assert str(error.value) == "data: has no text files; pass a folder with some."


def test_files_of_a_folder_are_part_of_the_key(folder: Path) -> None:
    def key() -> str:
        config: Config = validate_sources([ConfigSource("test", {"data": {"train": {"files": ["data"]}}})])
        return data_key(config)

    keys = []
    for name, text in (("a.txt", "a"), ("b.txt", "b"), ("a.txt", "c")):
        (folder / name).write_text(text)
        keys.append(key())
    assert len(set(keys)) == 3
    assert key() == keys[-1]


def test_only_paths_of_a_recipe_are_resolved() -> None:
    recipe = ConfigSource("recipe.toml", {"data": {"train": {"files": ["a.csv"], "source_column": "en"}}})
    resolved = resolve_paths(Path("corpora"), recipe).values
    assert resolved == {"data": {"train": {"files": ["corpora/a.csv"], "source_column": "en"}}}


@pytest.mark.slow
@pytest.mark.parametrize("order", ["files last", "task last", "folder"])
def test_several_files_after_one_option(folder: Path, order: str) -> None:
    rows = [f"{source}\t{target}\n" for source, target in pairs(400)]
    for name, part in (("a.tsv", rows[:200]), ("b.tsv", rows[200:300]), ("c.tsv", rows[300:])):
        (folder / name).write_text("".join(part))
    files = ["--data", "data"] if order == "folder" else ["--data", *(f"data/{name}.tsv" for name in "abc")]
    command = [*files, "translation"] if order == "task last" else ["translation", *files]
    settings = [part for setting in (*SETTINGS, "training.steps=2") for part in ("--set", setting)]
    done = regard("train", "--out", "run", *settings, *command)
    assert done.code == 0, done.err
    data = json.loads(Path("run/run.json").read_text())["data"]
    assert data["train"]["read"] + data["valid"]["read"] == 400
    assert ("train: data: 3 files.\n" in done.err) == (order == "folder")


def test_several_files_after_options_of_other_commands(folder: Path) -> None:
    saved(folder.parent / "gpt", DecoderOnlyConfig(**SMALL))
    for name in ("a.txt", "b.txt"):
        (folder / name).write_text("w4 w5 w6\n")
    for files in (["gpt", "--data", "data/a.txt", "data/b.txt"], ["--data", "data/a.txt", "data/b.txt", "gpt"]):
        done = regard("evaluate", *files, "--json", "--quiet")
        assert done.code == 0, done.err
        assert json.loads(done.out)["data"] == ["data/a.txt", "data/b.txt"]
    done = regard("score", "gpt", "--data", "data")
    assert (done.code, len(done.out.splitlines()), done.err) == (0, 2, "data: 2 files.\n")
