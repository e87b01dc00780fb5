"""Parquet: a table with named columns, read a few thousand rows at a time.

Columns are found by their names, as in tables with a header; the user may set others. The struct `translation`, as in
the datasets of Hugging Face, holds pairs: `{"en": "…", "it": "…"}`. Only the columns that are needed are read.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

from regard.data.lines import InvalidLines
from regard.data.readers.base import READERS, LabeledExample, Pair, Reader, check_labeled, check_pair
from regard.data.readers.columns import find_named_columns
from regard.data.remote import compression_suffix, open_seekable, optional_module
from regard.errors import DataError

ROWS_AT_ONCE = 4096
TRANSLATION = "translation"


@READERS.register("parquet")
class ParquetReader(Reader):
    """Reader of Parquet files."""

    suffixes = (".parquet", ".pq")
    has_columns = True

    def pairs(self, file: str, invalid: InvalidLines) -> Iterator[Pair]:
        """Yield source and target."""
        for location, cells in self._rows(file, ("source", "target"), invalid):
            source, target = cells
            if source is not None and target is not None:
                yield from check_pair(source, target, (location, location), invalid)
            else:
                invalid.add("missing field", f"{location}: no text in a column of the pair; fill it in")

    def documents(self, file: str, invalid: InvalidLines) -> Iterator[Iterator[str]]:
        """Yield each text as a document."""
        for location, (text,) in self._rows(file, ("text",), invalid):
            if text is not None:
                yield iter([text])
            else:
                invalid.add("missing field", f"{location}: no text in the column; fill it in")

    def labeled(self, file: str, invalid: InvalidLines) -> Iterator[LabeledExample]:
        """Yield labels, which may be numbers, with their texts."""
        for location, (label, text, second) in self._rows(file, ("label", "text", "second"), invalid):
            if label is None or text is None:
                missing = "label" if label is None else "text"
                invalid.add("missing field", f"{location}: no {missing}; fill it in")
                continue
            yield from check_labeled(label, text, second, location, invalid)

    def _rows(
        self, file: str, roles: Sequence[str], invalid: InvalidLines
    ) -> Iterator[tuple[str, tuple[str | None, ...]]]:
        """Yield the cells of these roles of each row, with its location; None for cells that are not text."""
        if suffix := compression_suffix(file):
            raise DataError(f"{file}: Parquet is compressed already and needs random access; decompress the {suffix}.")
        parquet = optional_module("pyarrow.parquet", file)
        with ExitStack() as stack:
            stream = stack.enter_context(open_seekable(file))
            try:
                table = parquet.ParquetFile(stream)
                paths = self._columns(table.schema_arrow, roles, file, invalid)
                number = 0
                needed = {path[0] for path in paths if path}
                names = [name for name in table.schema_arrow.names if name in needed]  # as they follow in the file
                for batch in _batches(table, names):
                    columns = [_cells(batch, path) for path in paths]
                    for cells in zip(*columns, strict=True):
                        number += 1
                        yield f"{file}:{number}", cells
                stream.finish()
            except (ValueError, OSError, KeyError) as error:  # of pyarrow
                if isinstance(error, UnicodeDecodeError):
                    raise DataError(f"{file}: has a column that is not UTF-8; convert it.") from None
                reason = str(error).splitlines()[0].rstrip(".")
                raise DataError(f"{file}: is a damaged Parquet file ({reason}); copy it again.") from None

    def _columns(
        self, schema: Any, roles: Sequence[str], file: str, invalid: InvalidLines
    ) -> list[tuple[str, ...] | None]:
        """Return the path of the column of each role: a name, or two for a field of `translation`."""
        names = list(schema.names)
        if "source" in roles and TRANSLATION in names:
            inner = schema.field(TRANSLATION).type
            fields = [inner.field(n).name for n in range(inner.num_fields)]
            if fields:
                chosen = [self.columns.get(role, fields[n] if n < len(fields) else "") for n, role in enumerate(roles)]
                missing = next((name for name in chosen if name not in fields), None)
                if missing is not None:
                    raise DataError(
                        f"{file}: has no {missing!r} in the column {TRANSLATION}; it has {', '.join(fields)}."
                    )
                if not self.columns:
                    invalid.note(f"{file}: source = {chosen[0]!r}, target = {chosen[1]!r} of its column {TRANSLATION}")
                return [(TRANSLATION, name) for name in chosen]
        indices = find_named_columns(names, roles, self.columns, file)
        return [(names[indices[role]],) if role in indices else None for role in roles]


def _batches(table: Any, names: Sequence[str]) -> Iterator[Any]:
    """Yield the rows of a table, read in the order of the file: a batch of two row groups would go back and forth."""
    for group in range(table.num_row_groups):
        yield from table.iter_batches(ROWS_AT_ONCE, row_groups=[group], columns=list(names), use_threads=False)


def _cells(batch: Any, path: tuple[str, ...] | None) -> list[str | None]:
    """Return a column as texts; numbers are written out."""
    if path is None:
        return [None] * batch.num_rows
    values = batch.column(path[0]).to_pylist()
    if len(path) > 1:
        values = [None if value is None else value.get(path[1]) for value in values]
    return [
        value
        if isinstance(value, str)
        else str(value)
        if isinstance(value, int) and not isinstance(value, bool)
        else None
        for value in values
    ]
