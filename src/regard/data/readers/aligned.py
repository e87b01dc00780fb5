"""Parallel files that are aligned line by line, with or without dependency parses of the source."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from regard.data.examples import Pair
from regard.data.lines import InvalidLines, Line, check_gzip_on_error, read_lines
from regard.data.readers.base import check_pair
from regard.data.readers.conllu import read_conllu
from regard.data.readers.parses import zip_parses
from regard.errors import DataError


def read_aligned(
    sources: Sequence[str], targets: Sequence[str], invalid: InvalidLines, parses: Sequence[str] = ()
) -> Iterator[Pair]:
    """Yield the pairs of files that are aligned line by line.

    Args:
        sources: source files.
        targets: target files, one for each source file.
        invalid: what to do with invalid lines.
        parses: CoNLL-U files, one for each source file, or none.
    """
    if len(sources) != len(targets):
        raise DataError(
            f"there are {len(sources)} source files and {len(targets)} target files; pass one target for each source."
        )
    if parses and len(parses) != len(sources):
        raise DataError(
            f"there are {len(sources)} source files and {len(parses)} files of parses; pass one for each source."
        )
    for n, (source, target) in enumerate(zip(sources, targets, strict=True)):
        with check_gzip_on_error(source, target):
            rows = _zip_lines(source, target, invalid)
            if not parses:
                for left, right in rows:
                    yield from check_pair(left.text, right.text, (left.location, right.location), invalid)
                continue
            sentences = read_conllu([parses[n]], invalid)
            for (left, right), parse in zip_parses(rows, lambda row: row[0], sentences, parses[n], invalid):
                if parse is not None or not (left.text or "").strip():  # otherwise it was reported as invalid before
                    yield from check_pair(left.text, right.text, (left.location, right.location), invalid, parse)


def _zip_lines(source: str, target: str, invalid: InvalidLines) -> Iterator[tuple[Line, Line]]:
    """Yield the lines of two files, which must have equally many."""
    for left, right in zip_longest(read_lines(source, invalid), read_lines(target, invalid)):
        if right is None:
            raise _unequal_lengths(left, target)
        if left is None:
            raise _unequal_lengths(right, source)
        yield left, right


def _unequal_lengths(line: Line, shorter: str) -> DataError:
    return DataError(
        f"{line.location}: no matching line, because {shorter} ends before it; "
        "aligned files must have the same number of lines."
    )
