"""Recurrent networks: what came before the Transformer, behind the same contract.

B batch · S source length · T target length · C model width · V vocabulary
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from torch import Tensor, nn

from regard.models.network import Cache, DecoderNetwork, EncoderDecoderNetwork, EncoderNetwork, Memory
from regard.nn import OutputProjection, Tap
from regard.nn.bidirectional_stack import BidirectionalStack, LayerMixing
from regard.nn.recurrent import RecurrentState
from regard.nn.recurrent_stack import RecurrentCache, RecurrentStack, select_states


@dataclass(frozen=True)
class RecurrentMemory(Memory):
    """What a recurrent encoder made of sentences: a state for each token, and where each layer ended."""

    last: tuple[RecurrentState, ...] = ()  # of each layer, (B, C): all that a decoder without attention gets

    def select(self, rows: Tensor) -> Self:
        return replace(super().select(rows), last=select_states(self.last, rows))


class RecurrentEncoderDecoder(EncoderDecoderNetwork):
    """Sequence to sequence: the decoder starts from the state in which the encoder ended (Sutskever et al. 2014).

    Without attention that state is all it gets of the source, however long; with it, it looks back at every step.
    Bahdanau et al. have it begin from the state of the encoder's way back alone, through a layer of its own; here it
    begins from both ways' last states as they are.
    """

    def __init__(self, encoder: RecurrentStack, decoder: RecurrentStack, output: OutputProjection) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.output = output

    def encode(
        self, ids: Tensor, mask: Tensor | None = None, features: Mapping[str, Tensor] | None = None
    ) -> RecurrentMemory:
        states, last = self.encoder(ids, mask, features=features)
        return RecurrentMemory(states, mask, tuple(last))

    def decode(
        self,
        ids: Tensor,
        memory: Memory | None = None,
        cache: Cache | None = None,
        mask: Tensor | None = None,
        features: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        if not isinstance(memory, RecurrentMemory):
            raise TypeError("an encoder-decoder network decodes with a memory: decode(ids, encode(source_ids))")
        hidden, _ = self.decoder(
            ids,
            mask,
            start=self._start(memory),
            memory=memory.states,
            memory_mask=memory.mask,
            cache=cache,
            features=features,
        )
        return hidden

    def _start(self, memory: RecurrentMemory) -> list[RecurrentState]:
        """Where each layer of the decoder begins: where the encoder's ended, the top one where the top one did.

        A decoder with fewer layers begins as the upper ones of the encoder ended; of one with more, the lower ones all
        begin as the encoder's lowest did.
        """
        more = len(memory.last) - len(self.decoder.layers)
        return [memory.last[max(0, number + more)] for number in range(len(self.decoder.layers))]

    def new_cache(self) -> RecurrentCache:
        return RecurrentCache()

    @property
    def alignment_tap(self) -> Tap | None:
        attention = self.decoder.cross_attention
        return None if attention is None else attention.weights


class RecurrentLanguageModel(DecoderNetwork):
    """A language model whose state is all it remembers of the text so far."""

    def __init__(self, decoder: RecurrentStack, output: OutputProjection) -> None:
        super().__init__()
        self.decoder = decoder
        self.output = output

    def decode(
        self,
        ids: Tensor,
        memory: Memory | None = None,
        cache: Cache | None = None,
        mask: Tensor | None = None,
        features: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        hidden, _ = self.decoder(ids, mask, cache=cache, features=features)
        return hidden

    def new_cache(self) -> RecurrentCache:
        return RecurrentCache()


class BidirectionalLanguageModel(EncoderNetwork):
    """Two language models, one in each direction, whose layers are mixed into a vector for each token."""

    def __init__(
        self, encoder: BidirectionalStack, mixing: LayerMixing, pooling: nn.Module, head: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.mixing = mixing
        self.pooling = pooling
        self.head = head

    def encode(self, ids: Tensor, mask: Tensor | None = None, features: Mapping[str, Tensor] | None = None) -> Memory:
        return Memory(self.mixing(self.encoder(ids, mask, features=features)), mask)

    def bidirectional_states(
        self, ids: Tensor, following: Tensor, mask: Tensor | None = None, features: Mapping[str, Tensor] | None = None
    ) -> Tensor:
        """Texts (B, T), and the same one token later -> the last states (B, T, C) of both directions, for `logits`.

        The forward half has read ids up to its place, and is the last word on `following` there. The backward half has
        read `following` from the end down to its place, and is the last word on the id there.
        """
        return self.encoder(ids, mask, backwards=following, features=features)[-1]
