"""`regard prepare`: a folder that training uses, equal wherever it was prepared."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import regard
from regard.data import shards

WORDS = ["the", "cat", "sees", "a", "red", "dog", "and", "it", "likes", "fish"]
SMALL = ["model.width=16", "model.heads=2", "model.layers=1", "model.feed_forward=16", "training.steps=2"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random, folder = np.random.default_rng(0), tmp_path_factory.mktemp("corpus")
    for name in ("a.tsv", "b.tsv"):
        lines = (" ".join(random.choice(WORDS, random.integers(1, 9))) for _ in range(150))
        (folder / name).write_text("".join(f"{n} {line}\t{line}\n" for n, line in enumerate(lines)))
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def prepare(corpus: Path, out: Path, *options: str) -> Any:
    return regard("prepare", "translation", "--data", corpus / "*.tsv", "--out", out, "--quiet", *options)


@pytest.mark.slow
def test_training_uses_prepared_data(corpus: Path, tmp_path: Path) -> None:
    settings = [part for setting in SMALL for part in ("--set", setting)]
    done = prepare(corpus, tmp_path / "prepared", "--workers", "1", *settings)
    assert done.code == 0, done.err
    assert "train: 2" in done.out
    assert f"folder: {tmp_path / 'prepared'}" in done.out
    assert done.out.endswith(f"--set data.store={tmp_path / 'prepared'}\n")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "prepared").rglob("*")}
    store = ["--set", f"data.store={tmp_path / 'prepared'}"]
    trained = regard(
        "train", "translation", "--data", corpus / "*.tsv", "--out", tmp_path / "run", "-q", *settings, *store
    )
    assert trained.code == 0, trained.err
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "prepared").rglob("*")} == before
    assert not (tmp_path / "run" / "data").exists()


def test_errors_have_one_message(corpus: Path, tmp_path: Path) -> None:
    done = prepare(corpus, tmp_path, "--cluster", "spark")
    assert (done.code, done.err) == (2, "regard: --cluster spark: should be local or ray.\n")
    done = regard("prepare", "translation", "--data", tmp_path / "*.csv", "--out", tmp_path)
    assert (done.code, done.err) == (3, f"regard: {tmp_path / '*.csv'}: matches no file; check the pattern.\n")
    done = regard("prepare", "nonsense", "--data", corpus, "--out", tmp_path)
    assert done.code == 2
    assert "'nonsense' is not a task" in done.err


# --- Ray --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")
    yield
    ray.shutdown()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own
@pytest.mark.usefixtures("cluster")
def test_ray_prepares_the_same_bytes(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "SHARD_EXAMPLES", 40)
    settings = ["--set", "model.vocab_size=300"]
    local = prepare(corpus, tmp_path / "local", "--workers", "1", *settings)
    remote = prepare(corpus, tmp_path / "ray", "--cluster", "ray", *settings)
    assert (local.code, remote.code) == (0, 0), local.err + remote.err
    assert content(tmp_path / "local") == content(tmp_path / "ray")
    assert len(content(tmp_path / "ray")) > 8
