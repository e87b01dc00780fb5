"""Texts in, what an encoder makes of them out: framed as in training, in batches of about equal length.

B texts of a batch · S tokens · C model width · L labels
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from regard.config import ClassHeadConfig, Config, EncoderConfig, EncoderOnlyConfig, TagHeadConfig
from regard.data.batching import BatchSampler
from regard.data.encoder_inputs import EncoderInput, InputTemplate, make_encoder_batch, words_with_spaces
from regard.data.tokenizer import Tokenizer
from regard.errors import ConfigError
from regard.models.network import EncoderNetwork, Memory, Network
from regard.nn import DensePooling, FirstTokenPooling, MeanPooling

TextOrPair = str | tuple[str, str]  # one text, or a pair of them
ENCODER_BATCH_TOKENS = 4096  # in a batch


@dataclass(frozen=True)
class TextEncoder:
    """An encoder with its tokenizer."""

    network: EncoderNetwork
    config: Config
    tokenizer: Tokenizer
    most: int | None = None  # tokens of a text that are read, where that is fewer than the network can

    @classmethod
    def of(cls, network: Network, config: Config, tokenizer: Tokenizer, who: str) -> "TextEncoder":
        """The reader of a network, which must be an encoder; `who` it is, for the complaint."""
        if not isinstance(network, EncoderNetwork):
            raise ConfigError(
                f"{who}: is of the kind {config.model.family}, which gives no vectors and no labels for texts; "
                "give an encoder, as regard train masked, elmo, classify and tag make them."
            )
        return cls(network, config, tokenizer)

    @property
    def frame(self) -> InputTemplate:
        """What stands around texts, and how many tokens the network reads."""
        bounds = [bound for bound in (self.config.model.max_length, self.most) if bound is not None]
        return InputTemplate.for_model(self.config.tokens, min(bounds, default=None))

    def framed(self, texts: Sequence[TextOrPair]) -> list[EncoderInput]:
        """Texts as the network reads them; those that are longer than it can read are cut."""
        pairs = [(text, None) if isinstance(text, str) else text for text in texts]
        firsts = self.tokenizer.encode_batch([first for first, _ in pairs])
        seconds = iter(self.tokenizer.encode_batch([second for _, second in pairs if second is not None]))
        return [
            self.frame.wrap(first, None if second is None else next(seconds))
            for first, (_, second) in zip(firsts, pairs, strict=True)
        ]

    def divided(self, sentences: Sequence[Sequence[str]]) -> Iterator[list[tuple[list[int], list[int]]]]:
        """The words of each sentence as rows of ids, each with the places where words begin."""
        pieces = iter(self.tokenizer.encode_batch([text for words in sentences for text in words_with_spaces(words)]))
        for words in sentences:
            yield list(self.frame.wrap_words([next(pieces) for _ in words], self.config.tokens.unknown))

    @torch.no_grad()
    def read(self, rows: Sequence[EncoderInput]) -> Iterator[tuple[NDArray[np.int64], Memory]]:
        """What the network makes of framed rows: the numbers of some of them, and their memory, batch by batch."""
        if not rows:
            return
        lengths = np.array([[len(row.ids) for row in rows]])
        device = next(self.network.parameters()).device
        segments = self.config.model.segments if isinstance(self.config.model, EncoderOnlyConfig) else 0
        for some in BatchSampler(lengths, ENCODER_BATCH_TOKENS).epoch(0):
            ids = [np.array(rows[n].ids, np.int64) for n in some]
            batch = make_encoder_batch(ids, [rows[n].second_length for n in some], self.config.tokens.pad)
            facts = {"segment_ids": torch.from_numpy(batch.segment_ids).to(device)} if segments > 1 else None
            tokens, real = (torch.from_numpy(part).to(device) for part in (batch.ids, batch.mask))
            yield some, self.network.encode(tokens, real, facts)


def labels_of_head(reader: TextEncoder, head: type[ClassHeadConfig] | type[TagHeadConfig], who: str) -> tuple[str, ...]:
    """The labels of a network that has such a head; a complaint where it has another, or none."""
    model = reader.config.model
    found = model.head if isinstance(model, EncoderConfig) else None
    if isinstance(found, head):
        return found.labels
    wanted, command = ("texts", "classify") if head is ClassHeadConfig else ("words", "tag")
    has = f"its head is for {found.kind}" if found is not None and found.kind != "none" else "it has no head"
    raise ConfigError(f"{who}: cannot label {wanted}, because {has}; train one with regard train {command}.")


Pooling = Literal["mean", "first", "first-dense"]
POOLINGS: tuple[Pooling, ...] = ("mean", "first", "first-dense")


@dataclass(frozen=True)
class Embeddings:
    """One vector a text, and how many texts were longer than the network can read."""

    vectors: NDArray[np.float32]  # (N, C)
    cut: int


def embed(
    reader: TextEncoder, texts: Sequence[TextOrPair], pooling: Pooling | None = None, *, normalise: bool = False
) -> Embeddings:
    """The vectors of texts, pooled as the model was made to, or in another way; with `normalise`, of length 1."""
    rows = reader.framed(texts)
    return Embeddings(embed_framed(reader, rows, pooling, normalise=normalise), sum(row.truncated for row in rows))


@torch.no_grad()
def embed_framed(
    reader: TextEncoder, rows: Sequence[EncoderInput], pooling: Pooling | None = None, *, normalise: bool = False
) -> NDArray[np.float32]:
    """The same for texts that are framed already (N, C)."""
    pool = _pooling(reader, pooling)
    vectors = np.zeros((len(rows), reader.config.model.width), np.float32)
    for some, memory in reader.read(rows):
        vectors[some] = pool(memory.states, memory.mask).float().cpu().numpy()
    if normalise:
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return vectors


def _pooling(reader: TextEncoder, asked: Pooling | None) -> torch.nn.Module:
    own = reader.network.pooling
    if asked == "first-dense" and not isinstance(own, DensePooling):
        raise ConfigError("--pooling first-dense: this model has learned no dense layer for it; use mean or first.")
    return {"mean": MeanPooling(), "first": FirstTokenPooling(), "first-dense": own, None: own}[asked]
