"""The three Transformers, each a choice of stacks: encoder and decoder, decoder only, encoder only.

B batch · S source length · T target length · C model width · V vocabulary
"""

from collections.abc import Mapping

from torch import Tensor, nn

from regard.models.network import (
    Cache,
    DecoderNetwork,
    EncoderDecoderNetwork,
    EncoderNetwork,
    Memory,
    NetworkRows,
    mask_tensors,
)
from regard.nn import Block, DecoderCache, FullAttention, OutputProjection, Stack, Tap
from regard.nn.cpu.decode_step import decode_step
from regard.nn.cpu.row_batch import row_batch
from regard.nn.layout import Mask


class EncoderDecoderTransformer(EncoderDecoderNetwork):
    """The model of the paper: the encoder processes the source once, the decoder writes the target token by token."""

    def __init__(self, encoder: Stack, decoder: Stack, output: OutputProjection) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.output = output

    def encode(self, ids: Tensor, mask: Mask = None, features: Mapping[str, Tensor] | None = None) -> Memory:
        return Memory(self.encoder(ids, mask, features=features), **mask_tensors(mask))

    def decode(
        self,
        ids: Tensor,
        memory: Memory | None = None,
        cache: Cache | None = None,
        mask: Mask = None,
        features: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        if memory is None:
            raise TypeError("an encoder-decoder network decodes with a memory: decode(ids, encode(source_ids))")
        return self.decoder(ids, mask, memory=memory.states, memory_mask=memory.padding, cache=cache, features=features)

    def next_logits(self, ids: Tensor, memory: Memory | None, cache: Cache, mask: Mask = None) -> Tensor:
        logits = self._prepared(ids, memory, cache) if mask is None else None
        return super().next_logits(ids, memory, cache, mask) if logits is None else logits[:, -1]

    def all_logits(self, ids: Tensor, memory: Memory | None, cache: Cache) -> Tensor:
        logits = self._prepared(ids, memory, cache)
        return super().all_logits(ids, memory, cache) if logits is None else logits

    def _prepared(self, ids: Tensor, memory: Memory | None, cache: Cache) -> Tensor | None:
        if memory is None or not isinstance(cache, DecoderCache):
            return None
        return decode_step(self.decoder, self.output, ids, cache, memory.states, memory.mask)

    def new_cache(self) -> DecoderCache:
        return DecoderCache(len(self.decoder.layers))

    @property
    def alignment_tap(self) -> Tap | None:
        """The weights of the last decoder layer, which are closest to word alignments."""
        last = self.decoder.layers[-1]
        kernel = last.cross_attention.kernel if isinstance(last, Block) and last.cross_attention is not None else None
        return kernel.weights if isinstance(kernel, FullAttention) else None


class DecoderOnlyTransformer(DecoderNetwork):
    """A language model (GPT): each position predicts the next token from those up to it."""

    def __init__(self, decoder: Stack, output: OutputProjection) -> None:
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
        return self.decoder(ids, mask, cache=cache, features=features)

    def next_logits(self, ids: Tensor, memory: Memory | None, cache: Cache, mask: Mask = None) -> Tensor:
        logits = self._prepared(ids, cache) if mask is None else None
        return super().next_logits(ids, memory, cache, mask) if logits is None else logits[:, -1]

    def all_logits(self, ids: Tensor, memory: Memory | None, cache: Cache) -> Tensor:
        logits = self._prepared(ids, cache)
        return super().all_logits(ids, memory, cache) if logits is None else logits

    def _prepared(self, ids: Tensor, cache: Cache) -> Tensor | None:
        return decode_step(self.decoder, self.output, ids, cache) if isinstance(cache, DecoderCache) else None

    def new_cache(self) -> DecoderCache:
        return DecoderCache(len(self.decoder.layers))

    def new_row_batch(self) -> NetworkRows | None:
        return row_batch(self.decoder, self.output)


class EncoderOnlyTransformer(EncoderNetwork):
    """A text encoder (BERT): a vector per token, and one for the whole text."""

    def __init__(self, encoder: Stack, pooling: nn.Module, head: nn.Module | None = None) -> None:
        super().__init__()
        self.encoder = encoder
        self.pooling = pooling
        self.head = head

    def encode(self, ids: Tensor, mask: Mask = None, features: Mapping[str, Tensor] | None = None) -> Memory:
        return Memory(self.encoder(ids, mask, features=features), **mask_tensors(mask))
