"""Recurrent networks: sequence to sequence, language model, and the bidirectional language model (ELMo).

B batch · S source length · T target length · C model width · V vocabulary
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from torch import Tensor, nn

from regard.models.network import Cache, DecoderNetwork, EncoderDecoderNetwork, EncoderNetwork, Memory, mask_tensors
from regard.nn import OutputProjection, Tap
from regard.nn.cpu.recurrent_step import recurrent_step
from regard.nn.layout import Mask
from regard.nn.prediction_heads import BidirectionalLMHead
from regard.nn.recurrent import RecurrentState
from regard.nn.recurrent_stack import BidirectionalStack, LayerMixing, RecurrentCache, RecurrentStack, select_states


@dataclass(frozen=True)
class RecurrentMemory(Memory):
    """The output of a recurrent encoder: a state for each token, and the last state of each layer."""

    last: tuple[RecurrentState, ...] = ()  # of each layer, (B, C): all that a decoder without attention gets

    def select(self, rows: Tensor) -> Self:
        return replace(super().select(rows), last=select_states(self.last, rows))


class RecurrentEncoderDecoder(EncoderDecoderNetwork):
    """Sequence to sequence: the decoder starts from the last state of the encoder (Sutskever et al. 2014).

    Without attention that state is all it knows of the source. In Bahdanau et al. the decoder starts from the last
    backward state alone, through a layer of its own; here it starts from both directions' last states as they are.
    """

    def __init__(self, encoder: RecurrentStack, decoder: RecurrentStack, output: OutputProjection) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.output = output

    def encode(self, ids: Tensor, mask: Mask = None, features: Mapping[str, Tensor] | None = None) -> RecurrentMemory:
        states, last = self.encoder(ids, mask, features=features)
        return RecurrentMemory(states, last=tuple(last), **mask_tensors(mask))

    def decode(
        self,
        ids: Tensor,
        memory: Memory | None = None,
        cache: Cache | None = None,
        mask: Mask = None,
        features: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        if not isinstance(memory, RecurrentMemory):
            raise TypeError("an encoder-decoder network decodes with a memory: decode(ids, encode(source_ids))")
        hidden, _ = self.decoder(
            ids,
            mask,
            start=self._start(memory),
            memory=memory.states,
            memory_mask=memory.padding,
            cache=cache,
            features=features,
        )
        return hidden

    def _start(self, memory: RecurrentMemory) -> list[RecurrentState]:
        """Return the initial state of each decoder layer: the last state of the encoder layer at the same height.

        The stacks are aligned at the top. If the decoder has more layers, the lower ones all start from the encoder's
        lowest layer.
        """
        more = len(memory.last) - len(self.decoder.layers)
        return [memory.last[max(0, number + more)] for number in range(len(self.decoder.layers))]

    def next_logits(self, ids: Tensor, memory: Memory | None, cache: Cache, mask: Mask = None) -> Tensor:
        logits = None
        if mask is None and memory is not None and isinstance(cache, RecurrentCache):
            logits = recurrent_step(self.decoder, self.output, ids, cache, memory.states, memory.mask)
        return super().next_logits(ids, memory, cache, mask) if logits is None else logits

    def new_cache(self) -> RecurrentCache:
        return RecurrentCache()

    @property
    def alignment_tap(self) -> Tap | None:
        attention = self.decoder.cross_attention
        return None if attention is None else attention.weights


class RecurrentLanguageModel(DecoderNetwork):
    """A language model whose state is its only memory of the text so far."""

    def __init__(self, decoder: RecurrentStack, output: OutputProjection) -> None:
        super().__init__()
        self.decoder = decoder
        self.output = output

    def decode(
        self,
        ids: Tensor,
        memory: Memory | None = None,
        cache: Cache | None = None,
        mask: Mask = None,
        features: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        hidden, _ = self.decoder(ids, mask, cache=cache, features=features)
        return hidden

    def next_logits(self, ids: Tensor, memory: Memory | None, cache: Cache, mask: Mask = None) -> Tensor:
        logits = None
        if mask is None and isinstance(cache, RecurrentCache):
            logits = recurrent_step(self.decoder, self.output, ids, cache)
        return super().next_logits(ids, memory, cache, mask) if logits is None else logits

    def new_cache(self) -> RecurrentCache:
        return RecurrentCache()


@dataclass(frozen=True)
class BidirectionalMemory(Memory):
    """The output of a bidirectional language model: its layers mixed, and the last layer of both directions."""

    last: Tensor | None = None  # (B, S, C)

    def select(self, rows: Tensor) -> Self:
        return replace(super().select(rows), last=None if self.last is None else self.last.index_select(0, rows))


class BidirectionalLanguageModel(EncoderNetwork):
    """Two language models, one in each direction, whose layers are mixed to a vector per token (Peters et al. 2018)."""

    addresses: ClassVar[Mapping[str, str]] = {"mixing": "encoder"}

    def __init__(
        self, encoder: BidirectionalStack, mixing: LayerMixing, pooling: nn.Module, head: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.mixing = mixing
        self.pooling = pooling
        self.head = head

    def encode(
        self, ids: Tensor, mask: Mask = None, features: Mapping[str, Tensor] | None = None
    ) -> BidirectionalMemory:
        layers = self.encoder(ids, mask, features=features)
        return BidirectionalMemory(self.mixing(layers), last=layers[-1], **mask_tensors(mask))

    def bidirectional_states(
        self,
        ids: Tensor,
        following: Tensor,
        mask: Mask = None,
        features: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        """Texts (B, T), and the same one token later -> the last states (B, T, C) of both directions, for `logits`.

        The forward half at a position has processed `ids` up to it and predicts `following` there. The backward half
        has processed `following` from the end down to it and predicts the id there.
        """
        return self.encoder(ids, mask, backwards=following, features=features)[-1]

    def head_input(self, memory: Memory) -> Tensor:
        if isinstance(self.head, BidirectionalLMHead) and isinstance(memory, BidirectionalMemory):
            assert memory.last is not None
            return memory.last
        return super().head_input(memory)
