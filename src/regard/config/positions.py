"""The settings of positions: how order reaches a Transformer."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from regard.config.base import BaseConfig, Size, variant


class SinusoidalPositionsConfig(BaseConfig):
    """Sines and cosines of geometrically growing wavelengths, added to the embeddings (§3.5)."""

    extrapolates: ClassVar[bool] = False  # whether networks read well past the length that they were trained on
    kind: Literal["sinusoidal"] = "sinusoidal"
    layout: Literal["interleaved", "halves"] = "interleaved"
    """`interleaved` sin, cos, sin, cos … as the paper writes it; `halves` all sines, then all cosines."""


class LearnedPositionsConfig(BaseConfig):
    """One learned vector per position, added to the embeddings; no position past the last one."""

    extrapolates: ClassVar[bool] = False
    kind: Literal["learned"] = "learned"
    max_length: Size = 512
    """How many positions are learned: the longest sequence the network can read."""


class RotaryPositionsConfig(BaseConfig):
    """Queries and keys turn by angles proportional to their position (Su et al. 2021); for any length."""

    extrapolates: ClassVar[bool] = False
    kind: Literal["rotary"] = "rotary"
    layout: Literal["interleaved", "halves"] = "interleaved"
    """What turns together: `interleaved` entries 2i and 2i + 1, the paper's; `halves` i and i + d_k/2, LLaMA's."""
    base: Annotated[float, Field(gt=1)] = 10_000.0
    """The slowest pair turns by about 1/base from one position to the next: for long texts, make it larger."""


class AlibiPositionsConfig(BaseConfig):
    """Scores lose in proportion to the distance, in each head at another rate (Press et al. 2022); for any length."""

    extrapolates: ClassVar[bool] = True
    kind: Literal["alibi"] = "alibi"


class RelativePositionsConfig(BaseConfig):
    """Learned vectors for clipped distances, added to keys and values (Shaw et al. 2018); for any length."""

    extrapolates: ClassVar[bool] = True
    kind: Literal["relative"] = "relative"
    max_distance: Annotated[int, Field(gt=0, le=2**16)] = 16
    """The distance up to which tokens are told apart; all that is further away looks equally far."""
    per_head: bool = False
    """Vectors of its own for each head; off, the heads of a layer share them."""


class SyntaxPositionsConfig(BaseConfig):
    """Places in a dependency tree, given with the source: depth and signed distance (Wang et al. 2019).

    They are the encoder's, beside sinusoids; the decoder, whose text nobody has parsed yet, has sinusoids alone.
    """

    extrapolates: ClassVar[bool] = False
    kind: Literal["syntax"] = "syntax"
    depth: bool = True
    """A learned vector for a word's depth in the tree, added to the embeddings of its sub-words."""
    max_depth: Annotated[int, Field(gt=0, le=2**16)] = 16
    """The depth up to which words are told apart; all that is deeper looks equally deep."""
    distance: bool = Field(default=True, validate_default=True)
    """Learned vectors for clipped distances in the tree, added to keys and values as `relative` does."""
    max_distance: Annotated[int, Field(gt=0, le=2**16)] = 16
    """The distance up to which words are told apart."""
    per_head: bool = False
    """Vectors of its own for each head; off, the heads of a layer share them."""
    sinusoidal: bool = True
    """Sinusoids in the encoder too; off, it knows of order no more than the tree tells."""

    @field_validator("distance")
    @classmethod
    def _the_tree_is_used(cls, distance: bool, info: ValidationInfo) -> bool:
        if not distance and info.data.get("depth") is False:
            raise ValueError("with depth = false as well leaves nothing of the tree: keep one of the two")
        return distance


class NoPositionsConfig(BaseConfig):
    """No positions: self-attention cannot tell a sentence from its reorderings."""

    extrapolates: ClassVar[bool] = True
    kind: Literal["none"] = "none"


PositionsConfig = Annotated[
    SinusoidalPositionsConfig
    | LearnedPositionsConfig
    | RotaryPositionsConfig
    | AlibiPositionsConfig
    | RelativePositionsConfig
    | SyntaxPositionsConfig
    | NoPositionsConfig,
    Field(discriminator="kind"),
    variant("sinusoidal"),
]
