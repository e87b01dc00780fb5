"""The plan of a batch job: its task, its inputs, and the rows of each shard.

Many files are many shards; a file with more rows than `rows_per_shard` is divided. The plan follows from the inputs and
settings alone, so that processes on several machines can make it independently.
"""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any, cast

from pydantic import BaseModel, ConfigDict

from regard.batch.formats import FORMATS, Format, FormatName, RowRange, format_of
from regard.batch.tasks import TASKS, BatchTask
from regard.data.remote import compression_suffix, expand_pattern, is_url, without_compression
from regard.decoding.engines.conversion import model_fingerprint
from regard.errors import ConfigError, DataError
from regard.version import __version__

ERROR_COLUMN = "error"  # of skipped rows, in JSON Lines and Parquet


class Stored(BaseModel):
    """Something stored as JSON."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TaskSpec(Stored):
    """A task, from which any process can create it."""

    name: str
    model: str
    model_sha256: str
    source_column: str
    second_column: str | None
    target_column: str
    options: dict[str, Any]

    def build(self, *, threads: int | None, device: str) -> BatchTask:
        """Create the task."""
        second = {} if self.second_column is None else {"second_column": self.second_column}
        arguments = {**second, **self.options, "threads": threads, "device": device}
        return TASKS[self.name](self.model, self.source_column, self.target_column, **arguments)


class JobSettings(Stored):
    """What the user requests; a job continues only with equal settings."""

    task: TaskSpec
    inputs: tuple[str, ...]
    output_format: FormatName | None
    rows_per_shard: int
    skip_invalid: bool
    id_column: str | None
    plugins: tuple[str, ...] = ()


class InputFile(Stored):
    """An input file as it was when the job was planned."""

    path: str
    rows: int
    sha256: str | None
    version: str
    """Size and time of a local file."""


class Shard(Stored):
    """Rows of an input file that are processed together, and the name of their output."""

    name: str
    input: str
    first_row: int
    rows: int
    offset: int

    @property
    def row_range(self) -> RowRange:
        """Where the rows are."""
        return RowRange(self.input, self.first_row, self.rows, self.offset)


class Job(Stored):
    """The plan of a job."""

    format: int = 1
    regard: str = __version__
    settings: JobSettings
    inputs: tuple[InputFile, ...]
    shards: tuple[Shard, ...]

    @property
    def key(self) -> str:
        """A hash of the plan, by which records of another job are recognized."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:16]

    def output_format(self, shard: Shard) -> Format:
        """Return the format of the output of a shard."""
        return _output_format(self.settings, shard.input)


def task_spec(task: BatchTask) -> TaskSpec:
    """Return how to create a task in another process."""
    second = task.source_columns[1] if len(task.source_columns) > 1 else None
    try:
        options = json.loads(json.dumps(task.options))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"an option of the task cannot be stored ({error}); pass numbers and texts.") from None
    digest = model_fingerprint(Path(task.folder))
    return TaskSpec(
        name=task.name,
        model=task.folder,
        model_sha256=digest,
        source_column=task.source_columns[0],
        second_column=second,
        target_column=task.target_column,
        options=options,
    )


def expand_inputs(inputs: Sequence[str]) -> tuple[str, ...]:
    """Return the files of paths, folders, patterns and URLs, with absolute paths."""
    files: list[str] = []
    for name in inputs:
        if os.path.isdir(name):
            inside = sorted(str(path) for path in Path(name).iterdir() if path.is_file() and path.name[0] not in "._")
            if not inside:
                raise DataError(f"{name}: is a folder without files; pass another.")
            files += inside
        else:
            files += expand_pattern(name)
    files = [file if is_url(file) else os.path.abspath(file) for file in files]
    repeated = next((file for file, count in Counter(files).items() if count > 1), None)
    if repeated is not None:
        raise ConfigError(f"{repeated}: is passed twice, so that its rows would be processed twice; pass it once.")
    return tuple(files)


