"""File formats of batch jobs: text, JSON Lines and Parquet. Each counts, reads and writes rows.

A row keeps its place: the output of a shard has the rows of its input in order, also those without a result. Lines are
found again by their byte offsets, so that a shard in the middle of a large file is read without reading what precedes
it; compressed files are decompressed from the beginning.
"""

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, BinaryIO, ClassVar, Literal

from regard.batch.tasks import ColumnType, RowError
from regard.data.digests import READ_BYTES
from regard.data.lines import MAX_LINE_BYTES
from regard.data.remote import (
    READ_ERRORS,
    compression_suffix,
    is_url,
    open_binary,
    open_seekable,
    optional_module,
    read_error,
    without_compression,
)
from regard.errors import ConfigError, DataError

FormatName = Literal["text", "jsonl", "parquet"]
PAIR_SEPARATOR = "\t"
VECTOR_DIGITS, PROBABILITY_DIGITS = 7, 6
Write = Callable[["RowBatch", Mapping[str, list[Any]]], None]
"""Writes rows with the columns that are added to them."""


@dataclass(frozen=True)
class FileLayout:
    """The rows of a file, and where its shards begin."""

    rows: int
    offsets: list[int]
    """Of each shard, in bytes of the decompressed file; 0 where rows are found by their number."""
    sha256: str | None
    """Of the decompressed content."""


@dataclass(frozen=True)
class RowRange:
    """Consecutive rows of a file."""

    file: str
    first_row: int
    """Its number, counted from 1."""
    rows: int
    offset: int = 0


@dataclass(frozen=True)
class RowBatch:
    """Rows that were read together."""

    first_row: int
    columns: Mapping[str, list[Any]]
    """The values of the columns that the task reads."""
    records: Callable[[], list[dict[str, Any]]]
    """Returns the rows with all columns."""
    errors: dict[int, RowError] = field(default_factory=dict)
    """Rows that cannot be read, by index."""
    table: Any = None
    """The rows as a pyarrow table, if they are from a Parquet file."""

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))


class Format(ABC):
    """A file format."""

    name: ClassVar[FormatName]
    suffixes: ClassVar[tuple[str, ...]]

    @abstractmethod
    def layout(self, file: str, rows_per_shard: int, columns: Sequence[str], added: Iterable[str]) -> FileLayout:
        """Count the rows of a file; raise an error if it lacks a column, or already has one that is to be added."""

    @abstractmethod
    def read(self, rows: RowRange, columns: Sequence[str], size: int) -> Iterator[RowBatch]:
        """Yield rows, at most `size` at a time."""

    @abstractmethod
    def writer(
        self, stream: BinaryIO, added: Mapping[str, ColumnType], source: RowRange, columns: Sequence[str]
    ) -> AbstractContextManager[Write]:
        """Return a context manager that yields the function that writes rows; see `ShardProcessor.process`."""


class LineFormat(Format):
    """Formats with one row per line."""

    def layout(self, file: str, rows_per_shard: int, columns: Sequence[str], added: Iterable[str]) -> FileLayout:
        """Count lines."""
        rows, position, last, offsets, digest = 0, 0, b"\n", [0], hashlib.sha256()
        try:
            with open_binary(file) as stream:
                while chunk := stream.read(READ_BYTES):
                    digest.update(chunk)
                    ends = chunk.count(b"\n")
                    if rows % rows_per_shard + ends >= rows_per_shard:  # shards begin in this chunk
                        for n, match in enumerate(re.finditer(b"\n", chunk), start=rows + 1):
                            if n % rows_per_shard == 0:
                                offsets.append(position + match.end())
                    rows, position, last = rows + ends, position + len(chunk), chunk[-1:]
        except READ_ERRORS as error:
            raise read_error(file, error) from None
        rows += last != b"\n"  # the last line has no line end
        return FileLayout(rows, [offset for offset in offsets if offset < max(position, 1)], digest.hexdigest())

    def read(self, rows: RowRange, columns: Sequence[str], size: int) -> Iterator[RowBatch]:
        """Yield lines."""
        try:
            with open_binary(rows.file) as stream:
                _skip(stream, rows.offset)
                for first in range(0, rows.rows, size):
                    lines = [_read_line(stream, rows.first_row + n) for n in range(first, min(first + size, rows.rows))]
                    if None in lines:
                        raise DataError(
                            f"{rows.file}: has fewer rows than when the job started; restore it, "
                            "or start over with another --out."
                        )
                    yield self._batch(rows.first_row + first, lines, columns)  # type: ignore[arg-type]
        except READ_ERRORS as error:
            raise read_error(rows.file, error) from None

    @abstractmethod
    def _batch(self, first_row: int, lines: "list[str | RowError]", columns: Sequence[str]) -> RowBatch:
        """Parse lines."""


