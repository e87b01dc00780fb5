"""Batch jobs for tests: an executor in this process, and a table of what a job has written."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from regard.batch import BatchSummary, BatchTask, executors, run
from regard.batch.executors import Event, Resources
from regard.batch.job import Job
from regard.batch.job_folder import JobFolder
from regard.batch.worker import ShardProcessor


def run_here(folder: JobFolder, job: Job, shards: Sequence[int], resources: Resources) -> Iterator[Event]:
    """Process shards in this process, which takes no time to start."""
    processor = ShardProcessor(folder.location, threads=1)
    for shard in shards:
        yield Event("finished", shard, record=processor.process(shard))


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the local cluster this process."""
    monkeypatch.setitem(executors.EXECUTORS, "local", run_here)


def job(task: BatchTask, inputs: Sequence[Path | str], out: Path, **options: Any) -> BatchSummary:
    """Run a job whose output must be complete."""
    summary = run(task, inputs, out, **options)
    assert summary.complete
    return summary


def manifest(out: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((out / "manifest.json").read_text("utf-8"))
    return content


def rows_of(out: Path) -> list[str]:
    """The lines of all shards, in order."""
    names = [shard["name"] for shard in manifest(out)["shards"]]
    return [line for name in names for line in (out / "shards" / name).read_text("utf-8").split("\n")[:-1]]


def texts(count: int) -> list[str]:
    """Different short texts."""
    return [f"w{4 + n % 23} w{4 + n // 23 % 23} w{4 + n // 529 % 23}" for n in range(count)]


def write_lines(path: Path, lines: Sequence[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return path
