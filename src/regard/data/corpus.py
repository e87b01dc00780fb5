"""Corpora: files in, examples out, one at a time and in order.

For translation: two aligned files, or tab-separated columns, or JSON Lines. For language models: plain text, each file
one document, or JSON Lines, each line one. The format goes by the file's name, `.gz` or not; a name that begins with
`builtin:` is a corpus that comes with the package.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from regard.data.lines import InvalidLines, Line, check_gzip_on_error, read_lines
from regard.data.parses import Parse, zip_parses
from regard.data.readers.conllu import read_conllu
from regard.errors import DataError


@dataclass(frozen=True)
class Pair:
    """A sentence and its translation; with a parse of the sentence, if one was given."""

    source: str
    target: str
    parse: Parse | None = field(default=None, kw_only=True, repr=False)


def read_aligned(
    sources: Sequence[str], targets: Sequence[str], faults: InvalidLines, parses: Sequence[str] = ()
) -> Iterator[Pair]:
    """Pairs from files that are aligned line by line: the first of `sources` with the first of `targets`, and so on.

    `parses` are CoNLL-U files, one for each of `sources`, or none.
    """
    if len(sources) != len(targets):
        raise DataError(
            f"there are {len(sources)} source files and {len(targets)} target files; give one target for each source."
        )
    if parses and len(parses) != len(sources):
        raise DataError(f"there are {len(sources)} source files and {len(parses)} of parses; give one for each source.")
    for n, (source, target) in enumerate(zip(sources, targets, strict=True)):
        with check_gzip_on_error(source, target):
            rows = _side_by_side(source, target, faults)
            if not parses:
                for left, right in rows:
                    yield from _pair([left.text, right.text], [left.location, right.location], faults)
                continue
            sentences = read_conllu([parses[n]], faults)
            for (left, right), parse in zip_parses(rows, lambda row: row[0], sentences, parses[n], faults):
                if parse is not None or not (left.text or "").strip():  # else it is a fault that is noted already
                    yield from _pair([left.text, right.text], [left.location, right.location], faults, parse)


def _side_by_side(source: str, target: str, faults: InvalidLines) -> Iterator[tuple[Line, Line]]:
    """The lines of two files, which must have equally many."""
    for left, right in zip_longest(read_lines(source, faults), read_lines(target, faults)):
        if right is None:
            raise _unequal(left, target)
        if left is None:
            raise _unequal(right, source)
        yield left, right


def read_pair_files(files: Iterable[str], faults: InvalidLines) -> Iterator[Pair]:
    """Pairs from TSV files (the first two columns) or JSON Lines (`source` and `target`), by each file's name."""
    from regard.data.readers.builtin import builtin_pairs, is_builtin  # which makes pairs of its own

    for file in files:
        if is_builtin(file):
            yield from builtin_pairs(file)
            continue
        read = _fields if format_of(file) == "jsonl" else _columns
        with check_gzip_on_error(file):
            for line in read_lines(file, faults):
                yield from read(line, faults)


def read_documents(files: Iterable[str], faults: InvalidLines) -> Iterator[Iterator[str]]:
    """Documents as streams of text: a plain file is one, its line ends kept; in JSON Lines each `text` is one."""
    from regard.data.readers.builtin import builtin_documents, is_builtin

    for file in files:
        if is_builtin(file):
            yield from builtin_documents(file)
        elif format_of(file) == "jsonl":
            with check_gzip_on_error(file):
                for line in read_lines(file, faults):
                    record = _record(line, ("text",), faults)
                    if record is not None:
                        yield iter([record["text"]])
        else:
            yield _text(file, faults)


def _text(file: str, faults: InvalidLines) -> Iterator[str]:
    """The lines of a plain file, with their ends."""
    with check_gzip_on_error(file):
        yield from (line.text + "\n" for line in read_lines(file, faults) if line.text is not None)


def read_texts(files: Iterable[str], faults: InvalidLines) -> Iterator[str]:
    """Texts, each by itself: a plain file has one on every line; in JSON Lines each `text` is one."""
    from regard.data.readers.builtin import is_builtin

    for file in files:
        if is_builtin(file) or format_of(file) == "jsonl":
            yield from ("".join(document) for document in read_documents([file], faults))
        else:
            yield from (line.text for line in read_lines(file, faults) if line.text is not None)


def format_of(file: str) -> str:
    """`tsv`, `jsonl` or `text`, by a file's name.

    >>> format_of("pairs.tsv.gz"), format_of("pairs.jsonl"), format_of("book.txt"), format_of("-")
    ('tsv', 'jsonl', 'text', 'text')
    """
    ending = file.removesuffix(".gz").rpartition(".")[2].lower()
    return {"tsv": "tsv", "tab": "tsv", "jsonl": "jsonl", "ndjson": "jsonl"}.get(ending, "text")


def _columns(line: Line, faults: InvalidLines) -> Iterator[Pair]:
    if line.text is None:
        return
    columns = line.text.split("\t")
    if len(columns) < 2:
        faults.add("too few columns", f"{line.location}: has no tab; write source, tab, target")
        return
    yield from _pair(columns[:2], [line.location, line.location], faults)


def _fields(line: Line, faults: InvalidLines) -> Iterator[Pair]:
    record = _record(line, ("source", "target"), faults)
    if record is not None:
        yield from _pair([record["source"], record["target"]], [line.location, line.location], faults)


def _record(line: Line, keys: Sequence[str], faults: InvalidLines) -> dict[str, Any] | None:
    """The object on a line of JSON, if it has a text under each key."""
    if line.text is None:
        return None
    try:
        record = json.loads(line.text)
    except (ValueError, RecursionError) as error:
        faults.add("not JSON", f"{line.location}: is not JSON ({error}); mend it")
        return None
    fields = record if isinstance(record, dict) else {}
    missing = next((key for key in keys if not isinstance(fields.get(key), str)), None)
    if missing is not None:
        wanted = ", ".join(f'"{key}": "…"' for key in keys)
        faults.add("missing field", f"{line.location}: has no text under {missing!r}; write {{{wanted}}}")
        return None
    if any(_broken(fields[key]) for key in keys):
        faults.add("broken Unicode", f"{line.location}: has half of a character (a lone surrogate); mend it")
        return None
    return fields


def _broken(text: str) -> bool:
    """Whether a text has what JSON can write but UTF-8 cannot."""
    return any("\ud800" <= character <= "\udfff" for character in text)


def _pair(
    texts: Sequence[str | None], places: Sequence[str], faults: InvalidLines, parse: Parse | None = None
) -> Iterator[Pair]:
    """The pair, unless a side is unreadable, which is noted already, or empty."""
    source, target = texts
    if source is None or target is None:
        return
    for text, place, side in ((source, places[0], "source"), (target, places[1], "target")):
        if not text.strip():
            faults.add("empty", f"{place}: has an empty {side}; fill it")
            return
    yield Pair(source.strip(), target.strip(), parse=parse)


def _unequal(line: Line, shorter: str) -> DataError:
    return DataError(
        f"{line.location}: has no counterpart, because {shorter} ends before it; "
        "aligned files have the same number of lines."
    )
