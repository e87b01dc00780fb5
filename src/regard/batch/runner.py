"""`run` processes the shards of a job that are not finished; `verify` checks the output and writes the manifest."""

import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.batch.executors import EXECUTORS, Event, Resources
from regard.batch.formats import FORMATS, FormatName
from regard.batch.job import Job, JobSettings, check_settings, expand_inputs, plan_job, task_spec
from regard.batch.job_folder import SHARDS_FOLDER, JobFolder, find_problems, manifest
from regard.batch.tasks import BatchTask
from regard.data.remote import is_url, open_binary, open_output, optional_module
from regard.errors import ConfigError, InterruptedRun, RunError
from regard.files import explain_write_errors, lock_file

DEFAULT_ROWS_PER_SHARD = 50_000
LISTED_PROBLEMS = 3  # shards that a message names


@dataclass
class JobProgress:
    """How far a job is."""

    total_rows: int
    rows: int
    """Rows that are done, also those of shards that are being processed."""
    total_shards: int
    shards: int
    """Shards that are finished."""
    rows_in_progress: Counter[int] = field(default_factory=Counter)
    lost_workers: int = 0

    def update(self, event: Event, job: Job) -> None:
        """Count an event."""
        if event.kind == "rows":
            self.rows_in_progress[event.shard] += event.rows
            self.rows += event.rows
        elif event.kind == "lost":
            self.lost_workers += 1
            self.rows -= self.rows_in_progress.pop(event.shard, 0)
        elif event.kind == "finished":
            self.rows += job.shards[event.shard].rows - self.rows_in_progress.pop(event.shard, 0)
            self.shards += 1


@dataclass(frozen=True)
class BatchSummary:
    """What `run` and `verify` return."""

    out: str
    task: str
    complete: bool
    """Whether all shards are finished and verified, and the manifest is written."""
    shards: int
    finished_shards: int
    rows: int
    """Rows of the finished shards."""
    processed_rows: int
    """Rows that this call has processed."""
    skipped: dict[str, int]
    """Rows without a result, by reason."""
    examples: dict[str, str]
    """The first such row of each reason."""
    truncated: int
    lost_workers: int
    seconds: float
    manifest: str | None


def run(
    task: BatchTask,
    inputs: Sequence[str | Path],
    out: str | Path,
    *,
    cluster: str = "local",
    workers: int | None = None,
    threads: int | None = None,
    device: str | None = None,
    rows_per_shard: int = DEFAULT_ROWS_PER_SHARD,
    output_format: FormatName | None = None,
    id_column: str | None = None,
    share: tuple[int, int] | None = None,
    plugins: Sequence[str] = (),
    on_event: Callable[[Event, JobProgress], None] = lambda event, progress: None,
) -> BatchSummary:
    """Run a task over files; shards that are finished already are not processed again.

    Args:
        task: The task, such as `Translate("runs/en-it", "en", "it")`. Its `skip_invalid` applies to the rows of files.
        inputs: Files, folders, patterns or URLs: text, JSON Lines or Parquet.
        out: The folder of the job, new or from an earlier call with the same arguments.
        cluster: "local" for processes of this machine, or "ray".
        workers: Number of workers; None: one per core, or per GPU.
        threads: Threads per worker; None: the cores divided by the workers.
        device: Device of the workers; None: that of the task. "cuda" gives each local worker a GPU of its own.
        rows_per_shard: Files with more rows are divided.
        output_format: "text", "jsonl" or "parquet"; None: that of the input.
        id_column: Add a column with the id of each row, `FILE:ROW`.
        share: (3, 16): process only the third of sixteen parts of the shards. The call that finishes the last shard of
            all parts writes the manifest.
        plugins: Modules that workers import first.
        on_event: Called with each event and the progress.

    Raises:
        InterruptedRun: The call was interrupted; finished shards stay, and the same call continues.
        DataError: A row is invalid, or an input is missing or has changed.
        RunError: Workers died again and again, or the output was changed.
    """
    start, folder = time.monotonic(), JobFolder(str(out))
    _check_arguments(cluster, rows_per_shard, output_format, share)
    task.check()
    settings = JobSettings(
        task=task_spec(task),
        inputs=expand_inputs([str(file) for file in inputs]),
        output_format=output_format,
        rows_per_shard=rows_per_shard,
        skip_invalid=task.skip_invalid,
        id_column=id_column,
        plugins=tuple(plugins),
    )
    with _locked(folder, share):
        job = _open_job(folder, settings)
        key, all_shards = job.key, range(len(job.shards))
        mine = all_shards if share is None else all_shards[share[0] - 1 :: share[1]]
        pending = [n for n in mine if folder.read_record(key, job.shards[n]) is None]
        total = sum(job.shards[n].rows for n in mine)
        left = sum(job.shards[n].rows for n in pending)
        progress = JobProgress(total, total - left, len(mine), len(mine) - len(pending))
        on_event(Event("planned", 0), progress)
        if pending:
            resources = Resources(workers, threads, task.device if device is None else device)
            _process(folder, job, pending, EXECUTORS[cluster], resources, progress, on_event)
    summary = _summary(folder, job, left, progress.lost_workers)
    path = _finish(folder, job) if summary["finished_shards"] == summary["shards"] else None
    return BatchSummary(**summary, complete=path is not None, manifest=path, seconds=round(time.monotonic() - start, 3))


