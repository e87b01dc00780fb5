"""Batch jobs with worker processes: workers that are killed, signals, and threads per worker."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

import regard
from batch_jobs import manifest, rows_of, texts, write_lines
from commands import regard as command
from commands import start_process
from regard.api.generation import GenerateKeywords
from regard.batch import Generate, Translate, executors, run
from regard.batch.executors import Event, Resources
from regard.batch.runner import JobProgress
from regard.errors import DataError, RunError

TEXTS = texts(60)


@pytest.mark.slow
def test_a_killed_worker_loses_and_repeats_no_row(writer: Path, tmp_path: Path) -> None:
    """The first worker that reports a part of its shard is killed; others are still to be processed."""
    options: GenerateKeywords = {"temperature": 0, "max_tokens": 3}
    source = write_lines(tmp_path / "a.txt", texts(400))
    expected = regard.load(writer, threads=1).generate(texts(400), **options)
    killed: list[Event] = []
    lost: list[Event] = []

    def kill_one(event: Event, progress: JobProgress) -> None:
        if event.kind == "rows" and not killed:
            assert event.process is not None
            os.kill(event.process, signal.SIGKILL)
            killed.append(event)
        if event.kind == "lost":
            lost.append(event)

    task = Generate(writer, **options)
    summary = run(task, [source], tmp_path / "out", workers=2, rows_per_shard=100, on_event=kill_one)
    assert [(event.process, event.reason) for event in lost] == [(killed[0].process, "was killed by SIGKILL")]
    assert (summary.complete, summary.rows, summary.lost_workers) == (True, 400, 1)
    records = [json.loads(line) for line in rows_of(tmp_path / "out")]
    assert [(record["text"], record["continuation"]) for record in records] == [*zip(texts(400), expected, strict=True)]
    shards = manifest(tmp_path / "out")["shards"]
    assert [(shard["first_row"], shard["last_row"]) for shard in shards] == [
        (1, 100),
        (101, 200),
        (201, 300),
        (301, 400),
    ]
    assert not [path for path in (tmp_path / "out" / "shards").iterdir() if path.name.startswith(".")]


@pytest.mark.slow
def test_a_stopped_command_keeps_finished_shards_and_continues(translator: Path, tmp_path: Path) -> None:
    source, out = write_lines(tmp_path / "a.txt", TEXTS * 20), tmp_path / "out"
    expected = regard.load(translator, threads=1).translate(TEXTS, max_tokens=4) * 20
    arguments = ("batch", "translate", translator, source, "--out", out, "--rows-per-shard", "20", "--workers", "1")
    process = start_process(*arguments, "--max-tokens", "4")
    deadline = time.monotonic() + 120
    while not list((out / "records").glob("*.json")):
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.terminate()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    finished = len(list((out / "records").glob("*.json")))
    assert f"{finished} of 60 shards are finished. Run the same command again to continue." in errors
    assert 0 < finished < 60
    assert not [path for path in (out / "shards").iterdir() if path.name.startswith(".")]  # the worker cleaned up
    summary = command(*arguments, "--max-tokens", "4", "--json")
    assert summary.code == 0
    assert f"{20 * finished:,} of 1,200 rows and {finished} of 60 shards are finished." in summary.err
    content = json.loads(summary.out)
    assert (content["complete"], content["processed_rows"]) == (True, 1200 - 20 * finished)
    assert rows_of(out) == expected


@pytest.mark.slow
def test_a_worker_imports_plugins_and_reports_an_invalid_row(
    translator: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "batch_plugin.py").write_text("import os; open(f'imported-{os.getpid()}', 'w').close()")
    (tmp_path / "a.txt").write_bytes(b"w4\n\xff\n")
    done = command("--plugin", "batch_plugin", "batch", "translate", translator, "a.txt", "--out", "out")
    assert done.code == 3
    message = f"regard: {tmp_path}/a.txt:2: not UTF-8 (byte 1 of the line is 0xff); convert the file, or skip such rows"
    assert done.err.splitlines()[-1] == f"{message} with --skip-invalid."
    assert len(list(tmp_path.glob("imported-*"))) == 2  # here and in the worker


def test_a_shard_that_kills_every_worker_ends_the_job(
    translator: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "WORKER_MODULE", "colorsys")  # does nothing
    source = write_lines(tmp_path / "a.txt", TEXTS)
    with pytest.raises(RunError) as error:
        run(Translate(translator), [source], tmp_path / "out", workers=1)
    assert "3 workers died while they processed a.txt (the last one ended with exit code 0)" in str(error.value)
    assert "use fewer --workers, then run the same command again." in str(error.value)


def test_workers_share_the_cores_and_the_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "available_cores", lambda: 8)

    def layout(shards: int, gpus: int, **options: object) -> list[tuple[int, str]]:
        return Resources(**options).for_machine(shards, lambda: gpus)  # type: ignore[arg-type]

    assert layout(100, 0) == [(1, "cpu")] * 8
    assert layout(100, 0, workers=3) == [(2, "cpu")] * 3
    assert layout(100, 0, threads=4) == [(4, "cpu")] * 2
    assert layout(2, 0) == [(4, "cpu")] * 2  # no more workers than shards
    assert layout(100, 2, device="cuda") == [(4, "cuda:0"), (4, "cuda:1")]
    assert layout(100, 2, device="cuda", workers=3) == [(2, "cuda:0"), (2, "cuda:1"), (2, "cuda:0")]
    assert layout(100, 2, device="cuda:1", workers=1) == [(8, "cuda:1")]


def test_ray_is_named_when_it_is_not_installed(
    translator: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "ray", None)
    done = command(
        *("batch", "translate", translator, write_lines(tmp_path / "a.txt", TEXTS)),
        *("--out", tmp_path / "out", "--cluster", "ray"),
    )
    assert done.code == 2
    assert done.err.endswith(
        "regard: --cluster ray: Ray is not installed; install it with: pip install 'regard[cluster]'.\n"
    )


def test_wrong_options_of_the_command(translator: Path, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "a.txt", TEXTS)
    start = ("batch", "translate", translator, source, "--out", tmp_path / "out")
    for options, message in (
        (("--shard", "3"), "--shard 3: should be K/N, such as 3/16 for the third of 16 parts."),
        (("--shard", "0/4"), "--shard 0/4: should be from 1/4 to 4/4."),
        (("--cluster", "slurm"), "--cluster slurm: should be local or ray."),
        (("--output-format", "json"), "--output-format json: should be text, jsonl or parquet"),
        (("--beam", "0"), "beam is 0; it should be 1 (greedy) to 1,000."),
    ):
        done = command(*start, *options)
        assert (done.code, message in done.err) == (2, True), done.err
    assert command("batch", "verify", tmp_path).code == 3


def test_error_classes_of_workers_are_those_of_the_package() -> None:
    from regard.batch.worker import error_class

    assert error_class("DataError") is DataError
    assert error_class("os") is RunError