def _skip(stream: BinaryIO, offset: int) -> None:
    if stream.seekable():
        stream.seek(offset)  # gzip and xz decompress up to there
        return
    while offset > 0:
        offset -= len(stream.read(min(offset, READ_BYTES))) or offset


def _read_line(stream: BinaryIO, number: int) -> str | RowError | None:
    """Return a line without its end, or why it is invalid; None at the end of the file."""
    raw = stream.readline(MAX_LINE_BYTES + 1)
    if not raw:
        return None
    if len(raw) > MAX_LINE_BYTES:
        while raw and not raw.endswith(b"\n"):
            raw = stream.readline(MAX_LINE_BYTES + 1)
        return RowError("too long to read", f"longer than {MAX_LINE_BYTES:,} bytes; split it into lines")
    try:
        text = raw.removesuffix(b"\n").removesuffix(b"\r").decode()
    except UnicodeDecodeError as error:
        problem = f"not UTF-8 (byte {error.start + 1} of the line is 0x{raw[error.start]:02x})"
        return RowError("not UTF-8", f"{problem}; convert the file")
    return text.removeprefix("\ufeff") if number == 1 else text


class TextLines(LineFormat):
    """Plain text: a row per line; a tab separates the texts of a pair."""

    name = "text"
    suffixes = (".txt",)

    def _batch(self, first_row: int, lines: "list[str | RowError]", columns: Sequence[str]) -> RowBatch:
        errors = {n: line for n, line in enumerate(lines) if isinstance(line, RowError)}
        texts = [None if isinstance(line, RowError) else line for line in lines]
        if len(columns) == 1:
            values: dict[str, list[Any]] = {columns[0]: texts}
        else:
            pairs = [("", "") if text is None else text.split(PAIR_SEPARATOR, 1) for text in texts]
            for n, pair in enumerate(pairs):
                if len(pair) < len(columns):
                    errors[n] = RowError("no pair", "no tab, which separates the texts of a pair; add the second text")
            values = {
                name: [None if n in errors else pair[place] for n, pair in enumerate(pairs)]
                for place, name in enumerate(columns)
            }

        def records() -> list[dict[str, Any]]:
            return [{name: values[name][n] for name in columns} for n in range(len(lines))]

        return RowBatch(first_row, values, records, errors)

    @contextmanager
    def writer(
        self, stream: BinaryIO, added: Mapping[str, ColumnType], source: RowRange, columns: Sequence[str]
    ) -> Iterator[Write]:
        """Write the added columns, separated by tabs."""

        def write(batch: RowBatch, results: Mapping[str, list[Any]]) -> None:
            for n in range(len(batch)):
                cells = (_text_cell(results[name][n], kind) for name, kind in added.items())
                stream.write(("\t".join(cells) + "\n").encode())

        yield write


def _text_cell(value: Any, kind: ColumnType) -> str:
    if value is None:
        return ""
    if kind == "vector":
        return "\t".join(f"{number:.{VECTOR_DIGITS}g}" for number in value)
    if kind == "probabilities":
        ordered = sorted(value.items(), key=lambda entry: -entry[1])
        return "\t".join(f"{label}:{probability:.4f}" for label, probability in ordered)
    return str(value).replace("\r", " ").replace("\n", " ")


