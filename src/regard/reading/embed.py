"""Vectors of texts. N texts · C model width"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.encoder_inputs import EncoderInput
from regard.errors import ConfigError
from regard.nn import DensePooling, FirstPooling, MeanPooling
from regard.reading.reader import Reader, Text

Pooling = Literal["mean", "first", "first-dense"]
POOLINGS: tuple[Pooling, ...] = ("mean", "first", "first-dense")


@dataclass(frozen=True)
class Embedded:
    """One vector a text, and how many texts were longer than the network can read."""

    vectors: NDArray[np.float32]  # (N, C)
    cut: int


def embed(
    reader: Reader, texts: Sequence[Text], pooling: Pooling | None = None, *, normalise: bool = False
) -> Embedded:
    """The vectors of texts, pooled as the model was made to, or in another way; with `normalise`, of length 1."""
    rows = reader.framed(texts)
    return Embedded(embed_framed(reader, rows, pooling, normalise=normalise), sum(row.cut for row in rows))


@torch.no_grad()
def embed_framed(
    reader: Reader, rows: Sequence[EncoderInput], pooling: Pooling | None = None, *, normalise: bool = False
) -> NDArray[np.float32]:
    """The same for texts that are framed already (N, C)."""
    pool = _pooling(reader, pooling)
    vectors = np.zeros((len(rows), reader.config.model.width), np.float32)
    for some, memory in reader.read(rows):
        vectors[some] = pool(memory.states, memory.mask).float().cpu().numpy()
    if normalise:
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return vectors


def _pooling(reader: Reader, asked: Pooling | None) -> torch.nn.Module:
    own = reader.network.pooling
    if asked == "first-dense" and not isinstance(own, DensePooling):
        raise ConfigError("--pooling first-dense: this model has learned no dense layer for it; use mean or first.")
    return {"mean": MeanPooling(), "first": FirstPooling(), "first-dense": own, None: own}[asked]
