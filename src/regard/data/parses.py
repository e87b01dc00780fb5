"""Dependency trees as numbers: for each word its depth, and which words are above it.

Walked from the top, each word before those below it, the words of a tree get numbers such that all that is below a word
is a run: from its own number to the last below it. The root has number 0. Number 1 is kept for the token that ends a
sentence, which hangs from the root as a full stop does; so it has the same place in every sentence.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple, TypeVar

from regard.data.lines import InvalidLines, Line
from regard.data.readers.conllu import ConlluSentence, parse_conllu, read_conllu
from regard.errors import DataError

SYNTAX_FEATURES = ("depth", "preorder", "last_descendant")  # what a network is told about each token


class TreePosition(NamedTuple):
    """Where a word stands in the tree of its sentence."""

    depth: int
    preorder: int
    last_descendant: int


END_POSITION = TreePosition(1, 1, 1)  # the token that ends a sentence
PAD_FEATURE = 0  # of every fact: pads stand where the root does, and nobody looks at them


def tree_positions(heads: Sequence[int]) -> list[TreePosition]:
    """The place of each word of a tree, given the number of the word above it, from 1 on, or 0 for the one root.

    >>> tree_positions([2, 0, 2])  # the first and the third word hang from the second
    [TreePosition(depth=1, preorder=2, last_descendant=2), TreePosition(depth=0, preorder=0, last_descendant=3), \
TreePosition(depth=1, preorder=3, last_descendant=3)]
    """
    below: list[list[int]] = [[] for _ in range(len(heads) + 1)]  # of each word, and first of the root's own root
    for word, head in enumerate(heads, start=1):
        below[head].append(word)
    depth = [0] * (len(heads) + 1)
    order: list[int] = []  # words from the top
    waiting = [(word, 0) for word in below[0]]
    while waiting:
        word, depth[word] = waiting.pop()
        order.append(word)
        waiting += [(child, depth[word] + 1) for child in reversed(below[word])]
    number = {word: 0 if n == 0 else n + END_POSITION.preorder for n, word in enumerate(order)}
    last = dict(number)
    for word in reversed(order):
        head = heads[word - 1]
        if head:
            last[head] = max(last[head], last[word])
    last[order[0]] = max(last[order[0]], END_POSITION.preorder)
    return [TreePosition(depth[word], number[word], last[word]) for word in range(1, len(heads) + 1)]


Span = tuple[int, int]
TokenFeatures = dict[str, list[int]]  # of each token of a text, by name
ParseSource = str | Path | Iterable[str]  # a CoNLL-U file, or for each text its parse in CoNLL-U
T = TypeVar("T")


class ParsedWord(NamedTuple):
    """A word, where it ends in its text, and where it stands in the tree."""

    end: int
    position: TreePosition


Parse = tuple[ParsedWord, ...]


def token_features(parse: Parse, offsets: Sequence[Span]) -> TokenFeatures:
    """What a network is told of the tokens of a text that lie at these offsets.

    >>> parse = (ParsedWord(5, TreePosition(0, 0, 2)), ParsedWord(12, TreePosition(1, 2, 2)))  # "Watch birds."
    >>> token_features(parse, [(0, 3), (3, 5), (5, 11), (11, 12)])["depth"]
    [0, 0, 1, 1]
    """
    ends = [word.end for word in parse]
    found = [parse[min(bisect_right(ends, start), len(parse) - 1)].position for start, _ in offsets]
    return {name: [place[n] for place in found] for n, name in enumerate(SYNTAX_FEATURES)}


def align_parse(sentence: ConlluSentence, text: str, where: str, faults: InvalidLines) -> Parse | None:
    """The parse of a text that stands at `where`; None where the sentence is not that text, which is a fault."""
    if not sentence.is_valid:
        return None
    found: list[ParsedWord] = []
    tree = tree_positions(sentence.heads)
    end = 0
    for written in sentence.tokens:
        stop = _spelled(written.form, text, end)
        if stop is None:
            _differs(where, sentence, f"the parse has {written.form!r}", text[end:], faults)
            return None
        end = stop
        words = tree[written.first - 1 : written.last]
        found.append(ParsedWord(end, min(words, key=lambda place: place.depth)))
    if text[end:].strip():
        _differs(where, sentence, "the parse ends", text[end:], faults)
        return None
    return tuple(found)


def zip_parses(
    items: Iterable[T],
    line_of: Callable[[T], Line],
    sentences: Iterable[ConlluSentence],
    name: str,
    faults: InvalidLines,
) -> Iterator[tuple[T, Parse | None]]:
    """Items with the parses of their lines: the n-th sentence of the file `name` is that of the n-th line.

    CoNLL-U has no empty sentences: an empty line has no parse, and comes with None. So does a line, or a sentence, that
    is skipped as a fault.
    """
    rest = iter(sentences)
    for item in items:
        line = line_of(item)
        if line.text is not None and not line.text.strip():
            yield item, None
            continue
        sentence = next(rest, None)
        if sentence is None:
            raise DataError(f"{line.location}: has no parse, because {name} ends before it; give one for every line.")
        yield item, None if line.text is None else align_parse(sentence, line.text.strip(), line.location, faults)
    for sentence in rest:
        raise DataError(
            f"{sentence.location}: is the parse of no line, because the text ends before it; give one for every line."
        )


def attach_parses(texts: Iterable[str], parses: ParseSource) -> Iterator[tuple[str, Parse | None]]:
    """Texts with their parses; None for one that is empty."""
    faults = InvalidLines(hint="")
    if isinstance(parses, str | Path):
        sentences, name = read_conllu([str(parses)], faults), str(parses)
    else:
        several = (parse_conllu(text, f"parse {n}", faults) for n, text in enumerate(parses, start=1))
        sentences, name = chain.from_iterable(several), "the list of parses"
    lines = (Line(text, "text", n) for n, text in enumerate(texts, start=1))
    for line, parse in zip_parses(lines, lambda line: line, sentences, name, faults):
        yield line.text or "", parse


def parse_to_json(parse: Parse) -> list[list[int]]:
    """A parse for JSON."""
    return [[word.end, *word.position] for word in parse]


def parse_from_json(rows: Sequence[Sequence[int]]) -> Parse:
    """The parse that JSON holds.

    >>> parse_from_json(parse_to_json((ParsedWord(5, TreePosition(0, 0, 2)),)))
    (ParsedWord(end=5, position=TreePosition(depth=0, preorder=0, last_descendant=2)),)
    """
    return tuple(ParsedWord(end, TreePosition(*place)) for end, *place in rows)


def _spelled(form: str, text: str, start: int) -> int | None:
    """Where a form ends that stands in a text from `start` on, spaces aside; None where something else stands there."""
    for character in chain.from_iterable(form.split()):
        while start < len(text) and text[start].isspace():
            start += 1
        if text[start : start + 1] != character:
            return None
        start += 1
    return start


def _differs(where: str, sentence: ConlluSentence, parse: str, rest: str, faults: InvalidLines) -> None:
    there = repr(_shortened(rest.strip())) if rest.strip() else "nothing more"
    faults.add(
        "parse of another text",
        f"{where}: has {there} where {parse} ({sentence.location}); give the parse of this very line",
    )


def _shortened(text: str) -> str:
    return text if len(text) <= 20 else f"{text[:19]}…"
