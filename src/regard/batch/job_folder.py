"""The folder of a batch job: the plan, outputs, a record of each finished shard, and the manifest.

    out/job.json             what is to be done: task, model, inputs, and the rows of each shard; never changed
    out/shards/NAME          the output of a shard, written atomically
    out/records/NAME.json    rows, skipped rows and checksum of a finished shard, written after its output
    out/manifest.json        all of this, when every shard has been verified

A shard without a record is processed again, and its output replaced. So every row is in the output exactly once,
whenever a process is killed, and any number of processes may work on one job.
"""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, TypeVar

from pydantic import ValidationError

from regard.batch.formats import Format, content_sha256
from regard.batch.job import Job, Shard, Stored
from regard.data.remote import file_exists, is_url, open_binary, open_output
from regard.errors import ConfigError, DataError, RunError

JOB_FILE, MANIFEST_FILE, SHARDS_FOLDER, RECORDS_FOLDER = "job.json", "manifest.json", "shards", "records"
MAX_ROWS = 2**62  # for counting without dividing
Content = TypeVar("Content", bound=Stored)


class ShardRecord(Stored):
    """A finished shard."""

    job: str
    name: str
    rows: int
    skipped: dict[str, int]
    """Rows without a result by reason."""
    examples: dict[str, str]
    """The first such row of each reason."""
    truncated: int
    bytes: int
    sha256: str
    """Of the decompressed output."""
    seconds: float
    process: str


class JobFolder:
    """The folder of a job, local or remote."""

    def __init__(self, location: str) -> None:
        self.location = location if is_url(location) else os.path.abspath(location)

    def path(self, *parts: str) -> str:
        """Return the path or URL of a file."""
        return "/".join([self.location.rstrip("/"), *parts])

    def read_job(self) -> Job:
        """Return the plan."""
        return self._read(Job, JOB_FILE)

    def has_job(self) -> bool:
        """Return whether the job has been planned; raise ConfigError for a folder with something else."""
        if file_exists(self.path(JOB_FILE)):
            return True
        if not is_url(self.location) and os.path.isdir(self.location):
            other = next((name for name in sorted(os.listdir(self.location)) if not name.startswith(".")), None)
            if other not in (None, SHARDS_FOLDER, RECORDS_FOLDER):
                raise ConfigError(f"{self.location}: has other files, such as {other}; pass a new folder.")
        return False

    def write_job(self, job: Job) -> None:
        """Store the plan."""
        self._write(job, JOB_FILE)

    def read_record(self, job_key: str, shard: Shard) -> ShardRecord | None:
        """Return the record of a shard; None if it is not finished."""
        if not file_exists(self.path(RECORDS_FOLDER, f"{shard.name}.json")):
            return None
        with suppress(DataError):  # a damaged record: the shard is processed again
            record = self._read(ShardRecord, RECORDS_FOLDER, f"{shard.name}.json")
            return record if record.job == job_key and file_exists(self.path(SHARDS_FOLDER, shard.name)) else None
        return None

    def write_record(self, record: ShardRecord) -> None:
        """Store the record of a shard, after its output."""
        self._write(record, RECORDS_FOLDER, f"{record.name}.json")

    def remove_record(self, shard: Shard) -> None:
        """Remove the record of a shard: it is empty from now on, as remote storage may not allow removals."""
        with open_output(self.path(RECORDS_FOLDER, f"{shard.name}.json")) as stream:
            stream.write(b"{}\n")

    @contextmanager
    def open_shard(self, name: str) -> Iterator["HashingWriter"]:
        """Yield the output of a shard, which appears when it is complete."""
        with open_output(self.path(SHARDS_FOLDER, name)) as stream:
            yield HashingWriter(stream)

    def write_manifest(self, content: dict[str, Any]) -> str:
        """Write the manifest; return its path."""
        with open_output(self.path(MANIFEST_FILE)) as stream:
            stream.write(json.dumps(content, indent=2, ensure_ascii=False).encode() + b"\n")
        return self.path(MANIFEST_FILE)

    def _read(self, kind: type[Content], *parts: str) -> Content:
        path = self.path(*parts)
        try:
            with open_binary(path) as stream:
                return kind.model_validate_json(stream.read())
        except (ValidationError, OSError) as error:
            reason = str(error).splitlines()[0]
            raise DataError(f"{path}: is damaged ({reason}); start over with another --out.") from None

    def _write(self, content: Stored, *parts: str) -> None:
        with open_output(self.path(*parts)) as stream:
            stream.write(content.model_dump_json(indent=2).encode() + b"\n")