def plan_job(settings: JobSettings) -> Job:
    """Count the rows of the inputs and divide them into shards."""
    task = settings.task.build(threads=1, device="cpu")
    added = [*task.columns, *([settings.id_column] if settings.id_column else [])]
    for file in settings.inputs:
        _output_format(settings, file)  # raises an error before anything is read
    inputs, shards = [], []
    stems = _unique_stems(settings)
    for file, (stem, suffix) in zip(settings.inputs, stems, strict=True):
        layout = format_of(file).layout(file, settings.rows_per_shard, task.source_columns, added)
        inputs.append(InputFile(path=file, rows=layout.rows, sha256=layout.sha256, version=file_version(file)))
        count = len(layout.offsets)
        for n, offset in enumerate(layout.offsets):
            name = f"{stem}{suffix}" if count == 1 else f"{stem}-{n:05d}-of-{count:05d}{suffix}"
            first = n * settings.rows_per_shard
            rows = min(settings.rows_per_shard, layout.rows - first)
            shards.append(Shard(name=name, input=file, first_row=first + 1, rows=rows, offset=offset))
    return Job(settings=settings, inputs=tuple(inputs), shards=tuple(shards))


def file_version(file: str) -> str:
    """Return size and time of a local file, by which a change is noticed; empty for a URL."""
    if is_url(file):
        return ""
    with suppress(OSError):
        status = os.stat(file)
        return f"{status.st_size} bytes at {status.st_mtime_ns}"
    return "missing"


def _output_format(settings: JobSettings, file: str) -> Format:
    source, task = format_of(file), TASKS[settings.task.name]
    if settings.output_format is None:
        text_results = source.name != "text" or cast(type[BatchTask], task).results_are_lines
        return source if text_results else FORMATS["jsonl"]
    if settings.output_format == "parquet" and source.name == "jsonl":
        raise ConfigError(f"--output-format parquet: {file} is JSON Lines, whose columns have no types; remove it.")
    return FORMATS[settings.output_format]


def _unique_stems(settings: JobSettings) -> list[tuple[str, str]]:
    """Return stem and suffix of the outputs of each input: its name, or as much of its path as makes it unique."""
    suffixes = []
    for file in settings.inputs:
        form, path = _output_format(settings, file), PurePosixPath(without_compression(file))
        same = form is format_of(file)
        suffixes.append(f"{path.suffix}{compression_suffix(file)}" if same else form.suffixes[0])
    paths = [PurePosixPath(without_compression(file).lstrip("/")) for file in settings.inputs]
    parent = os.path.commonpath([path.parent for path in paths])
    for stems in (
        [path.stem for path in paths],
        [path.name for path in paths],
        ["-".join(path.relative_to(parent).with_suffix("").parts) for path in paths],
        ["-".join(path.relative_to(parent).parts) for path in paths],
    ):
        names = list(zip(stems, suffixes, strict=True))
        if len(set(names)) == len(names):
            return names
    raise ConfigError("several inputs would have outputs of the same name; rename one of the files.")


def check_settings(job: Job, settings: JobSettings, location: str) -> None:
    """Raise ConfigError if a job in a folder was planned with other settings, or if an input has changed."""
    planned, requested = _flat(job.settings.model_dump(mode="json")), _flat(settings.model_dump(mode="json"))
    for name in sorted({*planned, *requested}):
        before, now = planned.get(name), requested.get(name)
        if before != now:
            raise ConfigError(
                f"{location}: this job was started with {name} = {_short(before)}, not {_short(now)}; "
                "use the same settings to continue, or another --out."
            )
    for file in job.inputs:
        if file.version and file_version(file.path) != file.version:
            raise DataError(
                f"{file.path}: has changed since the job in {location} was started; restore it, or use another --out."
            )


def _flat(content: Any, name: str = "") -> dict[str, Any]:
    if not isinstance(content, dict):
        return {name: content}
    return {key: value for part in content for key, value in _flat(content[part], f"{name}.{part}".lstrip(".")).items()}


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 100 else f"{text[:100]}…"
