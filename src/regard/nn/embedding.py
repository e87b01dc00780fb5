"""Embeddings (§3.4): token ids to vectors, scaled by √C, with positions added, then dropout.

B batch · T tokens · C model width · V vocabulary
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import InputError
from regard.nn.functional import Dropout
from regard.nn.layout import Tokens
from regard.nn.positions import Positions
from regard.nn.taps import Tap


class TokenEmbedding(nn.Module):
    """The way into a stack. `weight` may be shared with another embedding and with the output projection."""

    def __init__(
        self,
        weight: nn.Parameter,  # (V, C)
        positions: Positions,
        *,
        scaled: bool = True,
        segments: int = 0,
        norm: nn.Module | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        width = weight.size(1)
        self.weight = weight
        self.factor = math.sqrt(width) if scaled else 1.0
        self.lookup = Tap()  # the rows of the matrix
        self.scaled = Tap()  # × √C
        self.positions = positions
        self.segments = nn.Parameter(torch.empty(segments, width).normal_(std=width**-0.5)) if segments else None
        self.sum = Tap()  # with positions added
        self.segmented = Tap() if segments else None  # and with the vector of the first text, or of the second
        self.norm = norm
        self.dropout = Dropout(dropout)

    def forward(self, ids: Tensor, tokens: Tokens) -> Tensor:
        """ids (B, T) -> (B, T, C), or (N, C) where the tokens are packed.

        The fact `segments` (B, T) tells a first text (0) from a second (1); without it, all is the first.
        """
        x = self.scaled(self.lookup(self._rows(ids)) * self.factor)  # (B, T, C)
        x = self.sum(self.positions.embed(x, tokens))
        if self.segments is not None and self.segmented is not None:
            x = self.segmented(x + self.segments[tokens.features.get("segment_ids", torch.zeros_like(ids))])
        x = tokens.pack(x)
        return self.dropout(x if self.norm is None else self.norm(x))

    def _rows(self, ids: Tensor) -> Tensor:
        try:
            return nn.functional.embedding(ids, self.weight)
        except IndexError:
            wrong = int(ids[(ids < 0) | (ids >= len(self.weight))][0])
            raise InputError(
                f"A token id is {wrong}, but the vocabulary has ids 0 to {len(self.weight) - 1}: "
                "was the text encoded with another tokenizer?"
            ) from None


def embedding_matrix(vocabulary: int, width: int) -> nn.Parameter:
    """An embedding matrix (V, C) with entries N(0, 1/C), so that after × √C they have unit variance."""
    return nn.Parameter(torch.empty(vocabulary, width).normal_(std=width**-0.5))


class OutputProjection(nn.Module):
    """The pre-softmax projection; its matrix may be the embedding's."""

    def __init__(self, weight: nn.Parameter, bias: bool = False) -> None:
        super().__init__()
        self.weight = weight  # (V, C)
        self.bias = nn.Parameter(torch.zeros(len(weight))) if bias else None
        self.logits = Tap()

    def forward(self, hidden: Tensor) -> Tensor:
        return self.logits(F.linear(hidden, self.weight, self.bias))  # (…, C) -> (…, V)
