"""Encoder jobs: what the texts of a batch are used for; each text gets the output that it would get alone.

Texts with equal jobs share batches, so a job has everything that must be the same for all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from regard.api import Model
from regard.config import TagHeadConfig
from regard.data.encoder_batches import NUM_SPECIAL_TOKENS, TextOrPair
from regard.decoding.results import Classification, FilledText
from regard.registry import Pooling
from regard.serving.batching import ESTIMATED_CHARACTERS_PER_TOKEN

if TYPE_CHECKING:  # it imports torch, which a server for CTranslate2 models does without
    from regard.decoding.encoder_inference import TextEncoder

MAX_READ_TOKENS = 2_048  # of a text, where the network has no limit: attention cost grows with the square


@dataclass(frozen=True)
class TextVector:
    """Embedding of a text."""

    values: NDArray[np.float32]  # (C,)
    tokens: int
    """Tokens of the text that were read, without start and end token."""
    truncated: bool
    """Whether the text was longer than the network reads."""


@dataclass(frozen=True)
class TagPrediction:
    """Tag of a word."""

    tag: str
    probability: float


@dataclass(frozen=True)
class ClassifyJob:
    """Labels of texts or pairs of texts."""

    def __call__(self, model: Model, texts: Sequence[TextOrPair]) -> list[Classification]:
        """Classify a batch."""
        from regard.decoding.encoder_inference import classify

        return classify(limited_encoder(model), texts)


@dataclass(frozen=True)
class TagJob:
    """Tags of sentences that are split into words."""

    def __call__(self, model: Model, sentences: Sequence[Sequence[str]]) -> list[list[TagPrediction]]:
        """Tag a batch."""
        from regard.decoding.encoder_inference import labels_of_head, tag_probabilities

        encoder = limited_encoder(model)
        labels = labels_of_head(encoder, TagHeadConfig, "the model")
        return [
            [TagPrediction(labels[int(row.argmax())], float(row.max())) for row in rows]
            for rows in tag_probabilities(encoder, sentences)
        ]


@dataclass(frozen=True)
class FillJob:
    """Candidates for the mask tokens of texts."""

    top_k: int

    def __call__(self, model: Model, texts: Sequence[str]) -> list[FilledText]:
        """Fill the masks of a batch."""
        return model.mask_filler().fill(texts, self.top_k)


@dataclass(frozen=True)
class EmbedJob:
    """Embeddings of texts."""

    pooling: Pooling | None = None
    normalize: bool = True

    def __call__(self, model: Model, texts: Sequence[TextOrPair]) -> list[TextVector]:
        """Embed a batch."""
        from regard.decoding.encoder_inference import embed_inputs

        encoder = limited_encoder(model)
        rows = encoder.tokenize(texts)
        vectors = embed_inputs(encoder, rows, self.pooling, normalize=self.normalize)
        return [
            TextVector(vector, len(row.ids) - NUM_SPECIAL_TOKENS, row.truncated)
            for vector, row in zip(vectors, rows, strict=True)
        ]


EncoderJob = ClassifyJob | TagJob | FillJob | EmbedJob


def limited_encoder(model: Model) -> "TextEncoder":
    """Return a model's text encoder with the server's limit on the tokens of a text."""
    return replace(model.text_encoder, max_tokens=MAX_READ_TOKENS)


def encoder_cost(text: TextOrPair | Sequence[str], _job: EncoderJob) -> int:
    """Return the approximate number of tokens of a text, of a pair of texts, or of the words of a sentence.

    >>> encoder_cost("a short text", ClassifyJob()), encoder_cost(("a short", "text"), ClassifyJob())
    (4, 3)
    """
    characters = len(text) if isinstance(text, str) else sum(map(len, text))
    return characters // ESTIMATED_CHARACTERS_PER_TOKEN + 1
