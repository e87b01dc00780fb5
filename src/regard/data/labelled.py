"""Labelled texts: a label and one text, or a label and two, from TSV or JSON Lines.

A TSV file may name its columns in its first line, in any order; without such a line they are label, text and perhaps a
second text. In JSON Lines the keys are `label`, `text` and `second`, or the other names that columns may have.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from regard.data.corpus import format_of
from regard.data.lines import InvalidLines, Line, check_gzip_on_error, read_lines
from regard.errors import DataError

LABEL = ("label", "class", "category")
TEXT = ("text", "sentence", "content", "text1", "sentence1", "first", "premise")
SECOND = ("second", "text2", "sentence2", "hypothesis")


@dataclass(frozen=True)
class LabeledExample:
    """A text, or a pair of texts, and what it is labelled as."""

    label: str
    text: str
    second: str | None = None
    location: str = field(default="", compare=False)  # file:line

    @property
    def texts(self) -> tuple[str, ...]:
        """The one text, or the two."""
        return (self.text,) if self.second is None else (self.text, self.second)

    @property
    def labels(self) -> tuple[str, ...]:
        """Its label, alone."""
        return (self.label,)


def read_labeled(files: Iterable[str], faults: InvalidLines) -> Iterator[LabeledExample]:
    """The labelled texts of files, in order."""
    from regard.data.readers.builtin import builtin_labeled, is_builtin

    for file in files:
        if is_builtin(file):
            yield from builtin_labeled(file)
            continue
        read = _objects if format_of(file) == "jsonl" else _table
        with check_gzip_on_error(file):
            yield from read(read_lines(file, faults), faults)


@dataclass(frozen=True)
class _Columns:
    """Where label and texts stand on a line."""

    label: int = 0
    text: int = 1
    second: int | None = 2
    named: bool = False  # in the file itself, so that each line must have them all

    @property
    def least(self) -> int:
        wanted = (self.label, self.text, self.second if self.named else None)
        return 1 + max(place for place in wanted if place is not None)


def _table(lines: Iterable[Line], faults: InvalidLines) -> Iterator[LabeledExample]:
    columns = _Columns()
    for line in lines:
        if line.text is None:
            continue
        cells = line.text.split("\t")
        if line.number == 1 and (found := _header(cells, line.location)) is not None:
            columns = found
            continue
        if len(cells) < columns.least:
            wanted = f"{columns.least} columns, as its first line names them" if columns.named else "label, tab, text"
            count = f"{len(cells)} column{'s' if len(cells) > 1 else ''}"
            faults.add("too few columns", f"{line.location}: has {count}; write {wanted}")
            continue
        second = cells[columns.second] if columns.second is not None and columns.second < len(cells) else None
        yield from _example(cells[columns.label], cells[columns.text], second, line.location, faults)


def _header(cells: Sequence[str], place: str) -> _Columns | None:
    """The columns that a first line names; None where it names none, and is an example itself."""
    names = [cell.strip().lower() for cell in cells]
    label, text, second = (_named(names, known) for known in (LABEL, TEXT, SECOND))
    if label is None and names[0] not in (*TEXT, *SECOND):
        return None
    missing = ("label", LABEL) if label is None else ("text", TEXT) if text is None else None
    if missing is not None:
        what, known = missing
        raise DataError(
            f"{place}: names the columns {', '.join(names)}, but none for the {what}; "
            f"call it {', '.join(known[:-1])} or {known[-1]}."
        )
    assert label is not None
    assert text is not None
    return _Columns(label, text, second, named=True)


def _named(names: Sequence[str], known: Sequence[str]) -> int | None:
    return next((names.index(name) for name in known if name in names), None)


def _objects(lines: Iterable[Line], faults: InvalidLines) -> Iterator[LabeledExample]:
    for line in lines:
        if line.text is None:
            continue
        try:
            found = json.loads(line.text)
        except (ValueError, RecursionError) as error:
            faults.add("not JSON", f"{line.location}: is not JSON ({error}); mend it")
            continue
        fields: Mapping[str, Any] = found if isinstance(found, dict) else {}
        label, text, second = (_field(fields, known) for known in (LABEL, TEXT, SECOND))
        missing = "label" if label is None else "text" if text is None else None
        if label is None or text is None:
            shape = '{"label": "…", "text": "…"}'
            faults.add("missing field", f"{line.location}: has nothing under {missing!r}; write {shape}")
            continue
        yield from _example(label, text, second, line.location, faults)


def _field(fields: Mapping[str, Any], known: Sequence[str]) -> str | None:
    """The text under one of several names; labels are often numbers."""
    value = next((fields[name] for name in known if name in fields), None)
    return str(value) if isinstance(value, str | int) else None


def _example(label: str, text: str, second: str | None, place: str, faults: InvalidLines) -> Iterator[LabeledExample]:
    given = {"label": label.strip(), "text": text.strip()}
    if second is not None:
        given["second text"] = second.strip()
    for what, value in given.items():
        if not value:
            faults.add("empty", f"{place}: has an empty {what}; fill it")
            return
    if any("\ud800" <= character <= "\udfff" for value in given.values() for character in value):
        faults.add("broken Unicode", f"{place}: has half of a character (a lone surrogate); mend it")
        return
    yield LabeledExample(given["label"], given["text"], given.get("second text"), place)
