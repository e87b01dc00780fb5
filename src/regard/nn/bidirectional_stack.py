"""Two independent recurrent stacks over the same embeddings (ELMo): one runs forward, the other backward.

Bidirectional layers would not do: the second of two would see the outputs of both directions of the first, that is the
whole text, and nothing would be left to predict.

B batch · T tokens · C width of a token's vector, half of it for each direction
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from regard.errors import InputError
from regard.nn.embedding import TokenEmbedding
from regard.nn.exposed import ExposedModule, Matrix, Point, tap_point, under
from regard.nn.functional import Dropout
from regard.nn.layout import Tokens, check_mask, none_if_full
from regard.nn.recurrent import DIRECTIONS, RecurrentLayer
from regard.nn.recurrent_stack import Sequences
from regard.nn.taps import Tap


class BidirectionalStack(ExposedModule):
    """Returns the output of every layer. Dropout acts on the output of the embedding and of each layer."""

    def __init__(
        self,
        embedding: TokenEmbedding,
        forwards: Sequence[RecurrentLayer],
        backwards: Sequence[RecurrentLayer],
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.forwards = nn.ModuleList(forwards)
        self.backwards = nn.ModuleList(backwards)
        self.dropout = Dropout(dropout)
        descriptions = ["h_0: the embedding, once for each direction"]
        descriptions += [f"h_{number + 1}: both directions, concatenated" for number in range(len(forwards))]
        self.states = nn.ModuleList(Tap("token", "unit", description=text) for text in descriptions)

    def forward(
        self,
        ids: Tensor,
        mask: Tensor | None = None,
        *,
        backwards: Tensor | None = None,
        features: Mapping[str, Tensor] | None = None,
    ) -> list[Tensor]:
        """ids (B, T) -> the outputs (B, T, C) of the embedding and of each layer, zero at padding.

        `backwards` (B, T) are the tokens of the backward direction, by default the same. It begins at the last token of
        each row, or of each document if documents share a row.
        """
        if ids.dim() != 2 or ids.size(1) == 0:
            raise InputError(
                f"The ids have shape {tuple(ids.shape)}; they should be (rows, length), with at least one token."
            )
        mask = none_if_full(check_mask(mask, ids.shape))
        documents = (features or {}).get("document_ids")
        x = self._embed(ids)
        y = x if backwards is None else self._embed(backwards)
        if mask is None and documents is None:
            ahead = self._run_layers(self.forwards, x)
            back = [state.flip(1) for state in self._run_layers(self.backwards, y.flip(1))]
        else:
            order = Sequences.of(mask if mask is not None else torch.ones_like(ids).bool(), documents)
            turned = order.reversed()
            ahead = [order.scatter(h) for h in self._run_layers(self.forwards, order.gather(x), order.lengths)]
            back = [turned.scatter(h) for h in self._run_layers(self.backwards, turned.gather(y), turned.lengths)]
        layers = [torch.cat(both, dim=-1) for both in zip([x, *ahead], [y, *back], strict=True)]  # (B, T, C)
        if mask is not None:
            layers = [layer.masked_fill(~mask[..., None], 0.0) for layer in layers]
        return [tap(layer) for tap, layer in zip(self.states, layers, strict=True)]

    def _embed(self, ids: Tensor) -> Tensor:
        return self.embedding(ids, Tokens(torch.arange(ids.size(1), device=ids.device)[None]))  # (B, T, C/2)

    def _run_layers(self, layers: Iterable[nn.Module], x: Tensor, lengths: Tensor | None = None) -> list[Tensor]:
        """Return the output of each layer of one direction."""
        outputs = []
        for layer in layers:
            x = self.dropout(layer(x, lengths)[0])
            outputs.append(x)
        return outputs

    @property
    def parts(self) -> list[tuple[str, list[nn.Module]]]:
        """Kinds of modules, each with all modules of the kind, in the order of the computation."""
        return [
            ("embedding", [self.embedding]),
            ("forward layers", [*self.forwards]),
            ("backward layers", [*self.backwards]),
        ]

    def bypassable_layers(self, number: int) -> list[nn.Module]:
        """Return the modules of a layer whose output can be replaced by their input: one for each direction."""
        return [layer for layers in (self.forwards, self.backwards) for layer in layers[number : number + 1]]

    def points(self) -> Iterator[Point]:
        embedded, *outputs = self.states
        yield from self.embedding.points()
        yield _tap_of("embedding.states", embedded)
        for number, both in enumerate(zip(self.forwards, self.backwards, strict=True)):
            for direction, layer in zip(DIRECTIONS, both, strict=True):
                if isinstance(layer, RecurrentLayer):
                    points = layer.direction_points(0, reversed=direction == "backwards")
                    yield from under(f"{number}.{direction}", points)
            yield _tap_of(f"{number}.states", outputs[number])

    def matrices(self) -> Iterator[Matrix]:
        yield from self.embedding.matrices()
        for number, both in enumerate(zip(self.forwards, self.backwards, strict=True)):
            for direction, layer in zip(DIRECTIONS, both, strict=True):
                if isinstance(layer, RecurrentLayer):
                    yield from under(f"{number}.{direction}", layer.direction_matrices())


def _tap_of(name: str, tap: nn.Module) -> Point:
    assert isinstance(tap, Tap)
    return tap_point(name, tap)


class LayerMixing(ExposedModule):
    """γ Σ_j s_j h_j: the layers mixed to one vector per token (Peters et al. 2018, equation 1).

    The weights s are a softmax of one learned scalar per layer, all equal at first; γ is a learned scale.
    """

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.scalars = nn.Parameter(torch.zeros(layers))
        self.scale = nn.Parameter(torch.ones(1))  # γ
        self.weights = Tap("layer", description="softmax of one learned scalar per layer: weight of each layer")
        self.mixed = Tap("token", "unit", description="γ Σ shares · h: weighted sum of the layers")

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        """Layers, each (B, T, C) -> (B, T, C)"""
        weights = self.weights(self.scalars.softmax(0))
        mixed = weights[0] * layers[0]
        for weight, layer in zip(weights[1:], layers[1:], strict=True):
            mixed = mixed + weight * layer
        return self.mixed(self.scale * mixed)

    def points(self) -> Iterator[Point]:
        yield tap_point("mixing.shares", self.weights)
        yield tap_point("states", self.mixed)

    def matrices(self) -> Iterator[Matrix]:
        yield Matrix("mixing.scalars", ("layer",), lambda: self.scalars, role="mixing")
        yield Matrix("mixing.scale", ("unit",), lambda: self.scale, role="mixing")
