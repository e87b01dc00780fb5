"""CoNLL columns and CoNLL-U (Universal Dependencies): tagged sentences, and sentences with dependency trees.

CoNLL has one word per line with its tag, and a blank line after each sentence. Columns are separated by tabs or by
spaces. The word is in the first column and the tag in the last, unless `data.tag_column` is set. Lines that begin with
`-DOCSTART-` are skipped, and so are comments (`# …`) before the first word of a sentence.

In CoNLL-U a word is a line of ten tab-separated columns. Words that are written together have a line of their own with
the range of their numbers (`3-4`), whose form is the text. Empty nodes (`8.1`) are in no text and no tree: they are
skipped, and so are comments.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from regard.data.lines import InvalidLines, Line, check_compression_on_error, read_lines
from regard.data.readers.base import READERS, Reader, TaggedExample, count_columns

DOCUMENT_START = "-DOCSTART-"
NUM_COLUMNS = 10
MAX_SENTENCE_WORDS = 2**16 - 3  # of a sentence: word numbers are stored in 16 bits
_WORD = re.compile(r"[1-9][0-9]{0,8}")
_HEAD = re.compile(r"0|[1-9][0-9]{0,8}")
_RANGE = re.compile(r"([1-9][0-9]{0,8})-([1-9][0-9]{0,8})")
_EMPTY = re.compile(r"(0|[1-9][0-9]{0,8})\.[1-9][0-9]{0,8}")


@READERS.register("conll")
class ConllReader(Reader):
    """Reader of CoNLL columns, the default for tagged sentences."""

    suffixes = (".conll",)
    fingerprint_name = "text"  # as in keys of stores that were prepared with earlier versions

    def tagged(self, file: str, invalid: InvalidLines, column: int | None = None) -> Iterator[TaggedExample]:
        """Yield the sentences; a sentence with an invalid line is skipped as a whole."""
        layout = TagColumns(tag=column - 1 if column is not None else -1)
        return tagged_sentences(read_lines(file, invalid), layout, invalid)


@READERS.register("conllu")
class ConlluReader(ConllReader):
    """Reader of tagged sentences: words from the second column, tags from the fourth (UPOS) by default."""

    suffixes = (".conllu",)

    def tagged(self, file: str, invalid: InvalidLines, column: int | None = None) -> Iterator[TaggedExample]:
        """Yield the sentences; a sentence with an invalid line is skipped as a whole."""
        layout = TagColumns(word=1, tag=column - 1 if column is not None else 3, conllu=True)
        return tagged_sentences(read_lines(file, invalid), layout, invalid)


@dataclass(frozen=True)
class TagColumns:
    """Indices of the columns of word and tag; -1 is the last column."""

    word: int = 0
    tag: int = -1
    conllu: bool = False  # skip lines whose first column is not a whole number


def tagged_sentences(lines: Iterable[Line], layout: TagColumns, invalid: InvalidLines) -> Iterator[TaggedExample]:
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


def _word_and_tag(line: Line, cells: list[str], layout: TagColumns, invalid: InvalidLines) -> tuple[str, str] | None:
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


@dataclass(frozen=True)
class SurfaceToken:
    """A word of the text, or several words that are written as one."""

    form: str
    first: int  # numbers of its words, from 1
    last: int


@dataclass(frozen=True)
class ConlluSentence:
    """A parsed sentence. One that was invalid and skipped has only its location."""

    location: str  # file:line of its first word
    tokens: tuple[SurfaceToken, ...] = ()
    heads: tuple[int, ...] = ()  # for each word the number of its head; 0 for the root

    @property
    def is_valid(self) -> bool:
        """Whether the sentence was not skipped."""
        return bool(self.heads)


def read_conllu(files: Iterable[str], invalid: InvalidLines) -> Iterator[ConlluSentence]:
    """Yield the sentences of CoNLL-U files, in order."""
    for file in files:
        with check_compression_on_error(file):
            yield from sentences_from_lines(read_lines(file, invalid), invalid)


def parse_conllu(text: str, name: str, invalid: InvalidLines) -> Iterator[ConlluSentence]:
    """Yield the sentences of a CoNLL-U string; error messages call it `name`.

    >>> line = "\\t".join(["1", "Look", "look", "VERB", "_", "_", "0", "root", "_", "_"])
    >>> [sentence.heads for sentence in parse_conllu(line, "parse 1", InvalidLines())]
    [(0,)]
    """
    lines = (Line(line.removesuffix("\r"), name, number) for number, line in enumerate(text.split("\n"), start=1))
    return sentences_from_lines(lines, invalid)


def sentences_from_lines(lines: Iterable[Line], invalid: InvalidLines) -> Iterator[ConlluSentence]:
    """Yield the sentences of lines; an empty line ends a sentence."""
    block: list[Line] = []
    for line in lines:
        if line.text is None or line.text.strip():
            block.append(line)
            continue
        yield from _sentence(block, invalid)
        block = []
    yield from _sentence(block, invalid)


class _InvalidSentenceError(Exception):
    """A sentence is invalid, for this reason."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def _sentence(block: Sequence[Line], invalid: InvalidLines) -> Iterator[ConlluSentence]:
    """Yield the sentence of a block of lines, unless it has only comments."""
    lines = [line for line in block if line.text is None or not line.text.startswith("#")]
    if not lines:
        return
    location = lines[0].location
    if any(line.text is None for line in lines):  # reported before
        yield ConlluSentence(location)
        return
    try:
        yield _parse_sentence(lines, location)
    except _InvalidSentenceError as error:
        invalid.add(error.reason, str(error))
        yield ConlluSentence(location)


