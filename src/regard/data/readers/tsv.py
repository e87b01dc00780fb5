"""Tables: tab-separated values (TSV) and CSV with quoting, of sentence pairs, labeled texts or documents.

Without a header and without columns set by the user, pairs are in the first two columns, and labeled texts are label,
text and perhaps a second text, unless another column repeats as labels do. Documents are read from a table only if a
header names their column or the user does; otherwise the file is plain text.
"""

import csv
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import ClassVar

from regard.data.lines import STANDARD_INPUT, InvalidLines, Line, read_lines
from regard.data.readers.base import (
    READERS,
    LabeledExample,
    Pair,
    Reader,
    TextReader,
    check_labeled,
    check_pair,
    count_columns,
)
from regard.data.readers.columns import SAMPLE_ROWS, ColumnLayout, find_layout, is_header, may_be_id, normalize_name

DELIMITERS = ",;\t|"  # of CSV, the most usual first
DELIMITER_SAMPLE = 20  # lines from which the delimiter of CSV is found
Row = tuple[Line, list[str]]  # the line for its location, and the cells


@READERS.register("tsv")
class TsvReader(Reader):
    """Reader of TSV, the default for pairs and labeled texts."""

    suffixes: ClassVar[tuple[str, ...]] = (".tsv", ".tab")
    has_columns = True
    example_rows: ClassVar[dict[str, str]] = {"pairs": "source, tab, target", "labeled": "label, tab, text"}

    def pairs(self, file: str, invalid: InvalidLines) -> Iterator[Pair]:
        """Yield source and target."""
        rows, layout = self._open(file, invalid, ("source", "target"))
        if layout is None:
            return
        source, target, required = layout.indices["source"], layout.indices["target"], layout.required
        for line, cells in rows:
            if len(cells) < required:
                self._too_few(line, cells, layout, "pairs", invalid)
                continue
            location = line.location
            yield from check_pair(cells[source], cells[target], (location, location), invalid)

    def labeled(self, file: str, invalid: InvalidLines) -> Iterator[LabeledExample]:
        """Yield labels with their texts."""
        rows, layout = self._open(file, invalid, ("label", "text", "second"))
        if layout is None:
            return
        label, text, second = (layout.indices.get(role, -1) for role in ("label", "text", "second"))
        for line, cells in rows:
            if len(cells) < layout.required:
                self._too_few(line, cells, layout, "labeled", invalid)
                continue
            second_text = cells[second] if 0 <= second < len(cells) else None
            yield from check_labeled(cells[label], cells[text], second_text, line.location, invalid)

    def documents(self, file: str, invalid: InvalidLines) -> Iterator[Iterator[str]]:
        """Yield the cells of the text column, or the file as plain text if it has none."""
        if self._has_text_column(file, invalid):
            return (iter([text]) for text in self._text_cells(file, invalid))
        return TextReader().documents(file, invalid)

    def texts(self, file: str, invalid: InvalidLines) -> Iterator[str]:
        """Yield the cells of the text column, or each line if there is none."""
        if self._has_text_column(file, invalid):
            return self._text_cells(file, invalid)
        return TextReader().texts(file, invalid)

    def rows(self, file: str, invalid: InvalidLines) -> Iterator[Row]:
        """Yield the cells of each line. The quoting of spreadsheets is undone: `"a ""b"" c"` is `a "b" c`."""
        for line in read_lines(file, invalid):
            text = line.text
            if text is not None:
                cells = text.split("\t")
                yield line, ([_unquote(cell) for cell in cells] if '""' in text else cells)

    def _open(
        self, file: str, invalid: InvalidLines, roles: Sequence[str]
    ) -> tuple[Iterator[Row], ColumnLayout | None]:
        """Return the rows after the header, and where the columns are; None for an empty file."""
        rows = self.rows(file, invalid)
        sample = list(islice(rows, 1))
        if not sample:
            return rows, None
        line, first = sample[0]
        if file != STANDARD_INPUT and ("label" in roles or any(map(may_be_id, first))):  # columns of labels and ids
            sample += islice(rows, SAMPLE_ROWS - 1)
        layout = find_layout([cells for _, cells in sample], roles, self.columns, line.location)
        note = layout.note(line.file, len(first), chosen=bool(self.columns))
        if note is not None:
            invalid.note(note)
        return chain(sample[1:] if layout.header is not None else sample, rows), layout

    def _too_few(
        self, line: Line, cells: list[str], layout: ColumnLayout, examples: str, invalid: InvalidLines
    ) -> None:
        if layout.header is not None:
            problem = f"{count_columns(cells)}; write {layout.required} columns, as in its header"
        elif self.columns or layout.ids:
            problem = f"{count_columns(cells)}; write {layout.required}"
        elif examples == "pairs" and type(self) is TsvReader:
            problem = f"no tab; write {self.example_rows[examples]}"
        else:
            problem = f"{count_columns(cells)}; write {self.example_rows[examples]}"
        invalid.add("too few columns", f"{line.location}: {problem}")

    def _has_text_column(self, file: str, invalid: InvalidLines) -> bool:
        if self.columns:
            return True
        _, first = next(self.rows(file, InvalidLines(skip=True)), (None, []))
        names = [normalize_name(cell) for cell in first]
        if is_header(names, ("text",)):
            return True
        if len(names) > 1:
            invalid.note(f"{file}: is read as plain text; --text-column reads one column of it")
        return False

    def _text_cells(self, file: str, invalid: InvalidLines) -> Iterator[str]:
        rows, layout = self._open(file, invalid, ("text",))
        if layout is None:
            return
        text = layout.indices["text"]
        for line, cells in rows:
            if len(cells) < layout.required:
                self._too_few(line, cells, layout, "documents", invalid)
            else:
                yield cells[text]


