"""Dependency trees as numbers: for each word its depth, and which words are above it.

Walked from the top, each word before those below it, the words of a tree get numbers such that all that is below a word
is a run: from its own number to the last below it. The root has number 0. Number 1 is kept for the token that ends a
sentence, which hangs from the root as a full stop does; so it has the same place in every sentence.
"""

from collections.abc import Sequence
from typing import NamedTuple

FACTS = ("depth", "preorder", "last_below")  # what a network is told about each token


class Place(NamedTuple):
    """Where a word stands in the tree of its sentence."""

    depth: int
    preorder: int
    last_below: int


END = Place(1, 1, 1)  # the token that ends a sentence
PAD = 0  # of every fact: pads stand where the root does, and nobody looks at them


def places(heads: Sequence[int]) -> list[Place]:
    """The place of each word of a tree, given the number of the word above it, from 1 on, or 0 for the one root.

    >>> places([2, 0, 2])  # the first and the third word hang from the second
    [Place(depth=1, preorder=2, last_below=2), Place(depth=0, preorder=0, last_below=3), \
Place(depth=1, preorder=3, last_below=3)]
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
    number = {word: 0 if n == 0 else n + END.preorder for n, word in enumerate(order)}
    last = dict(number)
    for word in reversed(order):
        head = heads[word - 1]
        if head:
            last[head] = max(last[head], last[word])
    last[order[0]] = max(last[order[0]], END.preorder)
    return [Place(depth[word], number[word], last[word]) for word in range(1, len(heads) + 1)]
