"""Recurrent stacks: an embedding, then one recurrent layer after the other.

`RecurrentStack` is the encoder or decoder of a translator, or a language model. `BidirectionalStack` has two
independent directions (ELMo), and `LayerMixing` is the weighted sum of its layers.

B batch · S source length · T tokens · C model width · R sequences · L length of the longest sequence
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from regard.errors import InputError
from regard.nn.embedding import TokenEmbedding
from regard.nn.functional import Dropout
from regard.nn.layout import Mask, PaddingMask, Tokens, find_padding
from regard.nn.recurrent import (
    DIRECTIONS,
    AttendingLayer,
    EncodedSource,
    RecurrentLayer,
    RecurrentState,
    SourceAttention,
)
from regard.nn.sequences import Lengths, find_sequences
from regard.nn.taps import ExposedModule, Matrix, Point, Tap, child_matrices, child_points, points_of, tap_point, under


class RecurrentCache:
    """State of a recurrent decoder between steps: the state of each layer, and the keys of its attention.

    It does not grow with the text. Decoding changes it in place; `select` and `reorder` return a new one.
    """

    def __init__(self, states: Sequence[RecurrentState] = (), keys: Tensor | None = None, length: int = 0) -> None:
        self.states = states  # of each layer, (B, C); empty before the first step
        self.keys = keys  # (sentences, S, C)
        self.length = length

    def select(self, rows: Tensor, sentences: Tensor | None = None) -> "RecurrentCache":
        """Return the cache of these rows, in this order; `sentences` are those of the memory, if they differ."""
        keys = None if self.keys is None else self.keys.index_select(0, rows if sentences is None else sentences)
        return RecurrentCache(select_states(self.states, rows), keys, self.length)

    def reorder(self, rows: Tensor) -> "RecurrentCache":
        """Return the cache of these rows, each of which keeps its sentence of the memory."""
        return RecurrentCache(select_states(self.states, rows), self.keys, self.length)

    def last_tokens(self, count: int) -> None:
        """Return None: a state has no parts for single tokens."""

    def restore(self, blocks: Sequence[Sequence[tuple[Tensor, Tensor]]]) -> None:
        """Raise `InputError`, because there is nothing to restore."""
        raise InputError("A recurrent network has no keys and values to begin with.")

    def drop_last(self, count: int) -> None:
        """Raise `InputError`: earlier states are not kept."""
        raise InputError("A recurrent network cannot go back to an earlier token: use lookup = 0.")


def select_states(states: Sequence[RecurrentState], rows: Tensor) -> tuple[RecurrentState, ...]:
    """Return the states of these rows, in this order."""
    return tuple(tuple(part.index_select(0, rows) for part in state) for state in states)


class RecurrentStack(ExposedModule):
    """An encoder or a decoder. Dropout acts on the input of each layer and on the output of the last.

    Attention to the source comes after the last layer, for all steps at once (Luong et al. 2015), or before each step
    of the first layer, if that is an `AttendingLayer` (Bahdanau et al. 2015). Only the first layer attends, so that the
    layers above need not go step by step; its contexts also go to the output, past all layers (as in Wu et al. 2016,
    §3.1).
    """

    def __init__(
        self,
        embedding: TokenEmbedding,
        layers: Sequence[RecurrentLayer],
        cross_attention: SourceAttention | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.layers = nn.ModuleList(layers)
        self.cross_attention = cross_attention
        self.dropout = Dropout(dropout)
        self.states = Tap("token", "unit", description="output of the stack")
        self.prepared_step: object = None
        """The `RecurrentStep` of a decoder, made on first use."""

    def forward(
        self,
        ids: Tensor,
        mask: Mask = None,
        *,
        start: Sequence[RecurrentState] = (),
        memory: Tensor | None = None,
        memory_mask: Mask = None,
        cache: RecurrentCache | None = None,
        features: Mapping[str, Tensor] | None = None,
    ) -> tuple[Tensor, list[RecurrentState]]:
        """ids (B, T) -> hidden states (B, T, C), zero at padding, and the last state (B, C) of each layer.

        `start` are the initial states of the layers, zero by default. The rest is as in `Stack`; documents that share a
        row are separate sequences.
        """
        sentences = len(start[0][0]) if start else len(ids)
        if ids.dim() != 2 or len(ids) % sentences:
            rows = f" and a memory of {sentences} rows" if start else ""
            raise InputError(f"The ids have shape {tuple(ids.shape)}{rows}; they should be (rows, length).")
        if ids.size(1) == 0:
            raise InputError("There are no tokens: a sequence has at least its end token.")
        if cache is not None and cache.length and features:
            raise NotImplementedError("token features are not kept in a cache")
        padding = find_padding(mask, ids.shape)
        before = cache.states if cache is not None and cache.length else _repeat_states(start, len(ids) // sentences)
        source = self._source(memory, memory_mask, cache)
        tokens = self._embed(ids)
        x, context, last = self._run_layers(tokens, padding, features or {}, before, source)
        if source is not None and context is not None:
            x = source.attention.combine(context, x, tokens)
        elif source is not None:
            x = source.attention(x, source.memory, source.mask, source.keys)
        if cache is not None:
            cache.states, cache.length = last, cache.length + ids.size(1)
        x = self.states(self.dropout(x))
        return x if padding is None else x.masked_fill(~padding.tokens[..., None], 0.0), last

    def _embed(self, ids: Tensor) -> Tensor:
        return self.embedding(ids, Tokens(torch.arange(ids.size(1), device=ids.device)[None], limit=ids.size(1)))

    def _source(self, memory: Tensor | None, mask: Mask, cache: RecurrentCache | None) -> EncodedSource | None:
        """Return the input of attention; with a cache, the memory's part of the scores is computed once."""
        if self.cross_attention is None or memory is None:
            return None
        keys = None if cache is None else cache.keys
        if keys is None:
            keys = self.cross_attention.score.keys(memory)
        if cache is not None:
            cache.keys = keys
        padding = find_padding(mask, memory.shape[:2])
        return EncodedSource(self.cross_attention, memory, None if padding is None else padding.tokens, keys)

    def _run_layers(
        self,
        x: Tensor,
        padding: PaddingMask | None,
        features: Mapping[str, Tensor],
        before: Sequence[RecurrentState],
        source: EncodedSource | None,
    ) -> tuple[Tensor, Tensor | None, list[RecurrentState]]:
        """Return the output of the last layer (B, T, C), the contexts of an attending layer, and the last states."""
        sequences, lengths = find_sequences(padding, features, x), None
        if sequences is not None:
            if "document_ids" in features and source is not None:
                source = source.select(sequences.rows // (len(x) // len(source.memory)))
            x, before, lengths = sequences.gather(x), select_states(before, sequences.rows), sequences.lengths
        context, last = None, []
        for number, layer in enumerate(self.layers):
            x, start = self.dropout(x) if number else x, before[number] if before else None
            if isinstance(layer, AttendingLayer) and source is not None:
                x, context, state = layer.attend_and_step(x, lengths, start, source)
            else:
                x, state = layer(x, lengths, start)
            last.append(state)
        if sequences is None:
            return x, context, last
        return sequences.scatter(x), None if context is None else sequences.scatter(context), last

    @property
    def parts(self) -> list[tuple[str, list[nn.Module]]]:
        """Kinds of modules, each with all modules of the kind, in the order of the computation."""
        attention = [] if self.cross_attention is None else [("cross-attention", [self.cross_attention])]
        return [("embedding", [self.embedding]), ("recurrent layers", [*self.layers]), *attention]

    def bypassable_layers(self, number: int) -> list[nn.Module]:
        """Return the modules of a layer whose output can be replaced by their input."""
        return [layer for layer in self.layers[number : number + 1] if getattr(layer, "can_bypass", False)]

    def points(self) -> Iterator[Point]:
        yield from self.embedding.points()
        yield from child_points(self.layers)
        if self.cross_attention is not None:
            yield from under("cross_attention", points_of(self.cross_attention))
        yield tap_point("states", self.states)

    def matrices(self) -> Iterator[Matrix]:
        yield from self.embedding.matrices()
        yield from child_matrices(self.layers)


def _repeat_states(states: Sequence[RecurrentState], rows: int) -> Sequence[RecurrentState]:
    """Return the states of sentences for `rows` consecutive target rows each."""
    return [tuple(part.repeat_interleave(rows, 0) for part in state) for state in states] if rows > 1 else states


class BidirectionalStack(ExposedModule):
    """Two independent stacks over the same embeddings (ELMo): one runs forward, the other backward.

    Bidirectional layers would not do: the second of two would see the outputs of both directions of the first, that is
    the whole text, and nothing would be left to predict. Each direction has half of the width C.

    Returns the output of every layer. Dropout acts on the output of the embedding and of each layer.
    """

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
        mask: Mask = None,
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
        padding = find_padding(mask, ids.shape)
        x = self._embed(ids)
        y = x if backwards is None else self._embed(backwards)
        order = find_sequences(padding, features or {}, x)
        if order is None:
            ahead = self._run_layers(self.forwards, x)
            back = [state.flip(1) for state in self._run_layers(self.backwards, y.flip(1))]
        else:
            turned = order.reversed()
            ahead = [order.scatter(h) for h in self._run_layers(self.forwards, order.gather(x), order.lengths)]
            back = [turned.scatter(h) for h in self._run_layers(self.backwards, turned.gather(y), turned.lengths)]
        layers = [torch.cat(both, dim=-1) for both in zip([x, *ahead], [y, *back], strict=True)]  # (B, T, C)
        if padding is not None:
            layers = [layer.masked_fill(~padding.tokens[..., None], 0.0) for layer in layers]
        return [tap(layer) for tap, layer in zip(self.states, layers, strict=True)]

    def _embed(self, ids: Tensor) -> Tensor:
        return self.embedding(
            ids, Tokens(torch.arange(ids.size(1), device=ids.device)[None], limit=ids.size(1))
        )  # (B, T, C/2)

    def _run_layers(self, layers: Iterable[nn.Module], x: Tensor, lengths: Lengths | None = None) -> list[Tensor]:
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
