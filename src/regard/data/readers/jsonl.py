"""JSON Lines: one object per line.

Pairs have the keys `source` and `target`, documents `text`, labeled texts `label`, `text` and perhaps `second`, or the
other names that their columns may have in TSV. The user may set other keys. Keys of pairs may also be in an object
under `translation`, as in the datasets of Hugging Face: `{"translation": {"en": "…", "it": "…"}}`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from regard.data.lines import InvalidLines, Line, read_lines
from regard.data.readers.base import READERS, LabeledExample, Pair, Reader, check_labeled, check_pair, has_surrogate
from regard.data.readers.columns import LABEL_NAMES, SECOND_NAMES, SOURCE_NAMES, TARGET_NAMES, TEXT_NAMES

TRANSLATION = "translation"
SHOWN_KEYS = 8  # of a record, in messages


@READERS.register("jsonl")
class JsonLinesReader(Reader):
    """Reader of JSON Lines."""

    suffixes = (".jsonl", ".ndjson")
    has_columns = True

    def pairs(self, file: str, invalid: InvalidLines) -> Iterator[Pair]:
        """Yield the pairs of source and target; keys that are not set are found in the first record."""
        records = read_records(file, invalid)
        first = next(records, None)
        if first is None:
            return
        keys = self._pair_keys(first[1], file, invalid)
        nested = isinstance(first[1].get(TRANSLATION), dict)
        for line, record in chain([first], records):
            inner = record.get(TRANSLATION) if nested else None
            whole = {**record, **inner} if isinstance(inner, dict) else record
            fields = _texts(line, whole, keys, ("source", "target"), invalid)
            if fields is not None:
                source, target = fields
                location = line.location
                yield from check_pair(source, target, (location, location), invalid)

    def documents(self, file: str, invalid: InvalidLines) -> Iterator[Iterator[str]]:
        """Yield each `text` as a document."""
        keys = (self.columns.get("text", "text"),)
        for line, record in read_records(file, invalid):
            fields = _texts(line, record, keys, ("text",), invalid)
            if fields is not None:
                yield iter(fields)

    def labeled(self, file: str, invalid: InvalidLines) -> Iterator[LabeledExample]:
        """Yield texts with their labels, which may be numbers."""
        label_names, text_names = (
            (self.columns[role],) if role in self.columns else names
            for role, names in (("label", LABEL_NAMES), ("text", TEXT_NAMES))
        )
        for line, record in read_records(file, invalid):
            label, text, second = (_field(record, names) for names in (label_names, text_names, SECOND_NAMES))
            if label is None or text is None:
                missing = label_names[0] if label is None else text_names[0]
                shape = f'{{"{label_names[0]}": "…", "{text_names[0]}": "…"}}'
                options = _other_keys(record, ("label", "text"))
                invalid.add("missing field", f"{line.location}: nothing under {missing!r}; write {shape}{options}")
                continue
            yield from check_labeled(label, text, second, line.location, invalid)

    def _pair_keys(self, record: Mapping[str, Any], file: str, invalid: InvalidLines) -> tuple[str, str]:
        """Return the keys of source and target: those set by the user, or those of the first record."""
        inner = record.get(TRANSLATION)
        if not self.columns and isinstance(inner, dict) and len(inner) == 2:
            source, target = inner
            invalid.note(
                f"{file}: source = {source!r}, target = {target!r}, as in the first line; "
                "--source-column and --target-column can choose others"
            )
            return source, target
        source = next((name for name in SOURCE_NAMES if isinstance(record.get(name), str)), SOURCE_NAMES[0])
        target = next((name for name in TARGET_NAMES if isinstance(record.get(name), str)), TARGET_NAMES[0])
        return self.columns.get("source", source), self.columns.get("target", target)


def read_records(file: str, invalid: InvalidLines) -> Iterator[tuple[Line, dict[str, Any]]]:
    """Yield the objects of the lines that are JSON; an empty object for any other JSON."""
    for line in read_lines(file, invalid):
        if line.text is None:
            continue
        try:
            record = json.loads(line.text)
        except (ValueError, RecursionError) as error:
            invalid.add("not JSON", f"{line.location}: not valid JSON ({error}); fix it")
            continue
        yield line, record if isinstance(record, dict) else {}


def _texts(
    line: Line, record: Mapping[str, Any], keys: Sequence[str], roles: Sequence[str], invalid: InvalidLines
) -> list[str] | None:
    """Return the texts under the keys of these roles in the object on a line; None if it is invalid."""
    missing = next((key for key in keys if not isinstance(record.get(key), str)), None)
    if missing is not None:
        shape = ", ".join(f'"{key}": "…"' for key in keys)
        options = _other_keys(record, roles)
        invalid.add("missing field", f"{line.location}: no text under {missing!r}; write {{{shape}}}{options}")
        return None
    texts = [record[key] for key in keys]
    if any(map(has_surrogate, texts)):
        invalid.add("broken Unicode", f"{line.location}: half of a character (a lone surrogate); fix it")
        return None
    return texts


def _other_keys(record: Mapping[str, Any], roles: Sequence[str]) -> str:
    """Return the options that choose other keys, if there are enough of them.

    >>> _other_keys({"en": "Hello", "it": "Ciao"}, ("source", "target"))
    ", or choose among its keys 'en', 'it' with --source-column and --target-column"
    """
    if isinstance(record.get("messages"), list):
        return "; conversations are for regard train chat"
    texts = [key for key, value in record.items() if isinstance(value, str | int | float)]
    if len(texts) < len(roles):
        return ""
    keys = ", ".join(map(repr, texts[:SHOWN_KEYS])) + (", …" if len(texts) > SHOWN_KEYS else "")
    return f", or choose among its keys {keys} with {' and '.join(f'--{role}-column' for role in roles)}"


def _field(record: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """Return the text or number under the first of several names that the object has."""
    value = next((record[name] for name in names if name in record), None)
    return str(value) if isinstance(value, str | int) else None