class JsonLines(LineFormat):
    """JSON Lines: a row per line, an object with named columns, all of which are kept."""

    name = "jsonl"
    suffixes = (".jsonl", ".ndjson")

    def _batch(self, first_row: int, lines: "list[str | RowError]", columns: Sequence[str]) -> RowBatch:
        rows = [line if isinstance(line, RowError) else _parse_object(line) for line in lines]
        errors = {n: row for n, row in enumerate(rows) if isinstance(row, RowError)}
        for n, row in enumerate(rows):
            missing = next((name for name in columns if name not in row), None) if isinstance(row, dict) else None
            if missing is not None:
                listed = ", ".join(row)  # type: ignore[arg-type]
                errors[n] = RowError("missing column", f"no column {missing!r}; it has {listed or 'none'}")
        objects: list[dict[str, Any]] = [{} if isinstance(row, RowError) else row for row in rows]
        values = {name: [row.get(name) for row in objects] for name in columns}
        return RowBatch(first_row, values, lambda: objects, errors)

    @contextmanager
    def writer(
        self, stream: BinaryIO, added: Mapping[str, ColumnType], source: RowRange, columns: Sequence[str]
    ) -> Iterator[Write]:
        """Write all columns."""

        def write(batch: RowBatch, results: Mapping[str, list[Any]]) -> None:
            for n, record in enumerate(batch.records()):
                taken = next((name for name in added if name in record), None)
                if taken is not None:
                    raise DataError(
                        f"{source.file}:{batch.first_row + n}: has the column {taken!r} already; "
                        "choose another name for the column that is added."
                    )
                cells = {name: _json_cell(results[name][n], kind) for name, kind in added.items()}
                stream.write(_json_line({**record, **cells}))

        yield write


def _parse_object(line: str) -> dict[str, Any] | RowError:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        return RowError("not JSON", f"not JSON ({error}); fix it")
    return row if isinstance(row, dict) else RowError("not JSON", "not a JSON object; write {…} with named columns")


def _json_cell(value: Any, kind: ColumnType) -> Any:
    if value is None:
        return None
    if kind == "vector":
        return [float(f"{number:.{VECTOR_DIGITS}g}") for number in value]
    if kind == "probabilities":
        return {label: round(probability, PROBABILITY_DIGITS) for label, probability in value.items()}
    return value


def _json_line(record: dict[str, Any]) -> bytes:
    try:
        return json.dumps(record, ensure_ascii=False, default=str).encode() + b"\n"
    except UnicodeEncodeError:  # half of a surrogate pair, in a column that is only copied
        return json.dumps(record, default=str).encode() + b"\n"


