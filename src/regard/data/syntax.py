"""Dependency trees as numbers: the position of each word in the tree of its sentence, as features of its tokens.

In preorder (each word before its dependents) the words of a subtree are consecutive: from the word's own number to
that of its last descendant. The root has number 0. Number 1 is reserved for the end token, which depends on the root,
as a full stop does, so that it has the same position in every sentence.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

SYNTAX_FEATURES = ("depth", "preorder", "last_descendant")  # features of each token, for syntax positions
TokenFeatures = dict[str, list[int]]  # name of a feature -> its value for each token
Span = tuple[int, int]


class TreePosition(NamedTuple):
    """Position of a word in the dependency tree of its sentence."""

    depth: int
    preorder: int
    last_descendant: int


END_POSITION = TreePosition(1, 1, 1)  # of the end token
PAD_FEATURE = 0  # value of every feature at padding, which attention ignores


class ParsedWord(NamedTuple):
    """A word: where it ends in its text, and its position in the tree."""

    end: int
    position: TreePosition


Parse = tuple[ParsedWord, ...]
ParseSource = str | Path | Iterable[str]  # a CoNLL-U file, or one CoNLL-U string for each text


def tree_positions(heads: Sequence[int]) -> list[TreePosition]:
    """Return the position of each word of a tree.

    Args:
        heads: for each word the number of its head, counted from 1, or 0 for the root, of which there is one.

    >>> tree_positions([2, 0, 2])  # the first and the third word depend on the second
    [TreePosition(depth=1, preorder=2, last_descendant=2), TreePosition(depth=0, preorder=0, last_descendant=3), \
TreePosition(depth=1, preorder=3, last_descendant=3)]
    """
    dependents: list[list[int]] = [[] for _ in range(len(heads) + 1)]  # of each word; those of 0 are the root
    for word, head in enumerate(heads, start=1):
        dependents[head].append(word)
    depth = [0] * (len(heads) + 1)
    order: list[int] = []  # words in preorder
    stack = [(word, 0) for word in dependents[0]]
    while stack:
        word, depth[word] = stack.pop()
        order.append(word)
        stack += [(child, depth[word] + 1) for child in reversed(dependents[word])]
    number = {word: 0 if n == 0 else n + END_POSITION.preorder for n, word in enumerate(order)}
    last = dict(number)
    for word in reversed(order):
        head = heads[word - 1]
        if head:
            last[head] = max(last[head], last[word])
    last[order[0]] = max(last[order[0]], END_POSITION.preorder)
    return [TreePosition(depth[word], number[word], last[word]) for word in range(1, len(heads) + 1)]


def token_features(parse: Parse, offsets: Sequence[Span]) -> TokenFeatures:
    """Return the syntax features of tokens with these character offsets: those of the word that a token begins in.

    >>> parse = (ParsedWord(5, TreePosition(0, 0, 2)), ParsedWord(12, TreePosition(1, 2, 2)))  # "Watch birds."
    >>> token_features(parse, [(0, 3), (3, 5), (5, 11), (11, 12)])["depth"]
    [0, 0, 1, 1]
    """
    ends = [word.end for word in parse]
    positions = [parse[min(bisect_right(ends, start), len(parse) - 1)].position for start, _ in offsets]
    return {name: [position[n] for position in positions] for n, name in enumerate(SYNTAX_FEATURES)}


def parse_to_json(parse: Parse) -> list[list[int]]:
    """Return a parse as lists of numbers."""
    return [[word.end, *word.position] for word in parse]


def parse_from_json(rows: Sequence[Sequence[int]]) -> Parse:
    """Return the parse that `parse_to_json` wrote.

    >>> parse_from_json(parse_to_json((ParsedWord(5, TreePosition(0, 0, 2)),)))
    (ParsedWord(end=5, position=TreePosition(depth=0, preorder=0, last_descendant=2)),)
    """
    return tuple(ParsedWord(end, TreePosition(*position)) for end, *position in rows)
