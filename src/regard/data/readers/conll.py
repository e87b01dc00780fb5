"""Tagged sentences in columns, as CoNLL's: a word a line with its tag, and a blank line after each sentence.

Columns are apart by tabs or by spaces. The word is the first and the tag the last of them, unless
`data.tag_column` says
which; in `.conllu` files the word is the second, the tag the fourth (UPOS), and lines whose number is no whole one, as
4-5 or 8.1 (words that stand for several, or for none), are passed over. A line `-DOCSTART-` begins a document, and one
that begins with `# ` before a sentence's first word is a comment.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from regard.data.lines import InvalidLines, Line, check_gzip_on_error, read_lines
from regard.errors import DataError

DOCUMENT_START = "-DOCSTART-"


@dataclass(frozen=True)
class TaggedExample:
    """The words of a sentence, and a tag for each."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    location: str = field(default="", compare=False)  # file:line of the first word

    @property
    def texts(self) -> tuple[str, ...]:
        """The whole sentence: its words, apart by spaces."""
        return (" ".join(word.replace(" ", "\u00a0") for word in self.words),)  # a word stays one, spaces or not

    @property
    def labels(self) -> tuple[str, ...]:
        """Its tags."""
        return self.tags


@dataclass(frozen=True)
class ColumnLayout:
    """Which columns of a line are read, from 0 on; the tag's may be the last, whichever that is."""

    word: int = 0
    tag: int = -1
    universal: bool = False  # CoNLL-U

    @classmethod
    def of(cls, file: str, column: int | None = None) -> "ColumnLayout":
        """The format of a file by its name, and by `data.tag_column`, which counts from 1.

        >>> ColumnLayout.of("train.conll"), ColumnLayout.of("en-ud-train.conllu.gz").tag
        (ColumnLayout(word=0, tag=-1, universal=False), 3)
        """
        universal = file.removesuffix(".gz").endswith(".conllu")
        tag = column - 1 if column is not None else 3 if universal else -1
        return cls(1 if universal else 0, tag, universal)


def read_tagged(files: Iterable[str], column: int | None, faults: InvalidLines) -> Iterator[TaggedExample]:
    """The sentences of files, in order; one with a fault is left out as a whole."""
    from regard.data.readers.builtin import is_builtin

    for file in files:
        if is_builtin(file):
            raise DataError(f"{file}: has no tags, and nothing that comes with regard has; give a file.")
        with check_gzip_on_error(file):
            yield from _sentences(read_lines(file, faults), ColumnLayout.of(file, column), faults)


def _sentences(lines: Iterable[Line], form: ColumnLayout, faults: InvalidLines) -> Iterator[TaggedExample]:
    words: list[tuple[str, str]] = []
    first, whole = "", True
    for line in lines:
        if line.text is not None and not line.text.strip():
            if words and whole:
                yield _sentence(words, first)
            words, whole = [], True
            continue
        if line.text is not None and not words and (line.text.startswith("# ") or line.text.strip() == "#"):
            continue
        cells = [] if line.text is None else _cells(line.text)
        if cells and (cells[0] == DOCUMENT_START or (form.universal and not cells[0].isdigit())):
            continue
        first = first if words else line.location
        found = _word(line, cells, form, faults) if cells else None
        whole = whole and found is not None
        words.append(found or ("", ""))
    if words and whole:
        yield _sentence(words, first)


def _cells(text: str) -> list[str]:
    return [cell.strip() for cell in text.split("\t")] if "\t" in text else text.split()


def _word(line: Line, cells: list[str], form: ColumnLayout, faults: InvalidLines) -> tuple[str, str] | None:
    needed = max(2, form.word + 1, form.tag + 1)
    if len(cells) < needed:
        count = f"{len(cells)} column{'s' if len(cells) > 1 else ''}"
        wanted = "word and tag" if needed == 2 else f"{needed} columns, in which data.tag_column is"
        faults.add("too few columns", f"{line.location}: has {count}; write {wanted}, on each line")
        return None
    word, tag = cells[form.word], cells[form.tag]
    if not word or not tag:
        faults.add("empty", f"{line.location}: has an empty {'tag' if word else 'word'}; fill it")
        return None
    return word, tag


def _sentence(words: list[tuple[str, str]], place: str) -> TaggedExample:
    return TaggedExample(tuple(word for word, _ in words), tuple(tag for _, tag in words), place)
