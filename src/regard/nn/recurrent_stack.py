"""A recurrent stack: embed the tokens, then one recurrent layer after the other, with perhaps a look at the source.

The look comes after the last layer, for all steps at once (Luong et al. 2015); or before each step of the first layer,
if that is one that attends (Bahdanau et al. 2015). Only the first, so that the layers above it need not wait for each
other step by step; what it saw also goes to the readout, past them all (as in Wu et al. 2016, §3.1).

B batch · S source length · T tokens · C model width
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from regard.errors import InputError
from regard.nn.embedding import TokenEmbedding
from regard.nn.functional import Dropout
from regard.nn.layout import Tokens, check_mask, none_if_full
from regard.nn.recurrent import RecurrentLayer, RecurrentState
from regard.nn.recurrent_attention import AttendingLayer, EncodedSource, SourceAttention
from regard.nn.taps import Tap


class RecurrentCache:
    """What a recurrent decoder remembers: the state of each layer, and what its attention made of the memory.

    It does not grow with the text. Decoding changes it in place; `select` and `reorder` give a new one.
    """

    def __init__(self, states: Sequence[RecurrentState] = (), keys: Tensor | None = None, length: int = 0) -> None:
        self.states = states  # of each layer, (B, C); none before the first step
        self.keys = keys  # (sentences, S, C)
        self.length = length

    def select(self, rows: Tensor, sentences: Tensor | None = None) -> "RecurrentCache":
        """The cache of these rows, in this order; `sentences` are those of the memory, where they are not the same."""
        keys = None if self.keys is None else self.keys.index_select(0, rows if sentences is None else sentences)
        return RecurrentCache(select_states(self.states, rows), keys, self.length)

    def reorder(self, rows: Tensor) -> "RecurrentCache":
        """The cache of these rows, each of which stays with the sentence it has."""
        return RecurrentCache(select_states(self.states, rows), self.keys, self.length)


def select_states(states: Sequence[RecurrentState], rows: Tensor) -> tuple[RecurrentState, ...]:
    """The states of these rows, in this order."""
    return tuple(tuple(part.index_select(0, rows) for part in state) for state in states)


class RecurrentStack(nn.Module):
    """An encoder, or a decoder. Dropout acts on what goes into each layer and on what comes out of the last."""

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
        self.states = Tap()

    def forward(
        self,
        ids: Tensor,
        mask: Tensor | None = None,
        *,
        start: Sequence[RecurrentState] = (),
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
        cache: RecurrentCache | None = None,
        features: Mapping[str, Tensor] | None = None,
    ) -> tuple[Tensor, list[RecurrentState]]:
        """ids (B, T) -> hidden states (B, T, C), zero at pads, and the state (B, C) of each layer after the last token.

        `start` are the states of the layers before the first token, zero where they are not given. The rest is as in
        `Stack`; where documents share a row, each is a sequence of its own.
        """
        sentences = len(start[0][0]) if start else len(ids)
        if ids.dim() != 2 or len(ids) % sentences:
            rows = f" and a memory of {sentences} rows" if start else ""
            raise InputError(f"The ids have shape {tuple(ids.shape)}{rows}; they should be (rows, length).")
        if ids.size(1) == 0:
            raise InputError("There are no tokens to read: a sentence has at least its end token.")
        if cache is not None and cache.length and features:
            raise NotImplementedError("facts about tokens are not kept in a cache")
        mask = none_if_full(check_mask(mask, ids.shape))
        before = cache.states if cache is not None and cache.length else _for_each_row(start, len(ids) // sentences)
        source = self._source(memory, memory_mask, cache)
        tokens = self._embedded(ids)
        x, context, last = self._walk(tokens, mask, (features or {}).get("document_ids"), before, source)
        if source is not None and context is not None:
            x = source.attention.readout(context, x, tokens)
        elif source is not None:
            x = source.attention(x, source.memory, source.mask, source.keys)
        if cache is not None:
            cache.states, cache.length = last, cache.length + ids.size(1)
        x = self.states(self.dropout(x))
        return x if mask is None else x.masked_fill(~mask[..., None], 0.0), last

    def _embedded(self, ids: Tensor) -> Tensor:
        return self.embedding(ids, Tokens(torch.arange(ids.size(1), device=ids.device)[None]))

    def _source(self, memory: Tensor | None, mask: Tensor | None, cache: RecurrentCache | None) -> EncodedSource | None:
        """What there is to look at; what the memory gives to scores is computed once for all steps in a cache."""
        if self.cross_attention is None or memory is None:
            return None
        keys = None if cache is None else cache.keys
        if keys is None:
            keys = self.cross_attention.score.keys(memory)
        if cache is not None:
            cache.keys = keys
        return EncodedSource(self.cross_attention, memory, check_mask(mask, memory.shape[:2]), keys)

    def _walk(
        self,
        x: Tensor,
        mask: Tensor | None,
        documents: Tensor | None,
        before: Sequence[RecurrentState],
        source: EncodedSource | None,
    ) -> tuple[Tensor, Tensor | None, list[RecurrentState]]:
        """Through all layers (B, T, C), pads passed over; also what the first layer saw, if it attends."""
        sequences, lengths = None, None
        if mask is not None or documents is not None:
            sequences = Sequences.of(mask if mask is not None else x.new_ones(x.shape[:2]).bool(), documents)
            if documents is not None and source is not None:
                source = source.select(sequences.rows // (len(x) // len(source.memory)))
            x, before, lengths = sequences.gather(x), select_states(before, sequences.rows), sequences.lengths
        context, last = None, []
        for number, layer in enumerate(self.layers):
            x, start = self.dropout(x) if number else x, before[number] if before else None
            if isinstance(layer, AttendingLayer) and source is not None:
                x, context, state = layer.walk(x, lengths, start, source)
            else:
                x, state = layer(x, lengths, start)
            last.append(state)
        if sequences is None:
            return x, context, last
        return sequences.scatter(x), None if context is None else sequences.scatter(context), last

    @property
    def parts(self) -> list[tuple[str, list[nn.Module]]]:
        """The kinds of parts, each with all its copies, in the order in which a token meets them."""
        attention = [] if self.cross_attention is None else [("cross-attention", [self.cross_attention])]
        return [("embedding", [self.embedding]), ("recurrent layers", [*self.layers]), *attention]


def _for_each_row(states: Sequence[RecurrentState], rows: int) -> Sequence[RecurrentState]:
    """The states of sentences for so many rows each, which stand together."""
    return [tuple(part.repeat_interleave(rows, 0) for part in state) for state in states] if rows > 1 else states


@dataclass(frozen=True)
class Sequences:
    """Where the tokens of each sequence stand in the batch."""

    slots: Tensor  # (R, L) among the B·T; anywhere past a sequence's end
    lengths: Tensor  # (R,)
    rows: Tensor  # (R,) which row of the batch each is of
    shape: torch.Size  # (B, T)

    @classmethod
    def of(cls, mask: Tensor, documents: Tensor | None = None) -> "Sequences":
        """Those of a batch with real tokens (B, T): one a row, or one for each run of equal numbers in `documents`.

        >>> found = Sequences.of(torch.tensor([[False, True, True], [True, False, False]]))
        >>> found.lengths.tolist(), found.gather(torch.tensor([[[0], [5], [6]], [[7], [0], [0]]])).squeeze(-1).tolist()
        ([2, 1], [[5, 6], [7, 0]])
        """
        batch, length = mask.shape
        row, column = mask.nonzero(as_tuple=True)  # of every real token, in reading order
        number, rows = row, torch.arange(batch, device=mask.device)
        if documents is not None:
            begins = torch.ones_like(row, dtype=torch.bool)
            told = documents[row, column]
            begins[1:] = (row[1:] != row[:-1]) | (told[1:] != told[:-1])
            number, rows = begins.cumsum(0) - 1, row[begins]
        lengths = torch.bincount(number, minlength=len(rows))
        place = torch.arange(len(number), device=mask.device) - (lengths.cumsum(0) - lengths)[number]
        slots = torch.zeros(len(rows), max(1, int(lengths.max())), dtype=torch.long, device=mask.device)
        slots[number, place] = row * length + column
        return cls(slots, lengths, rows, mask.shape)

    def reversed(self) -> "Sequences":
        """The same sequences, each read from its end to its beginning.

        >>> Sequences.of(torch.tensor([[True, True, True], [True, True, False]])).reversed().slots[:, :2].tolist()
        [[2, 1], [4, 3]]
        """
        place = torch.arange(self.slots.size(1), device=self.slots.device)
        return replace(self, slots=self.slots.gather(1, (self.lengths[:, None] - 1 - place).clamp(min=0)))

    def gather(self, x: Tensor) -> Tensor:
        """(B, T, …) -> (R, L, …); what stands past a sequence's end means nothing."""
        return x.flatten(0, 1)[self.slots]

    def scatter(self, x: Tensor) -> Tensor:
        """(R, L, …) -> (B, T, …), zero at pads."""
        within = torch.arange(self.slots.size(1), device=x.device) < self.lengths[:, None]
        batch, length = self.shape
        spread = x.new_zeros(batch * length, *x.shape[2:])
        return spread.index_copy(0, self.slots[within], x[within]).unflatten(0, (batch, length))
