"""CoNLL-U, the format of Universal Dependencies: sentences, each with its words and the word each of them hangs from.

A word is a line of ten columns with tabs between them; of these its number, its form and its head are read. Words that
are written together have a line of their own with the range of their numbers (`3-4`), whose form is what stands in the
text. Empty nodes (`8.1`) stand in no text and hang in no tree: they are passed over, and so are comments.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from regard.data.lines import InvalidLines, Line, check_gzip_on_error, read_lines

COLUMNS = 10
MAX_WORDS = 2**16 - 3  # words of a sentence: numbers of words are stored in 16 bits
_WORD = re.compile(r"[1-9][0-9]{0,8}")
_HEAD = re.compile(r"0|[1-9][0-9]{0,8}")
_RANGE = re.compile(r"([1-9][0-9]{0,8})-([1-9][0-9]{0,8})")
_EMPTY = re.compile(r"(0|[1-9][0-9]{0,8})\.[1-9][0-9]{0,8}")


@dataclass(frozen=True)
class SurfaceToken:
    """What stands together in the text: a word, or several that are written as one."""

    form: str
    first: int  # the numbers of its words, which begin at 1
    last: int


@dataclass(frozen=True)
class ConlluSentence:
    """A parsed sentence. One that could not be used and was skipped has nothing in it but its place."""

    location: str  # file:line of its first line
    tokens: tuple[SurfaceToken, ...] = ()
    heads: tuple[int, ...] = ()  # of each word, the number of the word above it; 0 for the root

    @property
    def is_valid(self) -> bool:
        """Whether it was not skipped."""
        return bool(self.heads)


def read_conllu(files: Iterable[str], faults: InvalidLines) -> Iterator[ConlluSentence]:
    """The sentences of files, in order; `.gz` and `-` as with any text."""
    for file in files:
        with check_gzip_on_error(file):
            yield from sentences_from_lines(read_lines(file, faults), faults)


def parse_conllu(text: str, name: str, faults: InvalidLines) -> Iterator[ConlluSentence]:
    """The sentences of a text in memory, which errors call `name`.

    >>> line = "\\t".join(["1", "Look", "look", "VERB", "_", "_", "0", "root", "_", "_"])
    >>> [sentence.heads for sentence in parse_conllu(line, "parse 1", InvalidLines())]
    [(0,)]
    """
    lines = (Line(line.removesuffix("\r"), name, number) for number, line in enumerate(text.split("\n"), start=1))
    return sentences_from_lines(lines, faults)


def sentences_from_lines(lines: Iterable[Line], faults: InvalidLines) -> Iterator[ConlluSentence]:
    """Sentences from lines; an empty line ends one."""
    block: list[Line] = []
    for line in lines:
        if line.text is None or line.text.strip():
            block.append(line)
            continue
        yield from _sentence(block, faults)
        block = []
    yield from _sentence(block, faults)


class _InvalidSentenceError(Exception):
    """A line is wrong: why in a word, and the sentence about it."""

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason


def _sentence(block: Sequence[Line], faults: InvalidLines) -> Iterator[ConlluSentence]:
    """The sentence of some lines; nothing where there are comments only."""
    lines = [line for line in block if line.text is None or not line.text.startswith("#")]
    if not lines:
        return
    place = lines[0].location
    if any(line.text is None for line in lines):  # noted already
        yield ConlluSentence(place)
        return
    try:
        yield _parsed(lines, place)
    except _InvalidSentenceError as fault:
        faults.add(fault.reason, str(fault))
        yield ConlluSentence(place)


def _parsed(lines: Sequence[Line], place: str) -> ConlluSentence:
    written: list[SurfaceToken] = []
    heads: list[int] = []
    places: list[str] = []  # of the lines of words
    for line in lines:
        columns = _columns(line)
        number, form, head = columns[0], columns[1].strip(), columns[6]
        together = written[-1].last if written else 0  # the last word whose writing is known
        if _EMPTY.fullmatch(number):
            continue
        if not form:
            raise _InvalidSentenceError(
                "no form", f"{line.location}: has no form in its second column; write the word there"
            )
        if span := _RANGE.fullmatch(number):
            first, last = int(span[1]), int(span[2])
            if first != len(heads) + 1 or together > len(heads) or last < first:
                raise _out_of_order(line, f"the range {number}", len(heads) + 1)
            written.append(SurfaceToken(form, first, last))
            continue
        if not _WORD.fullmatch(number) or int(number) != len(heads) + 1:
            raise _out_of_order(line, repr(number), len(heads) + 1)
        if not _HEAD.fullmatch(head):
            raise _InvalidSentenceError(
                "no head",
                f"{line.location}: has {head!r} for a head in its seventh column; write a word's number, or 0",
            )
        heads.append(int(head))
        places.append(line.location)
        if together < len(heads):
            written.append(SurfaceToken(form, len(heads), len(heads)))
    if not heads or written[-1].last > len(heads):
        raise _InvalidSentenceError(
            "words are missing", f"{lines[-1].location}: ends before its last word; complete the sentence"
        )
    if len(heads) > MAX_WORDS:
        raise _InvalidSentenceError(
            "too many words", f"{place}: begins a sentence of more than {MAX_WORDS:,} words; break it up"
        )
    _check_tree(heads, places)
    return ConlluSentence(place, tuple(written), tuple(heads))


def _columns(line: Line) -> list[str]:
    columns = (line.text or "").split("\t")
    if len(columns) != COLUMNS:
        count = "1 column" if len(columns) == 1 else f"{len(columns)} columns"
        raise _InvalidSentenceError(
            "not ten columns", f"{line.location}: has {count}, but CoNLL-U has ten, with tabs between them; mend it"
        )
    return columns


def _out_of_order(line: Line, found: str, expected: int) -> _InvalidSentenceError:
    said = f"{line.location}: begins with {found} where word {expected} should begin; number the words one by one"
    return _InvalidSentenceError("words out of order", said)


def _check_tree(heads: Sequence[int], places: Sequence[str]) -> None:
    """Complain where words do not hang in one tree."""
    roots = [word for word, head in enumerate(heads, start=1) if head == 0]
    for word, head in enumerate(heads, start=1):
        if head > len(heads):
            raise _InvalidSentenceError(
                "head out of range",
                f"{places[word - 1]}: hangs from word {head}, but the sentence has {len(heads)}; give one of its words",
            )
    if len(roots) > 1:
        raise _InvalidSentenceError(
            "several roots",
            f"{places[roots[1] - 1]}: is a root, and so is word {roots[0]}; a sentence has one word with head 0",
        )
    if circle := _circle(heads):
        way = " → ".join(map(str, [*circle, circle[0]]))
        raise _InvalidSentenceError(
            "words in a circle",
            f"{places[circle[0] - 1]}: hangs in a circle of words ({way}); let every word lead to the root",
        )


def _circle(heads: Sequence[int]) -> list[int]:
    """The words of a circle, from each to its head, the first of them first; nothing where all lead to a root."""
    led: set[int] = {0}  # words that lead to the root
    for start in range(1, len(heads) + 1):
        way: dict[int, None] = {}  # a set that keeps its order
        word = start
        while word not in led:
            if word in way:
                walked = list(way)
                circle = walked[walked.index(word) :]
                begin = circle.index(min(circle))
                return circle[begin:] + circle[:begin]
            way[word] = None
            word = heads[word - 1]
        led.update(way)
    return []
