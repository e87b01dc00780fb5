"""Syntax positions (Wang et al. 2019): the position of a word in the dependency tree of its sentence.

    abs(i)      depth of word i; the root has 0
    rel(i, j)   abs(i) − abs(j)                     if one word is an ancestor of the other, or they are the same
                sign(i − j) · (abs(i) + abs(j))     otherwise: through the root, signed by the order of the words

The paper's first case is "on the same dependency edge". That is read as above, any two words of one path to the root;
with `edges_only` it is read literally, as a word and its head.

The depth selects a learned vector. It is added to the embedding, next to sequential positions, or both are merged by a
learned function first, tanh(W [sequential; depth] + b), as in the paper. The distance from a query i to a key j is
clipped and selects learned vectors for keys and values, as in Shaw et al.: it is positive toward the root, and
otherwise toward earlier words.

A tree is given as three features of each token (B, T), those of its word, so that sub-words share a position:

    depth             number of ancestors
    preorder          index in a preorder traversal of the tree
    last_descendant   largest preorder index in the subtree of the word

So word i is an ancestor of word j, or is j, if preorder(i) ≤ preorder(j) ≤ last_descendant(i), and all distances of a
batch follow without traversing any tree.

B batch · T queries · S keys · C model width
"""

from collections.abc import Iterator
from typing import cast

import torch
from torch import Tensor, nn

from regard.errors import InputError
from regard.nn.functional import random_normal
from regard.nn.layout import Layout, Tokens
from regard.nn.positions import Positions, RelativeVectors, VectorPositions
from regard.nn.taps import Matrix, Point, Tap, linear_matrices, tap_point

TREE_FEATURES = ("depth", "preorder", "last_descendant")


class SyntaxPositions(Positions):
    """Sequential positions plus tree positions: depths up to `max_depth`, distances up to `max_distance`; 0: none."""

    def __init__(
        self,
        sequential: Positions,
        width: int,
        max_depth: int,
        max_distance: int,
        per_head: bool = False,
        edges_only: bool = False,
    ) -> None:
        super().__init__()
        self.sequential = sequential
        self.weight = (
            nn.Parameter(random_normal(max_depth + 1, width, std=width**-0.5)) if max_depth else None  # from 0
        )
        description = "vector of each word's depth in the dependency tree"
        self.vectors = Tap("token", "unit", description=description) if max_depth else None
        self.max_distance = max_distance
        self.per_head = per_head
        self.edges_only = edges_only

    def embed(self, x: Tensor, tokens: Tokens) -> Tensor:
        x = self.sequential.embed(x, tokens)
        return x if self.weight is None else x + self.depth_vectors(tokens)

    def depth_vectors(self, tokens: Tokens) -> Tensor:
        """Return the vector of each token's depth (B, T, C); there must be such vectors."""
        assert self.weight is not None
        assert self.vectors is not None
        depth = tree_feature("depth", tokens).clamp(max=len(self.weight) - 1)
        return self.vectors(self.weight[depth])

    def for_layer(self, heads: int, key_width: int, value_width: int, scale: float) -> Positions:
        if not self.max_distance:
            return self.sequential.for_layer(heads, key_width, value_width, scale)
        sizes = (self.max_distance, self.per_head, heads, key_width, value_width)
        return TreeVectors(*sizes, scale, edges_only=self.edges_only)

    def points(self) -> Iterator[Point]:
        yield from self.sequential.points()
        if self.vectors is not None:
            yield tap_point("depth", self.vectors)

    def matrices(self) -> Iterator[Matrix]:
        yield from self.sequential.matrices()
        weight = self.weight
        if weight is not None:
            yield Matrix("depth_weight", ("depth", "unit"), lambda: weight, role="embedding")


class FusedSyntaxPositions(SyntaxPositions):
    """Sequential and tree positions merged by a learned function: x + tanh(W [sequential; depth] + b)."""

    sequential: VectorPositions

    def __init__(
        self,
        sequential: VectorPositions,
        width: int,
        max_depth: int,
        max_distance: int,
        per_head: bool = False,
        edges_only: bool = False,
    ) -> None:
        super().__init__(sequential, width, max_depth, max_distance, per_head, edges_only)
        self.fusion = nn.Linear(2 * width, width)
        self.fused = Tap("token", "unit", description="tanh(W_fusion · [position; depth] + b_fusion)")

    def embed(self, x: Tensor, tokens: Tokens) -> Tensor:
        order = self.sequential.vectors(self.sequential.vectors_at(x, tokens)).expand_as(x)
        return x + self.fused(self.fusion(torch.cat([order, self.depth_vectors(tokens)], dim=-1)).tanh())

    def points(self) -> Iterator[Point]:
        yield from super().points()
        yield tap_point("fused_positions", self.fused)

    def matrices(self) -> Iterator[Matrix]:
        yield from super().matrices()
        yield from linear_matrices(self.fusion, "fusion")


class TreeVectors(RelativeVectors):
    """Relative vectors that are selected by distance in the tree."""

    def __init__(
        self,
        max_distance: int,
        per_head: bool,
        heads: int,
        key_width: int,
        value_width: int,
        scale: float,
        edges_only: bool = False,
    ) -> None:
        super().__init__(max_distance, per_head, heads, key_width, value_width, scale)
        self.edges_only = edges_only

    def _rows(self, layout: Layout) -> Tensor:
        key = f"syntax {self.max_distance} {self.edges_only}"
        if key not in layout.memo:
            distance = tree_distance(layout, edges_only=self.edges_only)
            layout.memo[key] = distance.clamp(-self.max_distance, self.max_distance) + self.max_distance
        return cast(Tensor, layout.memo[key])


def tree_distance(layout: Layout, *, edges_only: bool = False) -> Tensor:
    """Return rel(i, j) of each query i and key j (B, 1, T, S).

    With `edges_only`, depths are subtracted for a word and its head, and otherwise for a word and any ancestor.
    """
    depth, preorder, last = (tree_feature(name, layout.queries)[:, None, :, None] for name in TREE_FEATURES)
    depth_j, preorder_j, last_j = (tree_feature(name, layout.keys)[:, None, None, :] for name in TREE_FEATURES)
    above = (preorder <= preorder_j) & (preorder_j <= last)
    below = (preorder_j <= preorder) & (preorder <= last_j)
    related = above | below
    if edges_only:
        related = related & ((depth - depth_j).abs() <= 1)
    return torch.where(related, depth - depth_j, -layout.distance.sign() * (depth + depth_j))


def tree_feature(name: str, tokens: Tokens) -> Tensor:
    """Return a tree feature (B, T) of the tokens, or raise `InputError` if they came without a parse."""
    if name not in tokens.features:
        raise InputError(
            "This network uses the dependency tree of each sentence (syntax positions), but no parse was given: "
            "provide a parse for every sentence."
        )
    return tokens.features[name]
