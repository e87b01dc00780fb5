"""Processing of a shard, and the worker process of local jobs: `python -m regard.batch.worker OUT`.

A worker reads the numbers of shards from stdin, one per line, and writes messages to stdout as JSON Lines:

    {"rows": 2048}                                   so many more rows of the shard are done
    {"record": {…}}                                  the shard is finished
    {"error": "DataError", "message": "…"}           the shard cannot be processed

It ends when stdin is closed, also in the middle of a shard: it does not outlive the process that started it.
"""

import argparse
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from queue import SimpleQueue
from types import FrameType

from regard import errors
from regard.batch.formats import RowBatch, format_of
from regard.batch.job import ERROR_COLUMN, Job, Shard
from regard.batch.job_folder import JobFolder, ShardRecord
from regard.batch.tasks import BatchResults, BatchTask, ColumnType
from regard.data.lines import InvalidLines
from regard.errors import DataError, RegardError

SKIP_HINT = ", or skip such rows with --skip-invalid"


class ShardProcessor:
    """Processes shards of a job, one after the other, with one loaded model."""

    def __init__(self, out: str, *, threads: int | None, device: str = "cpu") -> None:
        self.folder = JobFolder(out)
        self.job: Job = self.folder.read_job()
        self._key = self.job.key
        load_plugins(self.job)
        self.task: BatchTask = self.job.settings.task.build(threads=threads, device=device)

    def process(self, number: int, progress: Callable[[int], None] = lambda rows: None) -> ShardRecord:
        """Process a shard, write its output and its record, and return the record."""
        shard, start = self.job.shards[number], time.monotonic()
        invalid = InvalidLines(self.job.settings.skip_invalid, SKIP_HINT)
        added = self._added_columns(shard)
        rows = truncated = 0
        source, form = shard.row_range, self.job.output_format(shard)
        columns = self.task.source_columns
        with self.folder.open_shard(shard.name) as output:
            with form.writer(output, added, source, columns) as write:  # type: ignore[arg-type]  # has what it uses
                for batch in format_of(shard.input).read(source, columns, self.task.rows_at_once):
                    results = self._process_batch(batch, shard, invalid)
                    write(batch, results.columns)
                    rows, truncated = rows + len(batch), truncated + results.truncated
                    progress(len(batch))
            if rows != shard.rows:
                raise DataError(
                    f"{shard.input}: has other rows than when the job started; restore it, or use another --out."
                )
        record = ShardRecord(
            job=self._key,
            name=shard.name,
            rows=rows,
            skipped=dict(invalid.counts),
            examples=invalid.examples,
            truncated=truncated,
            bytes=output.bytes,
            sha256=output.sha256,
            seconds=round(time.monotonic() - start, 3),
            process=f"{socket.gethostname()}:{os.getpid()}",
        )
        self.folder.write_record(record)
        return record

    def _added_columns(self, shard: Shard) -> dict[str, ColumnType]:
        settings = self.job.settings
        ids: dict[str, ColumnType] = {settings.id_column: "text"} if settings.id_column else {}
        has_errors = settings.skip_invalid and self.job.output_format(shard).name != "text"
        return {**ids, **self.task.columns, **({ERROR_COLUMN: "text"} if has_errors else {})}

    def _process_batch(self, batch: RowBatch, shard: Shard, invalid: InvalidLines) -> BatchResults:
        results = self.task.process_columns(batch.columns)
        errors = {**results.errors, **batch.errors}  # what cannot be read has no text either
        messages: list[str | None] = [None] * len(batch)
        for n in sorted(errors):
            messages[n] = errors[n].message
            invalid.add(errors[n].reason, f"{shard.input}:{batch.first_row + n}: {errors[n].message}")
        columns = {**results.columns, ERROR_COLUMN: messages}
        if self.job.settings.id_column:
            columns[self.job.settings.id_column] = [f"{shard.input}:{batch.first_row + n}" for n in range(len(batch))]
        return BatchResults(columns, errors, results.truncated)


def load_plugins(job: Job) -> None:
    """Import the modules of `--plugin`: installed ones, or files in the current folder."""
    if job.settings.plugins:
        sys.path.insert(0, os.getcwd())
        for name in job.settings.plugins:
            import_module(name)


def error_class(name: str) -> type[RegardError]:
    """Return an exception class of the package by name.

    >>> error_class("DataError"), error_class("ZeroDivisionError")
    (<class 'regard.errors.DataError'>, <class 'regard.errors.RunError'>)
    """
    found = getattr(errors, name, None)
    return found if isinstance(found, type) and issubclass(found, RegardError) else errors.RunError


def main() -> None:
    """Process shards until stdin is closed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    messages = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is not a message
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
    signal.signal(signal.SIGTERM, _exit)

    def send(**message: object) -> None:
        messages.write(json.dumps(message) + "\n")
        messages.flush()

    numbers = _ShardNumbers()
    try:
        processor = ShardProcessor(arguments.out, threads=arguments.threads, device=arguments.device)
        while True:
            record = processor.process(numbers.next(), lambda rows: send(rows=rows))
            send(record=record.model_dump(mode="json"))
    except RegardError as error:
        send(error=type(error).__name__, message=str(error))
    except OSError as error:
        send(error="DataError", message=f"{error.filename or 'the output'}: {error.strerror or error}.")


def _exit(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)  # removes temporary files


class _ShardNumbers:
    """Reads shard numbers from stdin in a thread, which ends the process when stdin is closed."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[int] = SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def next(self) -> int:
        """Wait for the next number."""
        return self._queue.get()

    def _read(self) -> None:
        with open(0, "rb", closefd=False) as stream:  # Python cannot exit while a thread blocks in `sys.stdin` itself
            for line in stream:
                self._queue.put(int(line))
        os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
