"""Texts aligned line by line: parallel files, and dependency parses of texts in CoNLL-U.

A parse and its text have the same characters in the same order, apart from spaces. Words that are written as one
(`3-4  nel`) get the position of the highest of them in the tree, or of the first of equally high ones.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import TypeVar

from regard.data.lines import InvalidLines, Line, check_compression_on_error, read_lines
from regard.data.readers.base import Pair, check_pair
from regard.data.readers.conll import ConlluSentence, parse_conllu, read_conllu
from regard.data.remote import expand_patterns
from regard.data.syntax import Parse, ParsedWord, ParseSource, tree_positions
from regard.errors import DataError

T = TypeVar("T")


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
    sources, targets, parses = expand_patterns(sources), expand_patterns(targets), expand_patterns(parses)
    if len(sources) != len(targets):
        raise DataError(
            f"there are {len(sources)} source files and {len(targets)} target files; pass one target for each source."
        )
    if parses and len(parses) != len(sources):
        raise DataError(
            f"there are {len(sources)} source files and {len(parses)} files of parses; pass one for each source."
        )
    for n, (source, target) in enumerate(zip(sources, targets, strict=True)):
        with check_compression_on_error(source, target):
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


def align_parse(sentence: ConlluSentence, text: str, location: str, invalid: InvalidLines) -> Parse | None:
    """Return the parse of a text; None, and an invalid line, if the sentence is not that text."""
    if not sentence.is_valid:
        return None
    words: list[ParsedWord] = []
    positions = tree_positions(sentence.heads)
    end = 0
    for token in sentence.tokens:
        stop = _match(token.form, text, end)
        if stop is None:
            _report_mismatch(location, sentence, f"the parse has {token.form!r}", text[end:], invalid)
            return None
        end = stop
        highest = min(positions[token.first - 1 : token.last], key=lambda position: position.depth)
        words.append(ParsedWord(end, highest))
    if text[end:].strip():
        _report_mismatch(location, sentence, "the parse ends", text[end:], invalid)
        return None
    return tuple(words)


def zip_parses(
    items: Iterable[T],
    line_of: Callable[[T], Line],
    sentences: Iterable[ConlluSentence],
    name: str,
    invalid: InvalidLines,
) -> Iterator[tuple[T, Parse | None]]:
    """Yield items with the parses of their lines: sentence n of the file `name` belongs to line n.

    CoNLL-U has no empty sentences: an empty line has no sentence, and gets None. So does a line or a sentence that is
    skipped as invalid.
    """
    remaining = iter(sentences)
    for item in items:
        line = line_of(item)
        if line.text is not None and not line.text.strip():
            yield item, None
            continue
        sentence = next(remaining, None)
        if sentence is None:
            raise DataError(f"{line.location}: no parse, because {name} ends before it; pass one for every line.")
        yield item, None if line.text is None else align_parse(sentence, line.text.strip(), line.location, invalid)
    for sentence in remaining:
        raise DataError(
            f"{sentence.location}: a parse without a line, because the text ends before it; pass one for every line."
        )


def attach_parses(texts: Iterable[str], parses: ParseSource) -> Iterator[tuple[str, Parse | None]]:
    """Yield texts with their parses; None for an empty text."""
    invalid = InvalidLines(hint="")
    if isinstance(parses, str | Path):
        sentences, name = read_conllu([str(parses)], invalid), str(parses)
    else:
        blocks = (parse_conllu(text, f"parse {n}", invalid) for n, text in enumerate(parses, start=1))
        sentences, name = chain.from_iterable(blocks), "the list of parses"
    lines = (Line(text, "text", n) for n, text in enumerate(texts, start=1))
    for line, parse in zip_parses(lines, lambda line: line, sentences, name, invalid):
        yield line.text or "", parse


def _match(form: str, text: str, start: int) -> int | None:
    """Return where a form ends that begins at `start` of a text, spaces ignored; None if it is not there."""
    for character in chain.from_iterable(form.split()):
        while start < len(text) and text[start].isspace():
            start += 1
        if text[start : start + 1] != character:
            return None
        start += 1
    return start


def _report_mismatch(location: str, sentence: ConlluSentence, parse: str, rest: str, invalid: InvalidLines) -> None:
    found = repr(_shorten(rest.strip())) if rest.strip() else "nothing more"
    invalid.add(
        "parse of another text",
        f"{location}: has {found} where {parse} ({sentence.location}); pass the parse of this line",
    )


def _shorten(text: str) -> str:
    return text if len(text) <= 20 else f"{text[:19]}…"
