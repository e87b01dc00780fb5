"""Heads of encoders: what is predicted from token states, and pooling of token states to one vector per text.

B batch · S tokens · C model width · V vocabulary · L labels
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from regard.nn.embedding import OutputProjection
from regard.nn.functional import Dropout
from regard.nn.taps import (
    ExposedModule,
    Matrix,
    MatrixProduct,
    Point,
    Tap,
    linear_matrices,
    points_of,
    tap_point,
    under,
)


class PoolingLayer(ExposedModule):
    """One vector for a text from the vectors of its tokens."""

    def forward(self, states: Tensor, mask: Tensor | None = None) -> Tensor:
        """states (B, S, C), mask (B, S) True at tokens -> (B, C)"""
        raise NotImplementedError

    def points(self) -> Iterator[Point]:
        yield Point("vector", ("unit",), "one vector for the whole text", self)


class MeanPooling(PoolingLayer):
    """The mean over the tokens."""

    def forward(self, states: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is None:
            return states.mean(1)
        weight = mask[..., None].to(states.dtype)  # (B, S, 1)
        return (states * weight).sum(1) / weight.sum(1).clamp(min=1)


class FirstTokenPooling(PoolingLayer):
    """The first token, which encoders such as BERT train to represent the whole text."""

    def forward(self, states: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is None:
            return states[:, 0]
        return states[torch.arange(len(states), device=states.device), mask.int().argmax(1)]


class DensePooling(FirstTokenPooling):
    """The first token through a dense layer and tanh (BERT's pooler)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)

    def forward(self, states: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.activate(self.dense(super().forward(states, mask)))

    def activate(self, vector: Tensor) -> Tensor:
        """The activation, elementwise."""
        return vector.tanh()

    def matrices(self) -> Iterator[Matrix]:
        return linear_matrices(self.dense, "dense")


class ReLUPooling(DensePooling):
    """The first token through a dense layer and ReLU (DistilBERT's text classifier)."""

    def activate(self, vector: Tensor) -> Tensor:
        return vector.relu()


class TokenClassificationHead(ExposedModule):
    """A label for each token."""

    description = "states · W + b: a score for every label"
    axes: tuple[str, ...] = ("token", "label")
    input_point = "/encoder.states"

    def __init__(self, width: int, labels: int, dropout: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.dense = nn.Linear(width, labels)
        self.logits = Tap(*self.axes, description=self.description)

    def forward(self, hidden: Tensor) -> Tensor:
        """(…, C) -> (…, L)"""
        return self.logits(self.dense(self.dropout(hidden)))

    def points(self) -> Iterator[Point]:
        yield tap_point("logits", self.logits, MatrixProduct(self.input_point, "W", "b"))
        description = "softmax of the logits: probability of every label"
        yield Point("probabilities", self.axes, description, self.logits, transform=lambda x: x.softmax(-1))

    def matrices(self) -> Iterator[Matrix]:
        return linear_matrices(self.dense, columns="label")


class TextClassificationHead(TokenClassificationHead):
    """A label for a whole text, from its pooled vector."""

    description = "pooling.vector · W + b: a score for every label"
    axes = ("label",)
    input_point = "/pooling.vector"


class MaskedLMHead(ExposedModule):
    """The token at each masked place: a dense layer and a norm before the output projection (Devlin et al. 2019)."""

    def __init__(self, dense: nn.Linear, activation: nn.Module, norm: nn.Module, output: OutputProjection) -> None:
        super().__init__()
        self.dense = dense
        self.activation = activation
        self.norm = norm
        self.output = output

    def forward(self, hidden: Tensor) -> Tensor:
        """(…, C) -> (…, V)"""
        return self.output(self.norm(self.activation(self.dense(hidden))))

    def points(self) -> Iterator[Point]:
        yield from under("norm", points_of(self.norm))
        yield from _token_points(self.output, "", "at this place", lambda x: x)

    def matrices(self) -> Iterator[Matrix]:
        yield from linear_matrices(self.dense, "dense")
        yield from self.output.matrices()


class BidirectionalLMHead(ExposedModule):
    """The next token from the forward half of the states, the previous one from the backward half."""

    def __init__(self, output: OutputProjection) -> None:
        super().__init__()
        self.output = output

    def forward(self, hidden: Tensor) -> Tensor:
        """(…, C) -> (…, 2, V)"""
        return self.output(hidden.unflatten(-1, (2, -1)))  # (…, C) -> (…, 2, C/2) -> (…, 2, V)

    def points(self) -> Iterator[Point]:
        yield from _token_points(self.output, "forwards.", "that follows", lambda x: x[:, 0])  # (S, 2, V) -> (S, V)
        yield from _token_points(self.output, "backwards.", "that comes before", lambda x: x[:, 1])

    def matrices(self) -> Iterator[Matrix]:
        return self.output.matrices()


def _token_points(
    output: OutputProjection, prefix: str, which: str, select: Callable[[Tensor], Tensor]
) -> Iterator[Point]:
    axes, hidden = ("token", "vocabulary"), f"{prefix}hidden"
    yield Point(hidden, ("token", "unit"), "input of the output projection", output, "input", select)
    description = f"hidden · W + b: a score for every token {which}"
    product = MatrixProduct(hidden, "W", output.bias_name)
    yield Point(f"{prefix}logits", axes, description, output.logits, transform=select, product=product)
    description = f"softmax of the logits: probability of every token {which}"
    yield Point(f"{prefix}probabilities", axes, description, output.logits, transform=lambda x: select(x).softmax(-1))