class HashingWriter:
    """A stream to write to that hashes and counts what is written."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._digest = hashlib.sha256()
        self.bytes = 0
        self.closed = False  # for pyarrow, which asks for it

    @property
    def sha256(self) -> str:
        """The hash of everything that was written."""
        return self._digest.hexdigest()

    def write(self, content: bytes) -> int:
        """Write bytes."""
        view = memoryview(content)
        self._digest.update(view)
        self.bytes += len(view)
        return self._stream.write(view)

    def tell(self) -> int:
        """Return the number of bytes that were written."""
        return self.bytes

    def flush(self) -> None:
        """Flush the stream."""
        self._stream.flush()

    def writable(self) -> bool:
        """Return True."""
        return True

    def readable(self) -> bool:
        """Return False."""
        return False

    def seekable(self) -> bool:
        """Return False."""
        return False

    def close(self) -> None:
        """Do nothing: the stream is closed by its context."""


def find_problems(folder: JobFolder, job: Job) -> list[str]:
    """Return what is wrong with the output of a job: shards that are missing, or differ from their records.

    The records of shards that differ are removed, so that they are processed again.
    """
    problems, expected = [], Counter[str]()
    for shard in job.shards:
        expected[shard.input] += shard.rows
        record = folder.read_record(job.key, shard)
        if record is None:
            problems.append(f"{shard.name} is missing")
            continue
        problem = _shard_problem(folder, job, shard, record)
        if problem:
            problems.append(f"{shard.name} {problem}")
            folder.remove_record(shard)
    problems += [f"the shards of {file.path} lack rows" for file in job.inputs if expected[file.path] != file.rows]
    return problems


def _shard_problem(folder: JobFolder, job: Job, shard: Shard, record: ShardRecord) -> str | None:
    try:
        digest, rows = _digest_and_rows(folder.path(SHARDS_FOLDER, shard.name), job.output_format(shard))
    except DataError as error:
        return f"cannot be read ({str(error).removesuffix('.')})"
    if digest != record.sha256:
        return "was changed after it was written"
    if not rows == record.rows == shard.rows:
        return f"has {rows:,} rows instead of {shard.rows:,}"
    return None


def _digest_and_rows(path: str, form: Format) -> tuple[str, int]:
    layout = form.layout(path, MAX_ROWS, (), ())
    return layout.sha256 or content_sha256(path), layout.rows  # that of a remote Parquet file is left out


def manifest(folder: JobFolder, job: Job) -> dict[str, Any]:
    """Return the manifest of a complete job: rows, checksums, and which rows each shard has."""
    records = [folder.read_record(job.key, shard) for shard in job.shards]
    finished = [record for record in records if record is not None]
    if len(finished) < len(records):
        raise RunError(f"{folder.location}: {len(records) - len(finished)} shards are not finished.")
    skipped: Counter[str] = Counter()
    for record in finished:
        skipped.update(record.skipped)
    return {
        "format": job.format,
        "regard": job.regard,
        "complete": True,
        "task": job.settings.task.model_dump(mode="json"),
        "rows": sum(record.rows for record in finished),
        "skipped": dict(skipped),
        "truncated": sum(record.truncated for record in finished),
        "inputs": [file.model_dump(mode="json", exclude={"version"}) for file in job.inputs],
        "shards": [
            {
                "name": shard.name,
                "input": shard.input,
                "first_row": shard.first_row,
                "last_row": shard.first_row + shard.rows - 1,
                "rows": record.rows,
                "skipped": record.skipped,
                "examples": record.examples,
                "bytes": record.bytes,
                "sha256": record.sha256,
                "seconds": record.seconds,
                "process": record.process,
            }
            for shard, record in zip(job.shards, finished, strict=True)
        ],
    }
