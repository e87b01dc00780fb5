"""Model folders from anywhere: files that cannot be read safely are refused with one message and exit code 3."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commands import CommandResult, regard
from random_models import SMALL, saved
from regard.config import EncoderDecoderConfig
from regard.models.folder_files import CARD_FILE, CONFIG_FILE, TOKENIZER_FILE, WEIGHTS_FILE

MakeFile = Callable[[Path], object]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "en-it"
    saved(folder, EncoderDecoderConfig(**SMALL))
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "en-it"))


def link_to_zero(path: Path) -> None:
    path.symlink_to("/dev/zero")


def make_large(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**32)  # sparse


def run_all(folder: Path) -> list[CommandResult]:
    """Run the commands that read a model folder."""
    return [
        regard("translate", folder, stdin="w4\n"),
        regard("translate", folder, "--engine", "ctranslate2", stdin="w4\n"),
        regard("serve", folder, "--port", "0"),
        regard("export", folder, "--to", "ctranslate2", "--out", folder.parent / "exported"),
        regard("average", folder, folder, "--out", folder.parent / "averaged"),
    ]


@pytest.mark.parametrize("name", [CONFIG_FILE, TOKENIZER_FILE])
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (link_to_zero, "it is a device, not a regular file"),
        (os.mkfifo, "it is a pipe, not a regular file"),
        (make_large, "it is larger than"),
    ],
)
def test_small_files_must_be_regular_and_small(name: str, make: MakeFile, reason: str, folder: Path) -> None:
    (folder / name).unlink()
    make(folder / name)
    for done in run_all(folder):
        assert (done.code, done.out) == (3, "")
        assert done.err.startswith(f"regard: {folder / name}: cannot be read ({reason}")
        assert done.err.count("\n") == 1


@pytest.mark.parametrize("make", [link_to_zero, os.mkfifo])
def test_weights_must_be_a_regular_file(make: MakeFile, folder: Path) -> None:
    (folder / WEIGHTS_FILE).unlink()
    make(folder / WEIGHTS_FILE)
    for engine in ("torch", "ctranslate2"):
        done = regard("translate", folder, "--engine", engine, stdin="w4\n")
        assert (done.code, done.out, done.err.count("\n")) == (3, "", 1)
        assert done.err.startswith(f"regard: {folder / WEIGHTS_FILE}: cannot be read (it is a ")


@pytest.mark.parametrize("make", [link_to_zero, os.mkfifo, make_large])
def test_a_card_that_is_no_regular_file_is_not_read(make: MakeFile, folder: Path) -> None:
    from regard.serving.loaded_models import load_models
    from regard.serving.routes.operations import _card

    (folder / CARD_FILE).unlink()
    make(folder / CARD_FILE)
    assert _card(load_models([str(folder)])[0]) == ""


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            {
                "pre_tokenizer": {
                    "type": "Split",
                    "pattern": {"Regex": "(w+)+$"},
                    "behavior": "Isolated",
                    "invert": False,
                }
            },
            "its pre_tokenizer has the regular expression '(w+)+$', which is not one that regard knows",
        ),
        (
            {"normalizer": {"type": "Replace", "pattern": {"String": "w"}, "content": "w" * 10**7}},
            "the replacements of its normalizer make texts more than 16 times as long",
        ),
        ({"model": {"type": "WordLevel", "vocab": {"w4": 10**6}, "unk_token": "w4"}}, "it gives 'w4' the id 1000000"),
    ],
)
def test_a_malicious_tokenizer_is_refused(change: dict[str, Any], reason: str, folder: Path) -> None:
    path = folder / TOKENIZER_FILE
    path.write_text(json.dumps(json.loads(path.read_bytes()) | change))
    for done in run_all(folder)[:3]:
        assert (done.code, done.out) == (3, "")
        assert done.err.startswith(f"regard: {path}: cannot be read as a tokenizer ({reason}")
        assert done.err.count("\n") == 1


def test_padding_and_truncation_of_a_tokenizer_are_ignored(folder: Path) -> None:
    expected = regard("translate", folder, stdin="w4 w5 w6\n")
    path = folder / TOKENIZER_FILE
    padding = {"strategy": {"Fixed": 10**9}, "direction": "Right", "pad_id": 0, "pad_type_id": 0, "pad_token": "w0"}
    truncation = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 5}
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"padding": padding, "truncation": truncation}))
    assert regard("translate", folder, stdin="w4 w5 w6\n").out == expected.out
