"""Settings that all networks share, and the prediction heads of text encoders.

A head is a table with a `kind`, or its name alone: `head = "tokens"`, `head = { kind = "classes" }`.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from regard.choices import Activation, Pooling
from regard.config.base import BaseConfig, PositiveFloat, Probability, Strings, variant

LABEL_TASKS = {"classes": "classify", "tags": "tag"}  # head kind -> task


class NetworkConfig(BaseConfig):
    """Properties that the rest of the package needs of any network."""

    translates: ClassVar[bool] = False
    """Whether the network maps a source text to a target text."""
    generates: ClassVar[bool] = False
    """Whether the network continues a text."""
    default_max_grad_norm: ClassVar[float] = 0.0
    """Default of `training.max_grad_norm`."""
    default_task: ClassVar[str] = ""
    """Task that the network is trained for; of an encoder, with head = "tokens"."""

    @property
    def max_length(self) -> int | None:
        """Longest sequence that the network accepts; None if there is no limit."""
        return None

    @property
    def extrapolates(self) -> bool:
        """Whether the network works well on sequences longer than those it was trained on."""
        return True

    @property
    def has_alignment(self) -> bool:
        """Whether cross-attention aligns the output with the source."""
        return self.translates

    @property
    def task(self) -> str:
        """Task that the network is trained for; empty if it cannot be trained."""
        return self.default_task

    @property
    def fills_masks(self) -> bool:
        """Whether the network predicts masked tokens."""
        return False

    @property
    def needs_parses(self) -> bool:
        """Whether each source sentence must come with a dependency parse."""
        return False

    @property
    def uses_dropout(self) -> bool:
        """Whether any dropout is on, so that two passes in training differ."""
        return any(value > 0 for name, value in self if name.endswith("dropout"))


class NoHeadConfig(BaseConfig):
    """No head: the network returns vectors."""

    kind: Literal["none"] = "none"
    """Name of the head."""


class TokenHeadConfig(BaseConfig):
    """Token prediction: masked tokens, or of a bidirectional language model the tokens on both sides."""

    kind: Literal["tokens"] = "tokens"
    """Name of the head."""
    activation: Activation = "gelu"
    """Activation of the dense layer before the output projection."""
    norm_epsilon: PositiveFloat = 1e-5
    """Epsilon of the norm after the dense layer."""


class _LabelHeadConfig(BaseConfig):
    labels: Strings = ()
    """Labels that can be predicted; by default those of the training data, in alphabetical order."""
    dropout: Probability = 0.1
    """Dropout on the input of the last layer."""

    @field_validator("labels")
    @classmethod
    def _check_labels_are_unique(cls, labels: tuple[str, ...]) -> tuple[str, ...]:
        duplicate = next((label for n, label in enumerate(labels) if label in labels[:n]), None)
        if duplicate is not None:
            raise ValueError(f"has {duplicate!r} twice")
        return labels


class ClassHeadConfig(_LabelHeadConfig):
    """Text classification: one label per text, or per pair of texts."""

    kind: Literal["classes"] = "classes"
    """Name of the head."""


class TagHeadConfig(_LabelHeadConfig):
    """Token classification: one label per word."""

    kind: Literal["tags"] = "tags"
    """Name of the head."""


HeadConfig = Annotated[
    NoHeadConfig | TokenHeadConfig | ClassHeadConfig | TagHeadConfig, Field(discriminator="kind"), variant("none")
]


class EncoderConfig(NetworkConfig):
    """Settings of networks that encode text: a vector per token, one per text, and a prediction head."""

    head: HeadConfig = NoHeadConfig()
    """Prediction head: masked tokens (`tokens`), text classes (`classes`), word tags (`tags`) or `none`."""
    pooling: Pooling = "mean"
    """Text vector: the mean over tokens, the first token's vector, or that vector through a dense tanh layer."""

    @property
    def task(self) -> str:
        """Task of the head."""
        return LABEL_TASKS.get(self.head.kind, self.default_task if self.head.kind == "tokens" else "")


def check_shared_vocabulary(size: int | None, info: ValidationInfo) -> int | None:
    """Raise ValueError if `target_vocab_size` differs from `vocab_size` while embeddings are shared."""
    vocab_size = info.data.get("vocab_size")
    if size not in (None, vocab_size) and info.data.get("share_embeddings"):
        raise ValueError(f"differs from model.vocab_size = {vocab_size}: set model.share_embeddings = false")
    return size