def verify(out: str | Path, *, merge: str | Path | None = None) -> BatchSummary:
    """Check that every row of the inputs is in the output exactly once, and write the manifest.

    Args:
        out: The folder of a job.
        merge: Also write all rows to one file, in the order of the inputs.

    Raises:
        RunError: A shard is missing, or was changed after it was written; `run` processes it again.
    """
    start, folder = time.monotonic(), JobFolder(str(out))
    job = folder.read_job()
    path = _finish(folder, job)
    if merge is not None:
        merge_shards(folder, job, str(merge))
    summary = _summary(folder, job, 0, 0)
    return BatchSummary(**summary, complete=True, manifest=path, seconds=round(time.monotonic() - start, 3))


def merge_shards(folder: JobFolder, job: Job, output: str) -> None:
    """Write the rows of all shards to one file, in the order of the inputs."""
    names = {job.output_format(shard).name for shard in job.shards}
    if len(names) > 1:
        raise ConfigError(f"--merge {output}: the shards have several formats ({', '.join(sorted(names))}).")
    paths = [folder.path(SHARDS_FOLDER, shard.name) for shard in job.shards]
    with open_output(output) as stream:
        if names != {"parquet"}:
            for path in paths:
                with open_binary(path) as shard_stream:
                    shutil.copyfileobj(shard_stream, stream)
            return
        parquet = optional_module("pyarrow.parquet", output)
        schema = parquet.read_schema(paths[0])
        with parquet.ParquetWriter(stream, schema) as writer:
            for path in paths:
                with parquet.ParquetFile(path) as file:
                    if file.schema_arrow != schema:
                        raise ConfigError(f"--merge {output}: {path} has other columns than {paths[0]}.")
                    for batch in file.iter_batches():
                        writer.write_batch(batch)


def _check_arguments(
    cluster: str, rows_per_shard: int, output_format: str | None, share: tuple[int, int] | None
) -> None:
    for name, value, choices in (("cluster", cluster, EXECUTORS), ("output format", output_format, FORMATS)):
        if value is not None and value not in choices:
            raise ConfigError(f"{name} {value}: should be {' or '.join(choices)}.")
    if rows_per_shard < 1:
        raise ConfigError(f"rows_per_shard is {rows_per_shard}; it should be 1 or more.")
    if share is not None and not 1 <= share[0] <= share[1]:
        raise ConfigError(f"--shard {share[0]}/{share[1]}: should be from 1/{share[1]} to {share[1]}/{share[1]}.")


def _open_job(folder: JobFolder, settings: JobSettings) -> Job:
    """Return the plan in the folder, or make it. Processes that make it at the same time make the same."""
    if folder.has_job():
        job = folder.read_job()
        check_settings(job, settings, folder.location)
        return job
    if not settings.inputs:
        raise ConfigError("no input; pass files.")
    job = plan_job(settings)
    folder.write_job(job)
    return job


@contextmanager
def _locked(folder: JobFolder, share: tuple[int, int] | None) -> Iterator[None]:
    """Keep other processes from working on the same shards; not on remote storage, which has no locks."""
    if is_url(folder.location):
        yield
        return
    with explain_write_errors(Path(folder.location)):
        os.makedirs(folder.location, exist_ok=True)
    part = "" if share is None else f"-{share[0]}-of-{share[1]}"
    locks = {".lock": share is not None, f".lock{part}": False}  # whether each is shared with other parts
    with ExitStack() as stack:
        for name, shared in locks.items():
            with explain_write_errors(Path(folder.location)):
                file = stack.enter_context(open(folder.path(name), "w"))
            try:
                lock_file(file, shared=shared)
            except (BlockingIOError, PermissionError):
                raise RunError(
                    f"{folder.location}: another process works on these shards; wait for it, or stop it."
                ) from None
            except OSError:
                pass  # a network file system without locks
        yield


def _process(
    folder: JobFolder,
    job: Job,
    pending: Sequence[int],
    execute: Callable[[JobFolder, Job, Sequence[int], Resources], Iterator[Event]],
    resources: Resources,
    progress: JobProgress,
    on_event: Callable[[Event, JobProgress], None],
) -> None:
    try:
        with closing(execute(folder, job, pending, resources)) as events:  # type: ignore[type-var]
            for event in events:
                progress.update(event, job)
                on_event(event, progress)
    except (KeyboardInterrupt, SystemExit) as stop:
        unfinished = [shard for shard in pending if folder.read_record(job.key, job.shards[shard]) is None]
        finished = progress.total_shards - len(unfinished)  # also those whose event was not received
        raise InterruptedRun(
            f"{folder.location}: stopped; {finished:,} of {progress.total_shards:,} shards are finished. "
            "Run the same command again to continue."
        ) from stop


def _summary(folder: JobFolder, job: Job, processed: int, lost: int) -> dict[str, Any]:
    records = [record for shard in job.shards if (record := folder.read_record(job.key, shard)) is not None]
    skipped: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for record in records:
        skipped.update(record.skipped)
        examples = {**record.examples, **examples}
    return {
        "out": folder.location,
        "task": job.settings.task.name,
        "shards": len(job.shards),
        "finished_shards": len(records),
        "rows": sum(record.rows for record in records),
        "processed_rows": processed,
        "skipped": dict(skipped),
        "examples": examples,
        "truncated": sum(record.truncated for record in records),
        "lost_workers": lost,
    }


def _finish(folder: JobFolder, job: Job) -> str:
    """Verify all shards and write the manifest; return its path."""
    problems = find_problems(folder, job)
    if not problems:
        return folder.write_manifest(manifest(folder, job))
    listed = "; ".join(problems[:LISTED_PROBLEMS])
    more = f"; and {len(problems) - LISTED_PROBLEMS:,} more" if len(problems) > LISTED_PROBLEMS else ""
    raise RunError(
        f"{folder.location}: is not complete: {listed}{more}. Run the same command again, which processes these shards."
    )