class ParquetTables(Format):
    """Parquet: a table with named columns, all of which are kept with their types."""

    name = "parquet"
    suffixes = (".parquet", ".pq")

    def layout(self, file: str, rows_per_shard: int, columns: Sequence[str], added: Iterable[str]) -> FileLayout:
        """Read the number of rows and the names of columns."""
        if suffix := compression_suffix(file):
            raise DataError(f"{file}: Parquet is compressed already and needs random access; decompress the {suffix}.")
        with _open_parquet(file) as table:
            names, rows = table.schema_arrow.names, table.metadata.num_rows
        missing = next((name for name in columns if name not in names), None)
        if missing is not None:
            raise DataError(f"{file}: has no column {missing!r}; its columns are {', '.join(names)}.")
        taken = next((name for name in added if name in names), None)
        if taken is not None:
            raise ConfigError(f"{file}: has the column {taken!r} already; choose another name for the added column.")
        return FileLayout(
            rows, [0] * max(1, -(-rows // rows_per_shard)), None if is_url(file) else content_sha256(file)
        )

    def read(self, rows: RowRange, columns: Sequence[str], size: int) -> Iterator[RowBatch]:
        """Yield rows of the row groups in which they are."""
        import pyarrow as pa

        start, end = rows.first_row - 1, rows.first_row - 1 + rows.rows
        with _open_parquet(rows.file) as parquet:
            sizes = [parquet.metadata.row_group(n).num_rows for n in range(parquet.metadata.num_row_groups)]
            starts = [sum(sizes[:n]) for n in range(len(sizes))]
            groups = [n for n in range(len(sizes)) if starts[n] < end and starts[n] + sizes[n] > start]
            position = starts[groups[0]] if groups else 0
            for batch in parquet.iter_batches(size, row_groups=groups, use_threads=False):
                first = max(position, start)
                count = min(position + batch.num_rows, end) - first
                if count > 0:
                    table = pa.Table.from_batches([batch.slice(first - position, count)])
                    values = {name: table.column(name).to_pylist() for name in columns}
                    yield RowBatch(first + 1, values, table.to_pylist, table=table)
                position += batch.num_rows

    @contextmanager
    def writer(
        self, stream: BinaryIO, added: Mapping[str, ColumnType], source: RowRange, columns: Sequence[str]
    ) -> Iterator[Write]:
        """Write all columns with the types of the input."""
        pa, parquet = optional_module("pyarrow", source.file), optional_module("pyarrow.parquet", source.file)
        types = {
            "text": pa.string(),
            "vector": pa.list_(pa.float32()),
            "probabilities": pa.map_(pa.string(), pa.float64()),
        }
        output = None

        def append(table: Any, results: Mapping[str, list[Any]]) -> None:
            nonlocal output
            for name, kind in added.items():
                values = results[name]
                if kind == "probabilities":
                    values = [None if value is None else list(value.items()) for value in values]
                table = table.append_column(pa.field(name, types[kind]), pa.array(values, types[kind]))
            output = output or parquet.ParquetWriter(stream, table.schema)
            output.write_table(table)

        def write(batch: RowBatch, results: Mapping[str, list[Any]]) -> None:
            append(_text_table(pa, batch.columns) if batch.table is None else batch.table, results)

        yield write
        if output is None:  # no rows
            if format_of(source.file) is self:
                with _open_parquet(source.file) as file:
                    table = file.schema_arrow.empty_table()
            else:
                table = _text_table(pa, {name: [] for name in columns})
            append(table, {name: [] for name in added})
        assert output is not None
        output.close()


def _text_table(pa: Any, columns: Mapping[str, list[Any]]) -> Any:
    return pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()})


@contextmanager
def _open_parquet(file: str) -> Iterator[Any]:
    parquet = optional_module("pyarrow.parquet", file)
    with open_seekable(file) as stream:
        try:
            yield parquet.ParquetFile(stream)
        except (ValueError, OSError) as error:  # of pyarrow
            reason = str(error).splitlines()[0].rstrip(".")
            raise DataError(f"{file}: is a damaged Parquet file ({reason}); copy it again.") from None


def content_sha256(file: str) -> str:
    """Return the hash of the decompressed content of a file."""
    with open_binary(file) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]  # all have readinto


FORMATS: dict[FormatName, Format] = {form.name: form for form in (TextLines(), JsonLines(), ParquetTables())}
TABLE_SUFFIXES = (".csv", ".tsv")


def format_of(file: str) -> Format:
    """Return the format of a file by its suffix; files with other suffixes are text.

    >>> format_of("a.jsonl.gz").name, format_of("s3://bucket/a.parquet").name, format_of("train.en").name
    ('jsonl', 'parquet', 'text')
    """
    suffix = PurePosixPath(without_compression(file)).suffix.lower()
    if suffix in TABLE_SUFFIXES:
        raise ConfigError(
            f"{file}: batch jobs do not read {suffix} files; convert it to JSON Lines or Parquet, or pass a .txt file "
            "with one text per line."
        )
    return next((form for form in FORMATS.values() if suffix in form.suffixes), FORMATS["text"])
