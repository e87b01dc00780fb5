"""Embeddings (§3.4): token ids to vectors, scaled by √E, plus positions, then dropout; and the output projection.

B batch · T tokens · C model width · E width of the embeddings, C unless positions are appended · V vocabulary
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import InputError
from regard.nn.functional import Dropout, random_normal
from regard.nn.layout import Tokens
from regard.nn.positions import Positions
from regard.nn.taps import ExposedModule, Matrix, MatrixProduct, Point, Tap, points_of, tap_point, under


def embedding_matrix(vocab_size: int, width: int) -> nn.Parameter:
    """Return an embedding matrix (V, C) with entries N(0, 1/C), so that after × √C they have unit variance."""
    return nn.Parameter(random_normal(vocab_size, width, std=width**-0.5))


class TokenEmbedding(ExposedModule):
    """The input of a stack. `weight` may be shared with another embedding and with the output projection."""

    def __init__(
        self,
        weight: nn.Parameter,  # (V, E)
        positions: Positions,
        *,
        scaled: bool = True,
        segments: int = 0,
        norm: nn.Module | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        width = weight.size(1) + positions.appended_width  # C
        self.weight = weight
        self.factor = math.sqrt(weight.size(1)) if scaled else 1.0
        axes = ("token", "unit")
        self.lookup = Tap(*axes, description="row of the embedding matrix for each token id")
        self.scaled = Tap(*axes, description=f"embedding × {self.factor:.4g}")
        self.positions = positions
        self.segments = nn.Parameter(random_normal(segments, width, std=width**-0.5)) if segments else None
        combination = "embedding, then position" if positions.appended_width else "embedding plus position"
        self.sum = Tap(*axes, description=combination)
        self.segmented = Tap(*axes, description="plus the vector of the first or second text") if segments else None
        self.norm = norm
        self.dropout = Dropout(dropout)

    def forward(self, ids: Tensor, tokens: Tokens) -> Tensor:
        """ids (B, T) -> (B, T, C), or (N, C) if the tokens are packed.

        The feature `segment_ids` (B, T) is 0 in a first text and 1 in a second; the default is 0.
        """
        x = self.scaled(self.lookup(self._rows(ids)) * self.factor)  # (B, T, E)
        x = self.sum(self.positions.embed(x, tokens))  # (B, T, C)
        if self.segments is not None and self.segmented is not None:
            x = self.segmented(x + self.segments[tokens.features.get("segment_ids", torch.zeros_like(ids))])
        x = tokens.pack(x)
        return self.dropout(x if self.norm is None else self.norm(x))

    def _rows(self, ids: Tensor) -> Tensor:
        try:
            return F.embedding(ids, self.weight)
        except IndexError:
            wrong = int(ids[(ids < 0) | (ids >= len(self.weight))][0])
            raise InputError(
                f"A token id is {wrong}, but the vocabulary has ids 0 to {len(self.weight) - 1}: "
                "was the text encoded with another tokenizer?"
            ) from None

    def points(self) -> Iterator[Point]:
        """Yield the points of the embedding and of its norm, named as a stack shows them."""
        taps = {"lookup": self.lookup, "scaled": self.scaled}
        yield from (tap_point(f"embedding.{name}", tap) for name, tap in taps.items())
        yield from under("embedding", self.positions.points())
        yield tap_point("embedding.sum", self.sum)
        if self.segmented is not None:
            yield tap_point("embedding.segmented", self.segmented)
        if self.norm is not None:
            yield from under("embedding_norm", points_of(self.norm))

    def matrices(self) -> Iterator[Matrix]:
        """Yield the matrices of the embedding, named as a stack shows them."""
        yield Matrix("embedding.weight", ("vocabulary", "unit"), lambda: self.weight, role="embedding")
        yield from under("embedding", self.positions.matrices())


class OutputProjection(ExposedModule):
    """The linear layer before softmax (§3.4), from hidden states to logits; its matrix may be the embedding's."""

    def __init__(self, weight: nn.Parameter, bias: bool = False, soft_cap: float | None = None) -> None:
        super().__init__()
        self.weight = weight  # (V, C)
        self.bias = nn.Parameter(torch.zeros(len(weight))) if bias else None
        self.soft_cap = soft_cap
        self.uncapped: Tap | None = None
        product = "states · Wᵀ: a score for every token of the vocabulary"
        if soft_cap is not None:
            self.uncapped = Tap("token", "vocabulary", description=product)
            product = f"{soft_cap:g} · tanh(uncapped / {soft_cap:g}): scores between −{soft_cap:g} and {soft_cap:g}"
        self.logits = Tap("token", "vocabulary", description=product)

    def forward(self, hidden: Tensor) -> Tensor:
        """(…, C) -> (…, V)"""
        return self.logits(self.cap(F.linear(hidden, self.weight, self.bias)))

    def cap(self, logits: Tensor) -> Tensor:
        """Return c · tanh(logits / c), or the logits themselves without a cap."""
        if self.soft_cap is None or self.uncapped is None:
            return logits
        return self.soft_cap * torch.tanh(self.uncapped(logits) / self.soft_cap)

    @property
    def is_watched(self) -> bool:
        """Whether a tap is open, which must see the logits."""
        return self.logits.is_open or (self.uncapped is not None and self.uncapped.is_open)

    @property
    def bias_name(self) -> str | None:
        """Name of the bias among the matrices, if there is one."""
        return None if self.bias is None else "b"

    def points(self) -> Iterator[Point]:
        product = MatrixProduct("/decoder.states", "W", self.bias_name)
        if self.uncapped is not None:
            yield tap_point("uncapped", self.uncapped, product)
        yield tap_point("logits", self.logits, None if self.uncapped is not None else product)
        description = "softmax of the logits: probability of every next token"
        yield Point("probabilities", self.logits.axes, description, self.logits, transform=lambda x: x.softmax(-1))

    def matrices(self) -> Iterator[Matrix]:
        yield Matrix("W", ("unit", "vocabulary"), lambda: self.weight.mT)
        bias = self.bias
        if bias is not None:
            yield Matrix("b", ("vocabulary",), lambda: bias, role="bias")
