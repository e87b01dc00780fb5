"""Tagged sentences in CoNLL columns: one word per line with its tag, and a blank line after each sentence.

Columns are separated by tabs or by spaces. The word is in the first column and the tag in the last, unless
`data.tag_column` is set. Lines that begin with `-DOCSTART-` are skipped, and so are comments (`# …`) before the first
word of a sentence.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from regard.data.examples import TaggedExample
from regard.data.lines import InvalidLines, Line, read_lines
from regard.data.readers.base import Reader, count_columns

DOCUMENT_START = "-DOCSTART-"


class ConllReader(Reader):
    """Reader of CoNLL columns, the default for tagged sentences."""

    suffixes = (".conll",)
    fingerprint_name = "text"  # as in keys of stores that were prepared with earlier versions

    def tagged(self, file: str, invalid: InvalidLines, column: int | None = None) -> Iterator[TaggedExample]:
        """Yield the sentences; a sentence with an invalid line is skipped as a whole."""
        layout = ColumnLayout(tag=column - 1 if column is not None else -1)
        return tagged_sentences(read_lines(file, invalid), layout, invalid)


@dataclass(frozen=True)
class ColumnLayout:
    """Indices of the columns of word and tag; -1 is the last column."""

    word: int = 0
    tag: int = -1
    conllu: bool = False  # skip lines whose first column is not a whole number


def tagged_sentences(lines: Iterable[Line], layout: ColumnLayout, invalid: InvalidLines) -> Iterator[TaggedExample]:
    """Yield the sentences of lines."""
    words: list[tuple[str, str]] = []
    first_location, valid = "", True
    for line in lines:
        if line.text is not None and not line.text.strip():
            if words and valid:
                yield _example(words, first_location)
            words, valid = [], True
            continue
        if line.text is not None and not words and (line.text.startswith("# ") or line.text.strip() == "#"):
            continue
        cells = [] if line.text is None else _split_cells(line.text)
        if cells and (cells[0] == DOCUMENT_START or (layout.conllu and not cells[0].isdigit())):
            continue
        first_location = first_location if words else line.location
        word = _word_and_tag(line, cells, layout, invalid) if cells else None
        valid = valid and word is not None
        words.append(word or ("", ""))
    if words and valid:
        yield _example(words, first_location)


def _split_cells(text: str) -> list[str]:
    return [cell.strip() for cell in text.split("\t")] if "\t" in text else text.split()


def _word_and_tag(line: Line, cells: list[str], layout: ColumnLayout, invalid: InvalidLines) -> tuple[str, str] | None:
    required = max(2, layout.word + 1, layout.tag + 1)
    if len(cells) < required:
        expected = "word and tag" if required == 2 else f"{required} columns, as data.tag_column requires,"
        message = f"{line.location}: {count_columns(cells)}; write {expected} on each line"
        invalid.add("too few columns", message)
        return None
    word, tag = cells[layout.word], cells[layout.tag]
    if not word or not tag:
        invalid.add("empty", f"{line.location}: empty {'tag' if word else 'word'}; fill it in")
        return None
    return word, tag


def _example(words: list[tuple[str, str]], location: str) -> TaggedExample:
    return TaggedExample(tuple(word for word, _ in words), tuple(tag for _, tag in words), location)