def _parse_sentence(lines: Sequence[Line], location: str) -> ConlluSentence:
    tokens: list[SurfaceToken] = []
    heads: list[int] = []
    locations: list[str] = []  # of words
    for line in lines:
        columns = _split_columns(line)
        number, form, head = columns[0], columns[1].strip(), columns[6]
        covered = tokens[-1].last if tokens else 0  # the last word whose surface form is known
        if _EMPTY.fullmatch(number):
            continue
        if not form:
            raise _InvalidSentenceError(
                "no form", f"{line.location}: no form in the second column; write the word there"
            )
        if span := _RANGE.fullmatch(number):
            first, last = int(span[1]), int(span[2])
            if first != len(heads) + 1 or covered > len(heads) or last < first:
                raise _out_of_order(line, f"the range {number}", len(heads) + 1)
            tokens.append(SurfaceToken(form, first, last))
            continue
        if not _WORD.fullmatch(number) or int(number) != len(heads) + 1:
            raise _out_of_order(line, repr(number), len(heads) + 1)
        if not _HEAD.fullmatch(head):
            message = f"{line.location}: {head!r} is not a head (seventh column); write the number of a word, or 0"
            raise _InvalidSentenceError("no head", message)
        heads.append(int(head))
        locations.append(line.location)
        if covered < len(heads):
            tokens.append(SurfaceToken(form, len(heads), len(heads)))
    if not heads or tokens[-1].last > len(heads):
        message = f"{lines[-1].location}: the sentence ends before its last word; complete it"
        raise _InvalidSentenceError("words are missing", message)
    if len(heads) > MAX_SENTENCE_WORDS:
        raise _InvalidSentenceError(
            "too many words", f"{location}: the sentence has more than {MAX_SENTENCE_WORDS:,} words; split it"
        )
    _check_tree(heads, locations)
    return ConlluSentence(location, tuple(tokens), tuple(heads))


def _split_columns(line: Line) -> list[str]:
    columns = (line.text or "").split("\t")
    if len(columns) != NUM_COLUMNS:
        message = f"{line.location}: {count_columns(columns)}, but CoNLL-U has ten, separated by tabs; fix it"
        raise _InvalidSentenceError("not ten columns", message)
    return columns


def _out_of_order(line: Line, found: str, expected: int) -> _InvalidSentenceError:
    message = f"{line.location}: begins with {found}, but word {expected} is next; number the words consecutively"
    return _InvalidSentenceError("words out of order", message)


def _check_tree(heads: Sequence[int], locations: Sequence[str]) -> None:
    """Raise an error unless the words form one tree."""
    for word, head in enumerate(heads, start=1):
        if head > len(heads):
            message = (
                f"{locations[word - 1]}: its head is word {head}, but the sentence has {len(heads)} words; correct it"
            )
            raise _InvalidSentenceError("head out of range", message)
    roots = [word for word, head in enumerate(heads, start=1) if head == 0]
    if len(roots) > 1:
        message = f"{locations[roots[1] - 1]}: is a root, but word {roots[0]} is one too; only one word may have head 0"
        raise _InvalidSentenceError("several roots", message)
    if cycle := _find_cycle(heads):
        path = " → ".join(map(str, [*cycle, cycle[0]]))
        message = f"{locations[cycle[0] - 1]}: is in a cycle of heads ({path}); every word must lead to the root"
        raise _InvalidSentenceError("words in a circle", message)


def _find_cycle(heads: Sequence[int]) -> list[int]:
    """Return the words of a cycle from word to head, beginning with the smallest; empty if all lead to the root."""
    reaches_root: set[int] = {0}
    for start in range(1, len(heads) + 1):
        path: dict[int, None] = {}  # an ordered set
        word = start
        while word not in reaches_root:
            if word in path:
                visited = list(path)
                cycle = visited[visited.index(word) :]
                begin = cycle.index(min(cycle))
                return cycle[begin:] + cycle[:begin]
            path[word] = None
            word = heads[word - 1]
        reaches_root.update(path)
    return []
