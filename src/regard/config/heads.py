"""What a text encoder is read out for: the settings of its last layer.

A head is a table with a `kind`, or its name alone: `head = "tokens"`, `head = { kind = "classes" }`.
"""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator

from regard.config.base import BaseConfig, Rate, variant


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


Labels = Annotated[tuple[str, ...], BeforeValidator(_as_tuple)]


class NoHeadConfig(BaseConfig):
    """Nothing is predicted: the network gives vectors."""

    kind: Literal["none"] = "none"


class TokenHeadConfig(BaseConfig):
    """Each token that is hidden is predicted from what stands around it."""

    kind: Literal["tokens"] = "tokens"
    activation: Literal["relu", "gelu", "gelu-tanh", "swish"] = "gelu"
    """Of the dense layer before the projection."""
    norm_epsilon: Annotated[float, Field(gt=0)] = 1e-5
    """Of the norm after it."""


class _LabeledHeadConfig(BaseConfig):
    labels: Labels = ()
    """What can be predicted; without it, what the training data has, in alphabetical order."""
    dropout: Rate = 0.1
    """On what the last layer sees."""

    @field_validator("labels")
    @classmethod
    def _each_once(cls, labels: tuple[str, ...]) -> tuple[str, ...]:
        twice = next((label for n, label in enumerate(labels) if label in labels[:n]), None)
        if twice is not None:
            raise ValueError(f"has {twice!r} twice")
        return labels


class ClassHeadConfig(_LabeledHeadConfig):
    """One label for a whole text, or for a pair of texts."""

    kind: Literal["classes"] = "classes"


class TagHeadConfig(_LabeledHeadConfig):
    """One label for each word."""

    kind: Literal["tags"] = "tags"


HeadConfig = Annotated[
    NoHeadConfig | TokenHeadConfig | ClassHeadConfig | TagHeadConfig, Field(discriminator="kind"), variant("none")
]
