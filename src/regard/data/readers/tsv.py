"""Tab-separated values: sentence pairs, or labeled texts.

The first two columns of a file of pairs are source and target. A file of labeled texts may have a header, with the
columns in any order; without one the columns are label, text and perhaps a second text.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from regard.data.lines import InvalidLines, read_lines
from regard.data.readers.base import READERS, LabeledExample, Pair, Reader, check_labeled, check_pair, count_columns
from regard.errors import DataError

LABEL_NAMES = ("label", "class", "category")
TEXT_NAMES = ("text", "sentence", "content", "text1", "sentence1", "first", "premise")
SECOND_NAMES = ("second", "text2", "sentence2", "hypothesis")


@READERS.register("tsv")
class TsvReader(Reader):
    """Reader of TSV, the default for pairs and labeled texts."""

    suffixes = (".tsv", ".tab")

    def pairs(self, file: str, invalid: InvalidLines) -> Iterator[Pair]:
        """Yield the first two columns."""
        for line in read_lines(file, invalid):
            if line.text is None:
                continue
            columns = line.text.split("\t")
            if len(columns) < 2:
                invalid.add("too few columns", f"{line.location}: no tab; write source, tab, target")
                continue
            yield from check_pair(columns[0], columns[1], (line.location, line.location), invalid)

    def labeled(self, file: str, invalid: InvalidLines) -> Iterator[LabeledExample]:
        """Yield labels with their texts."""
        columns = _Columns()
        for line in read_lines(file, invalid):
            if line.text is None:
                continue
            cells = line.text.split("\t")
            if line.number == 1 and (header := _read_header(cells, line.location)) is not None:
                columns = header
                continue
            if len(cells) < columns.required:
                expected = f"{columns.required} columns, as in its header" if columns.named else "label, tab, text"
                invalid.add("too few columns", f"{line.location}: {count_columns(cells)}; write {expected}")
                continue
            second = cells[columns.second] if columns.second is not None and columns.second < len(cells) else None
            yield from check_labeled(cells[columns.label], cells[columns.text], second, line.location, invalid)


@dataclass(frozen=True)
class _Columns:
    """Indices of the columns of label and texts."""

    label: int = 0
    text: int = 1
    second: int | None = 2
    named: bool = False  # by a header, so that each line must have all of them

    @property
    def required(self) -> int:
        """Number of columns that each line must have."""
        columns = (self.label, self.text, self.second if self.named else None)
        return 1 + max(column for column in columns if column is not None)


def _read_header(cells: Sequence[str], location: str) -> _Columns | None:
    """Return the columns that the first line names; None if it is an example."""
    names = [cell.strip().lower() for cell in cells]
    label, text, second = (_find(names, options) for options in (LABEL_NAMES, TEXT_NAMES, SECOND_NAMES))
    if label is None and names[0] not in (*TEXT_NAMES, *SECOND_NAMES):
        return None
    if label is None or text is None:
        missing, options = ("label", LABEL_NAMES) if label is None else ("text", TEXT_NAMES)
        raise DataError(
            f"{location}: names the columns {', '.join(names)}, but none for the {missing}; "
            f"call it {', '.join(options[:-1])} or {options[-1]}."
        )
    return _Columns(label, text, second, named=True)


def _find(names: Sequence[str], options: Sequence[str]) -> int | None:
    return next((names.index(name) for name in options if name in names), None)
