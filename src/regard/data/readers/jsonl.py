"""JSON Lines: one object per line.

Pairs have the keys `source` and `target`, documents `text`, labeled texts `label`, `text` and perhaps `second`, or the
other names that their columns may have in TSV.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from regard.data.lines import InvalidLines, Line, read_lines
from regard.data.readers.base import READERS, LabeledExample, Pair, Reader, check_labeled, check_pair, has_surrogate
from regard.data.readers.tsv import LABEL_NAMES, SECOND_NAMES, TEXT_NAMES


@READERS.register("jsonl")
class JsonLinesReader(Reader):
    """Reader of JSON Lines."""

    suffixes = (".jsonl", ".ndjson")

    def pairs(self, file: str, invalid: InvalidLines) -> Iterator[Pair]:
        """Yield the pairs of `source` and `target`."""
        for line in read_lines(file, invalid):
            fields = _texts(line, ("source", "target"), invalid)
            if fields is not None:
                source, target = fields
                yield from check_pair(source, target, (line.location, line.location), invalid)

    def documents(self, file: str, invalid: InvalidLines) -> Iterator[Iterator[str]]:
        """Yield each `text` as a document."""
        for line in read_lines(file, invalid):
            fields = _texts(line, ("text",), invalid)
            if fields is not None:
                yield iter(fields)

    def labeled(self, file: str, invalid: InvalidLines) -> Iterator[LabeledExample]:
        """Yield texts with their labels, which may be numbers."""
        for line in read_lines(file, invalid):
            record = _record(line, invalid)
            if record is None:
                continue
            label, text, second = (_field(record, names) for names in (LABEL_NAMES, TEXT_NAMES, SECOND_NAMES))
            if label is None or text is None:
                missing = "label" if label is None else "text"
                shape = '{"label": "…", "text": "…"}'
                invalid.add("missing field", f"{line.location}: nothing under {missing!r}; write {shape}")
                continue
            yield from check_labeled(label, text, second, line.location, invalid)


def _record(line: Line, invalid: InvalidLines) -> Mapping[str, Any] | None:
    """Return the object on a line; None if it is invalid, and an empty object for any other JSON."""
    if line.text is None:
        return None
    try:
        record = json.loads(line.text)
    except (ValueError, RecursionError) as error:
        invalid.add("not JSON", f"{line.location}: not valid JSON ({error}); fix it")
        return None
    return record if isinstance(record, dict) else {}


def _texts(line: Line, keys: Sequence[str], invalid: InvalidLines) -> list[str] | None:
    """Return the texts under these keys of the object on a line; None if it is invalid."""
    record = _record(line, invalid)
    if record is None:
        return None
    missing = next((key for key in keys if not isinstance(record.get(key), str)), None)
    if missing is not None:
        shape = ", ".join(f'"{key}": "…"' for key in keys)
        invalid.add("missing field", f"{line.location}: no text under {missing!r}; write {{{shape}}}")
        return None
    texts = [record[key] for key in keys]
    if any(map(has_surrogate, texts)):
        invalid.add("broken Unicode", f"{line.location}: half of a character (a lone surrogate); fix it")
        return None
    return texts


def _field(record: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """Return the text or number under the first of several names that the object has."""
    value = next((record[name] for name in names if name in record), None)
    return str(value) if isinstance(value, str | int) else None
