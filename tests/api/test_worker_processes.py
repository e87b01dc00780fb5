"""Models in worker processes: pickled as folder and options, loaded there, with as many threads as requested."""

import json
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Barrier
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import pytest

import regard
from random_models import SMALL, saved
from regard.config import EncoderDecoderConfig
from regard.decoding.engines import conversion
from regard.errors import ConfigError, ModelError
from regard.files import checksums_match, folder_lock
from regard.interop import ctranslate2

TEXTS = ["w4 w9 w12", "w20 w5", "w7"]
WORKER = """
import json, os, pickle, sys, torch
torch.set_num_threads(3)
translator, writer = pickle.load(sys.stdin.buffer)
print(json.dumps({
    "translations": translator.translate(json.loads(sys.argv[1])),
    "continuations": writer.generate(json.loads(sys.argv[1]), max_tokens=5, seed=0),
    "ctranslate2": translator._engines["ctranslate2", "int8"]._model.runner.num_translators,
    "torch": torch.get_num_threads(),
    "tokenizers": os.environ["RAYON_NUM_THREADS"],
}))
"""


@pytest.mark.slow
def test_a_used_model_works_in_another_process_with_its_threads(
    translator: Path, writer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAYON_NUM_THREADS", "2")
    monkeypatch.chdir(translator.parent)
    models = regard.load(translator.name, threads=1), regard.load(writer, threads=1)
    translations = models[0].translate(TEXTS)
    continuations = models[1].generate(TEXTS, max_tokens=5, seed=0)
    models[0].translate("w4", engine="torch")  # loads networks as well
    monkeypatch.delenv("RAYON_NUM_THREADS")
    worker = subprocess.run(
        [sys.executable, "-c", WORKER, json.dumps(TEXTS)],
        input=pickle.dumps(models),
        capture_output=True,
        check=True,
        cwd=tmp_path,  # a relative folder would not be found
    )
    assert json.loads(worker.stdout) == {
        "translations": translations,
        "continuations": continuations,
        "ctranslate2": 1,
        "torch": 1,
        "tokenizers": "1",
    }


@pytest.mark.parametrize("pickler", [pickle, cloudpickle], ids=["pickle", "cloudpickle"])
def test_a_pickle_has_the_folder_and_options_and_no_weights(translator: Path, pickler: object) -> None:
    model = regard.load(translator, translator, threads=1, device="cpu")
    expected = model.translate(TEXTS)
    content = pickler.dumps(model)  # type: ignore[attr-defined]
    copy = pickler.loads(content)  # type: ignore[attr-defined]
    assert len(content) < 1000
    assert (copy.folders, copy.threads, copy.device) == ((translator, translator), 1, "cpu")
    assert "networks" not in vars(copy)
    assert copy.translate(TEXTS) == expected
    assert repr(copy) == repr(model)


def test_a_worker_without_the_folder_names_it(tmp_path: Path) -> None:
    saved(tmp_path / "model", EncoderDecoderConfig(**SMALL))
    content = pickle.dumps(regard.load(tmp_path / "model"))
    (tmp_path / "model").rename(tmp_path / "moved")
    model = pickle.loads(content)
    with pytest.raises(ModelError, match=r"model/config\.json: is missing"):
        model.translate("w4")


def test_two_workers_that_need_a_conversion_at_the_same_time_make_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the lock, each would remove what the other has just converted."""
    saved(tmp_path / "model", EncoderDecoderConfig(**SMALL))
    both_miss_it, exports = Barrier(2, timeout=60), []
    export = ctranslate2.export_ctranslate2

    def lock_together(folder: Path) -> AbstractContextManager[None]:
        both_miss_it.wait()
        return folder_lock(folder)

    def counted_export(*arguments: Any, **options: Any) -> None:
        exports.append(arguments)
        export(*arguments, **options)

    monkeypatch.setattr(conversion, "folder_lock", lock_together)
    monkeypatch.setattr(ctranslate2, "export_ctranslate2", counted_export)
    with ThreadPoolExecutor(2) as pool:
        folders = set(pool.map(lambda _: conversion.converted_folder(tmp_path / "model", "int8"), range(2)))
    assert len(folders) == len(exports) == 1
    assert checksums_match(folders.pop())


def test_threads_and_device_are_checked(translator: Path) -> None:
    with pytest.raises(ConfigError, match=r"threads is 0; it should be 1 or more\."):
        regard.load(translator, threads=0)
    with pytest.raises(ConfigError, match=r"device 'gpu': there is no such device"):
        regard.load(translator, device="gpu").translate("w4")
    assert regard.load(translator, device="auto").translate("w4 w5") == regard.load(translator).translate("w4 w5")
