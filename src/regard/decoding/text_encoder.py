"""Text encoders: tokenize texts as in training, encode them in batches of similar length, and pool them to vectors.

B texts of a batch · N texts · S tokens · C model width
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from regard.config import Config, EncoderOnlyConfig
from regard.data.batching import BatchSampler
from regard.data.encoder_batches import EncoderInput, InputTemplate, make_encoder_batch, words_with_spaces
from regard.data.tokenizer import Tokenizer
from regard.decoding.results import Embeddings
from regard.errors import ConfigError
from regard.models.network import EncoderNetwork, Memory, Network
from regard.nn import DensePooling, FirstTokenPooling, MeanPooling

TextOrPair = str | tuple[str, str]
"""A text, or a pair of texts."""
Pooling = Literal["mean", "first", "first-dense"]
POOLINGS: tuple[Pooling, ...] = ("mean", "first", "first-dense")
ENCODER_BATCH_TOKENS = 4096


@dataclass(frozen=True)
class TextEncoder:
    """An encoder network with its tokenizer."""

    network: EncoderNetwork
    config: Config
    tokenizer: Tokenizer
    max_tokens: int | None = None
    """Truncate texts to this many tokens, if it is fewer than the network's maximum length."""

    @classmethod
    def for_network(cls, network: Network, config: Config, tokenizer: Tokenizer, name: str) -> "TextEncoder":
        """Create the text encoder of a network; raise ConfigError for the model `name` if it is not an encoder."""
        if not isinstance(network, EncoderNetwork):
            raise ConfigError(
                f"{name}: is a model of type {config.model.family}, which does not encode texts as vectors or labels; "
                "use an encoder, as trained with regard train masked, elmo, classify or tag."
            )
        return cls(network, config, tokenizer)

    @property
    def template(self) -> InputTemplate:
        """The special tokens around texts, and the maximum number of tokens."""
        limits = [limit for limit in (self.config.model.max_length, self.max_tokens) if limit is not None]
        return InputTemplate.for_model(self.config.tokens, min(limits, default=None))

    def tokenize(self, texts: Sequence[TextOrPair]) -> list[EncoderInput]:
        """Return the network's input for each text; texts that are too long are truncated."""
        pairs = [(text, None) if isinstance(text, str) else text for text in texts]
        firsts = self.tokenizer.encode_batch([first for first, _ in pairs])
        seconds = iter(self.tokenizer.encode_batch([second for _, second in pairs if second is not None]))
        return [
            self.template.wrap(first, None if second is None else next(seconds))
            for first, (_, second) in zip(firsts, pairs, strict=True)
        ]

    def tokenize_words(self, sentences: Sequence[Sequence[str]]) -> Iterator[list[tuple[list[int], list[int]]]]:
        """Yield the inputs of each sentence: token ids, and the positions where words begin.

        A sentence that is too long has several inputs.
        """
        words_ids = iter(
            self.tokenizer.encode_batch([text for words in sentences for text in words_with_spaces(words)])
        )
        for words in sentences:
            yield list(self.template.wrap_words([next(words_ids) for _ in words], self.config.tokens.unknown))

    @torch.no_grad()
    def encode(self, inputs: Sequence[EncoderInput]) -> Iterator[tuple[NDArray[np.int64], Memory]]:
        """Yield, batch by batch, the indices of the inputs in the batch and their encoded states."""
        if not inputs:
            return
        lengths = np.array([[len(row.ids) for row in inputs]])
        device = next(self.network.parameters()).device
        segments = self.config.model.segments if isinstance(self.config.model, EncoderOnlyConfig) else 0
        for indices in BatchSampler(lengths, ENCODER_BATCH_TOKENS).epoch(0):
            rows = [np.array(inputs[n].ids, np.int64) for n in indices]
            batch = make_encoder_batch(rows, [inputs[n].second_length for n in indices], self.config.tokens.pad)
            features = {"segment_ids": torch.from_numpy(batch.segment_ids).to(device)} if segments > 1 else None
            ids, mask = (torch.from_numpy(array).to(device) for array in (batch.ids, batch.mask))
            yield indices, self.network.encode(ids, mask, features)


def embed(
    encoder: TextEncoder, texts: Sequence[TextOrPair], pooling: Pooling | None = None, *, normalize: bool = False
) -> Embeddings:
    """Return one vector per text.

    Args:
        encoder: A text encoder.
        texts: Texts, or pairs of texts.
        pooling: How token vectors become a text vector; None: as the model was trained.
        normalize: Scale vectors to length 1.
    """
    inputs = encoder.tokenize(texts)
    vectors = embed_inputs(encoder, inputs, pooling, normalize=normalize)
    return Embeddings(vectors, sum(row.truncated for row in inputs))


@torch.no_grad()
def embed_inputs(
    encoder: TextEncoder, inputs: Sequence[EncoderInput], pooling: Pooling | None = None, *, normalize: bool = False
) -> NDArray[np.float32]:
    """Return one vector per tokenized text (N, C); see `embed`."""
    pool = _pooling_module(encoder, pooling)
    vectors = np.zeros((len(inputs), encoder.config.model.width), np.float32)
    for indices, memory in encoder.encode(inputs):
        vectors[indices] = pool(memory.states, memory.mask).float().cpu().numpy()
    if normalize:
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return vectors


def _pooling_module(encoder: TextEncoder, pooling: Pooling | None) -> torch.nn.Module:
    own = encoder.network.pooling
    if pooling == "first-dense" and not isinstance(own, DensePooling):
        raise ConfigError("--pooling first-dense: this model was trained without a dense layer; use mean or first.")
    return {"mean": MeanPooling(), "first": FirstTokenPooling(), "first-dense": own, None: own}[pooling]
