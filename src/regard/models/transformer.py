"""The three Transformers, each a choice of stacks: encoder and decoder, decoder alone, encoder alone.

B batch · S source length · T target length · C model width · V vocabulary
"""

from collections.abc import Mapping

from torch import Tensor, nn

from regard.models.network import Cache, Memory, Network, TranslatingNetwork, WritingNetwork
from regard.nn import Block, DecoderCache, FullAttention, Output, Stack, Tap


class EncoderDecoderTransformer(TranslatingNetwork):
    """The model of the paper: the encoder reads the source once, the decoder writes the target token by token."""

    def __init__(self, encoder: Stack, decoder: Stack, output: Output) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.output = output

    def encode(self, ids: Tensor, real: Tensor | None = None, facts: Mapping[str, Tensor] | None = None) -> Memory:
        return Memory(self.encoder(ids, real, facts=facts), real)

    def decode(
        self,
        ids: Tensor,
        memory: Memory | None = None,
        cache: Cache | None = None,
        real: Tensor | None = None,
        facts: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        if memory is None:
            raise TypeError("an encoder-decoder network decodes with a memory: decode(ids, encode(source_ids))")
        return self.decoder(ids, real, memory=memory.states, memory_real=memory.real, cache=cache, facts=facts)

    def new_cache(self) -> DecoderCache:
        return DecoderCache(len(self.decoder.layers))

    @property
    def alignment(self) -> Tap | None:
        """Of the last layer, which looks for what it is about to say."""
        last = self.decoder.layers[-1]
        kernel = last.cross_attention.kernel if isinstance(last, Block) and last.cross_attention is not None else None
        return kernel.weights if isinstance(kernel, FullAttention) else None


class DecoderOnlyTransformer(WritingNetwork):
    """A language model: each position predicts the next token from those up to it."""

    def __init__(self, decoder: Stack, output: Output) -> None:
        super().__init__()
        self.decoder = decoder
        self.output = output

    def decode(
        self,
        ids: Tensor,
        memory: Memory | None = None,
        cache: Cache | None = None,
        real: Tensor | None = None,
        facts: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        return self.decoder(ids, real, cache=cache, facts=facts)

    def new_cache(self) -> DecoderCache:
        return DecoderCache(len(self.decoder.layers))


class EncoderOnlyTransformer(Network):
    """A text encoder: a vector per token, and one for the whole text."""

    encodes = True

    def __init__(self, encoder: Stack, pooling: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.pooling = pooling

    def encode(self, ids: Tensor, real: Tensor | None = None, facts: Mapping[str, Tensor] | None = None) -> Memory:
        return Memory(self.encoder(ids, real, facts=facts), real)

    def pool(self, memory: Memory) -> Tensor:
        """One vector per text (B, C)."""
        return self.pooling(memory.states, memory.real)

    def forward(self, ids: Tensor, real: Tensor | None = None, facts: Mapping[str, Tensor] | None = None) -> Tensor:
        """ids (B, S) -> one vector per text (B, C)."""
        return self.pool(self.encode(ids, real, facts))
