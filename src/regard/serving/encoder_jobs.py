"""What an encoder does with the texts of a batch: an errand each, whose answers are those of its texts by themselves.

Errands that are equal share batches, so an errand holds what must be the same for all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from regard.api import Model
from regard.config import TagHeadConfig
from regard.data.passages import NUM_SPECIAL_TOKENS
from regard.decoding.fill_mask import FilledText
from regard.decoding.labeling import Classification, classify, tag_probabilities
from regard.decoding.text_encoder import Pooling, TextEncoder, TextOrPair, embed_framed, labels_of_head
from regard.serving.batching import CHARACTERS

MAX_READ_TOKENS = (
    2_048  # tokens of a text that are read, where the network itself has no bound: attention grows with their square
)


@dataclass(frozen=True)
class TextVector:
    """A text as one vector."""

    values: NDArray[np.float32]  # (C,)
    tokens: int  # that were read, start and end not counted
    cut: bool  # whether the text has more


@dataclass(frozen=True)
class TagPrediction:
    """A word's tag."""

    tag: str
    probability: float


@dataclass(frozen=True)
class ClassifyJob:
    """The labels of texts, or of pairs of them."""

    def __call__(self, model: Model, texts: Sequence[TextOrPair]) -> list[Classification]:
        """Label them."""
        return classify(limited_encoder(model), texts)


@dataclass(frozen=True)
class TagJob:
    """The tags of sentences, which are given as their words."""

    def __call__(self, model: Model, sentences: Sequence[Sequence[str]]) -> list[list[TagPrediction]]:
        """Tag them."""
        who = limited_encoder(model)
        labels = labels_of_head(who, TagHeadConfig, "the model")
        return [
            [TagPrediction(labels[int(row.argmax())], float(row.max())) for row in rows]
            for rows in tag_probabilities(who, sentences)
        ]


@dataclass(frozen=True)
class FillJob:
    """What may stand in the holes of texts."""

    best: int

    def __call__(self, model: Model, texts: Sequence[str]) -> list[FilledText]:
        """Fill them."""
        return model.filler().fill(texts, self.best)


@dataclass(frozen=True)
class EmbedJob:
    """The vectors of texts."""

    pooling: Pooling | None = None
    normalise: bool = True

    def __call__(self, model: Model, texts: Sequence[TextOrPair]) -> list[TextVector]:
        """Read them."""
        who = limited_encoder(model)
        rows = who.framed(texts)
        vectors = embed_framed(who, rows, self.pooling, normalise=self.normalise)
        return [
            TextVector(vector, len(row.ids) - NUM_SPECIAL_TOKENS, row.truncated)
            for vector, row in zip(vectors, rows, strict=True)
        ]


EncoderJob = ClassifyJob | TagJob | FillJob | EmbedJob


def limited_encoder(model: Model) -> TextEncoder:
    """The reader of an encoder, which reads no more of a text than a server can bear."""
    return replace(model.reader, most=MAX_READ_TOKENS)


def encoder_cost(text: TextOrPair | Sequence[str], _errand: EncoderJob) -> int:
    """Roughly how many tokens a text has, or a pair of texts, or the words of a sentence.

    >>> cost_of_reading("a short text", Classifying()), cost_of_reading(("a short", "text"), Classifying())
    (4, 3)
    """
    size = len(text) if isinstance(text, str) else sum(map(len, text))
    return size // CHARACTERS + 1
