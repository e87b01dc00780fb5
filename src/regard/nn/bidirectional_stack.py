"""Two recurrent stacks over the same embeddings that never meet: one reads forwards, the other backwards.

A bidirectional layer is not enough. The second of two would read what both directions of the first have seen, which is
the whole text, and there would be nothing left to predict.

B batch · T tokens · C width of a token's vector, half of it for each direction
"""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from regard.errors import InputError
from regard.nn.embedding import TokenEmbedding
from regard.nn.functional import Dropout
from regard.nn.layout import Tokens, check_mask, none_if_full
from regard.nn.recurrent import RecurrentLayer
from regard.nn.recurrent_stack import Sequences
from regard.nn.taps import Tap


class BidirectionalStack(nn.Module):
    """Gives what every layer shows. Dropout acts on what comes out of the embedding and of each layer."""

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
        self.states = nn.ModuleList(Tap() for _ in range(len(forwards) + 1))

    def forward(
        self,
        ids: Tensor,
        mask: Tensor | None = None,
        *,
        backwards: Tensor | None = None,
        features: Mapping[str, Tensor] | None = None,
    ) -> list[Tensor]:
        """ids (B, T) -> the layers, each (B, T, C): h_0 the embedding twice, then both directions side by side.

        They are zero at pads.
        `backwards` (B, T) is what the backward direction reads, where that is not the same. It begins at each row's
        last real token; where documents share a row, at the last of each.
        """
        if ids.dim() != 2 or ids.size(1) == 0:
            raise InputError(
                f"The ids have shape {tuple(ids.shape)}; they should be (rows, length), with a token at least."
            )
        mask = none_if_full(check_mask(mask, ids.shape))
        documents = (features or {}).get("document_ids")
        x = self._embedded(ids)
        y = x if backwards is None else self._embedded(backwards)
        if mask is None and documents is None:
            ahead = self._walk(self.forwards, x)
            back = [state.flip(1) for state in self._walk(self.backwards, y.flip(1))]
        else:
            order = Sequences.of(mask if mask is not None else torch.ones_like(ids).bool(), documents)
            turned = order.reversed()
            ahead = [order.scatter(h) for h in self._walk(self.forwards, order.gather(x), order.lengths)]
            back = [turned.scatter(h) for h in self._walk(self.backwards, turned.gather(y), turned.lengths)]
        layers = [torch.cat(both, dim=-1) for both in zip([x, *ahead], [y, *back], strict=True)]  # (B, T, C)
        if mask is not None:
            layers = [layer.masked_fill(~mask[..., None], 0.0) for layer in layers]
        return [tap(layer) for tap, layer in zip(self.states, layers, strict=True)]

    def _embedded(self, ids: Tensor) -> Tensor:
        return self.embedding(ids, Tokens(torch.arange(ids.size(1), device=ids.device)[None]))  # (B, T, C/2)

    def _walk(self, layers: Iterable[nn.Module], x: Tensor, lengths: Tensor | None = None) -> list[Tensor]:
        """What each layer of one direction shows."""
        shown = []
        for layer in layers:
            x = self.dropout(layer(x, lengths)[0])
            shown.append(x)
        return shown

    @property
    def parts(self) -> list[tuple[str, list[nn.Module]]]:
        """The kinds of parts, each with all its copies, in the order in which a token meets them."""
        return [
            ("embedding", [self.embedding]),
            ("forward layers", [*self.forwards]),
            ("backward layers", [*self.backwards]),
        ]


class LayerMixing(nn.Module):
    """γ Σ_j s_j h_j: a scale, and weights that a softmax makes of one learned scalar per layer.

    At first all layers weigh the same. Each task learns which of them it needs.
    """

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.scalars = nn.Parameter(torch.zeros(layers))
        self.scale = nn.Parameter(torch.ones(1))  # γ
        self.weights = Tap()  # s
        self.mixed = Tap()

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        weights = self.weights(self.scalars.softmax(0))
        mixed = weights[0] * layers[0]
        for weight, layer in zip(weights[1:], layers[1:], strict=True):
            mixed = mixed + weight * layer
        return self.mixed(self.scale * mixed)  # (B, T, C), as each layer