@READERS.register("csv")
class CsvReader(TsvReader):
    """Reader of CSV: cells in quotes may hold delimiters and line ends; the delimiter is found in the first lines."""

    suffixes = (".csv",)
    example_rows: ClassVar[dict[str, str]] = {"pairs": "source, comma, target", "labeled": "label, comma, text"}

    def rows(self, file: str, invalid: InvalidLines) -> Iterator[Row]:
        """Yield the cells of each record that is not empty."""
        lines = read_lines(file, invalid)
        sample = list(islice(lines, DELIMITER_SAMPLE))
        if not sample:
            return
        delimiter = find_delimiter([line.text for line in sample if line.text is not None])
        current = previous = sample[0]

        def texts() -> Iterator[str]:
            nonlocal current
            for current in chain(sample, lines):
                if current.text is not None:
                    yield f"{current.text}\n"

        records = csv.reader(texts(), delimiter=delimiter, strict=True)
        end = 0
        while True:
            try:
                cells = next(records)
            except StopIteration:
                return
            except csv.Error as error:
                start = Line(None, previous.file, end + 1)
                end = current.number
                invalid.add("broken quoting", f"{start.location}: cannot be read as CSV ({error}); check its quotes")
                continue
            start, end = (current if current.number == end + 1 else Line(None, current.file, end + 1)), current.number
            if cells:
                yield start, cells


def find_delimiter(lines: Sequence[str]) -> str:
    """Return the delimiter that splits all lines into the same number of columns, more than one; else a comma.

    >>> find_delimiter(["Hello, you;Ciao a te", "Yes;Sì"]), find_delimiter(["a,b", "c,d"])
    (';', ',')
    """
    for delimiter in DELIMITERS:
        widths = {len(cells) for cells in _parse(lines, delimiter) if cells}
        if len(widths) == 1 and max(widths) > 1:
            return delimiter
    return DELIMITERS[0]


def _parse(lines: Sequence[str], delimiter: str) -> list[list[str]]:
    """Parse the first lines of a file; the last record is left out if the file goes on, because it may too."""
    try:
        records = list(csv.reader((f"{line}\n" for line in lines), delimiter=delimiter))
    except csv.Error:
        return []
    return records[:-1] if len(lines) >= DELIMITER_SAMPLE else records


def _unquote(cell: str) -> str:
    """Return a cell without the quotes of a spreadsheet, which doubles quotes inside.

    >>> _unquote('"a ""b"" c"'), _unquote('"Yes," she said, "I do."')
    ('a "b" c', '"Yes," she said, "I do."')
    """
    inner = cell[1:-1]
    if len(cell) < 2 or cell[0] != '"' or cell[-1] != '"' or '"' in inner.replace('""', "") or '""' not in inner:
        return cell
    return inner.replace('""', '"')
