"""Syntax positions (Wang et al. 2019): where a word stands in the dependency tree of its sentence.

    abs(i)      the depth of word i, the root's being 0
    rel(i, j)   abs(i) − abs(j)                     where one word is above the other, or they are the same
                sign(i − j) · (abs(i) + abs(j))     elsewhere: by way of the root, signed by the order of the words

The depth picks a learned vector that is added to the embedding, beside the sequential positions. The distance, of a
query i to a key j, is clipped and picks learned vectors for keys and values, as in Shaw et al.: it is positive towards
the root, and elsewhere towards words that come before.

A tree reaches the network as three facts about each token (B, T), those of its word, so that sub-words share a place:

    depth        how many words are above it
    preorder     its number when the tree is walked from the top, each word before those below it
    last_descendant  the largest such number among itself and all that is below it

So word i is above word j, or is j, if preorder(i) ≤ preorder(j) ≤ last_descendant(i), and all distances of a batch are
found without walking any tree.

B batch · T queries · S keys · C model width
"""

from typing import cast

import torch
from torch import Tensor, nn

from regard.errors import InputError
from regard.nn.layout import Layout, Tokens
from regard.nn.positions import Positions
from regard.nn.relative import RelativeVectors
from regard.nn.taps import Tap

DEPTH, PREORDER, LAST_DESCENDANT = FACTS = ("depth", "preorder", "last_descendant")


class SyntaxPositions(Positions):
    """Sequential positions, and the tree's beside them: depths up to `deepest`, distances up to `clip`; 0: none."""

    def __init__(self, sequential: Positions, width: int, deepest: int, clip: int, per_head: bool = False) -> None:
        super().__init__()
        self.sequential = sequential
        self.weight = (
            nn.Parameter(torch.empty(deepest + 1, width).normal_(std=width**-0.5)) if deepest else None  # from 0 on
        )
        self.vectors = Tap() if deepest else None
        self.clip = clip
        self.per_head = per_head

    def embed(self, x: Tensor, tokens: Tokens) -> Tensor:
        x = self.sequential.embed(x, tokens)
        if self.weight is None or self.vectors is None:
            return x
        depth = fact(DEPTH, tokens).clamp(max=len(self.weight) - 1)
        return x + self.vectors(self.weight[depth])

    def for_layer(self, heads: int, key_width: int, value_width: int, scale: float) -> Positions:
        if not self.clip:
            return self.sequential.for_layer(heads, key_width, value_width, scale)
        return TreeVectors(self.clip, self.per_head, heads, key_width, value_width, scale)


class TreeVectors(RelativeVectors):
    """Shaw's vectors, picked by distance in the tree."""

    def _rows(self, layout: Layout) -> Tensor:
        key = f"syntax {self.clip}"
        if key not in layout.plans:
            layout.plans[key] = tree_distance(layout).clamp(-self.clip, self.clip) + self.clip
        return cast(Tensor, layout.plans[key])


def tree_distance(layout: Layout) -> Tensor:
    """rel(i, j) of each query i and key j (B, 1, T, S)."""
    depth, preorder, last = (fact(name, layout.queries)[:, None, :, None] for name in FACTS)  # (B, 1, T, 1)
    depth_j, preorder_j, last_j = (fact(name, layout.keys)[:, None, None, :] for name in FACTS)  # (B, 1, 1, S)
    above = (preorder <= preorder_j) & (preorder_j <= last)
    below = (preorder_j <= preorder) & (preorder <= last_j)
    return torch.where(above | below, depth - depth_j, -layout.distance.sign() * (depth + depth_j))


def fact(name: str, tokens: Tokens) -> Tensor:
    """A fact about tokens; a sentence where nobody gave it."""
    if name not in tokens.features:
        raise InputError(
            "This network places words in the dependency tree of their sentence, and no parse was given: "
            "give one with every sentence."
        )
    return tokens.features[name]
