"""Dependency parses that belong to texts: which part of a text each word of a CoNLL-U sentence is.

A parse and its text have the same characters in the same order, apart from spaces. Words that are written as one
(`3-4  nel`) get the position of the highest of them in the tree, or of the first of equally high ones.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import TypeVar

from regard.data.lines import InvalidLines, Line
from regard.data.readers.conllu import ConlluSentence, parse_conllu, read_conllu
from regard.data.syntax import Parse, ParsedWord, tree_positions
from regard.errors import DataError

ParseSource = str | Path | Iterable[str]  # a CoNLL-U file, or one CoNLL-U string for each text
T = TypeVar("T")


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
