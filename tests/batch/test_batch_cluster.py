"""Ray and Dask: batch jobs on actors that are killed, tasks in `map_batches` and `map_partitions`, pickled models."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import regard
from batch_jobs import manifest, rows_of, texts, write_lines
from regard.batch import Translate, run
from regard.batch.executors import Event, import_ray
from regard.batch.runner import JobProgress
from regard.errors import DataError

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # of Ray's sockets and log files
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
TEXTS = texts(60)
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "batch.md"


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    os.environ["RAY_AUTH_MODE"] = "disabled"
    ray = import_ray()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    yield ray
    ray.shutdown()


@pytest.fixture(scope="module")
def expected(translator: Path) -> list[str]:
    return regard.load(translator, threads=1).translate(TEXTS)


def test_a_killed_actor_of_ray_loses_and_repeats_no_row(
    ray: Any, translator: Path, expected: list[str], tmp_path: Path
) -> None:
    source = write_lines(tmp_path / "a.txt", TEXTS * 10)  # so that most of the work is left after the first shard
    killed: list[int] = []

    def kill_one(event: Event, progress: JobProgress) -> None:
        if event.record is not None and not killed:
            killed.append(int(event.record.process.rpartition(":")[2]))
            os.kill(killed[0], signal.SIGKILL)

    task = Translate(translator)
    summary = run(task, [source], tmp_path / "out", cluster="ray", workers=1, rows_per_shard=60, on_event=kill_one)
    assert (summary.complete, summary.rows) == (True, 600)
    assert rows_of(tmp_path / "out") == expected * 10
    processes = {int(shard["process"].rpartition(":")[2]) for shard in manifest(tmp_path / "out")["shards"]}
    assert len(processes) == 2  # the one that was killed, and the one that Ray started for the rest


def test_an_invalid_row_ends_a_job_of_ray_with_its_message(ray: Any, translator: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"w4\n\xff\n")
    with pytest.raises(DataError, match=r"a\.txt:2: not UTF-8"):
        run(Translate(translator), [tmp_path / "a.txt"], tmp_path / "out", cluster="ray", workers=1)


def example(name: str) -> str:
    """The program on the documentation page that imports this package."""
    blocks = re.findall(r"^```py\n(.*?)^```", PAGE.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    (block,) = [block for block in blocks if f"import {name}" in block]
    return str(block)


@pytest.mark.parametrize("name", ["ray", "dask"])
def test_the_programs_of_the_documentation_run(
    ray: Any, translator: Path, expected: list[str], tmp_path: Path, name: str
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "en-it").symlink_to(translator)
    pq.write_table(pa.table({"en": TEXTS, "n": range(60)}), tmp_path / "texts.parquet")
    program = re.sub(r'"(runs/en-it|texts.parquet|translated)"', rf'"{tmp_path}/\1"', example(name))
    exec(compile(program, str(PAGE), "exec"), {"__name__": "__main__"})
    table = pq.read_table(tmp_path / "translated").sort_by("n").to_pydict()
    assert table["n"] == list(range(60))
    assert table["it"] == expected


def test_a_used_model_is_sent_to_a_task_of_ray(ray: Any, translator: Path, expected: list[str]) -> None:
    model = regard.load(translator, threads=1)
    model.translate("w4")
    translate = ray.remote(lambda model, texts: model.translate(texts))
    assert ray.get(translate.remote(model, TEXTS)) == expected
