"""Settings of position schemes: how token order reaches a Transformer."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from regard.config.base import Size, VariantConfig
from regard.registry import Registry

Distance = Annotated[int, Field(gt=0, le=2**16)]


class PositionsConfig(VariantConfig):
    """A position scheme.

    The builder is called as `build(config, model, encoder=...)` with the settings of the Transformer, and returns the
    positions of one stack.
    """

    default_kind: ClassVar[str] = "sinusoidal"
    extrapolates: ClassVar[bool] = False
    """Whether networks work well on sequences longer than those they were trained on."""
    uses_distances: ClassVar[bool] = False
    """Whether attention scores depend on the distance between query and key."""
    needs_parses: ClassVar[bool] = False
    """Whether each source sentence must come with a dependency parse."""


POSITIONS: Registry[type[PositionsConfig]] = Registry("positions")
PositionsConfig.registry = POSITIONS


@POSITIONS.register("sinusoidal")
class SinusoidalPositionsConfig(PositionsConfig):
    """Sines and cosines of geometrically growing wavelengths, added to the embeddings (§3.5)."""

    builder: ClassVar = "regard.models.assembly:build_sinusoidal_positions"
    kind: Literal["sinusoidal"] = "sinusoidal"
    """Name of the position scheme."""
    layout: Literal["interleaved", "halves"] = "interleaved"
    """`interleaved`: sin, cos, sin, cos … as in the paper; `halves`: all sines, then all cosines."""


@POSITIONS.register("learned")
class LearnedPositionsConfig(PositionsConfig):
    """One learned vector per position, added to the embeddings."""

    builder: ClassVar = "regard.models.assembly:build_learned_positions"
    kind: Literal["learned"] = "learned"
    """Name of the position scheme."""
    max_length: Size = 512
    """Number of learned positions, which is the longest sequence the network accepts."""


@POSITIONS.register("rotary")
class RotaryPositionsConfig(PositionsConfig):
    """Queries and keys are rotated by angles proportional to their position (Su et al. 2021)."""

    builder: ClassVar = "regard.models.assembly:build_rotary_positions"
    kind: Literal["rotary"] = "rotary"
    """Name of the position scheme."""
    layout: Literal["interleaved", "halves"] = "interleaved"
    """Which entries are rotated together: 2i and 2i + 1 (`interleaved`, the paper), or i and i + d_k/2 (LLaMA)."""
    base: Annotated[float, Field(gt=1)] = 10_000.0
    """Base of the geometric sequence of frequencies; increase it for long texts."""


@POSITIONS.register("alibi")
class AlibiPositionsConfig(PositionsConfig):
    """Scores are reduced in proportion to the distance, with a slope per head (Press et al. 2022)."""

    builder: ClassVar = "regard.models.assembly:build_alibi_positions"
    extrapolates: ClassVar[bool] = True
    uses_distances: ClassVar[bool] = True
    kind: Literal["alibi"] = "alibi"
    """Name of the position scheme."""


@POSITIONS.register("relative")
class RelativePositionsConfig(PositionsConfig):
    """Learned vectors for clipped relative distances, added to keys and values (Shaw et al. 2018)."""

    builder: ClassVar = "regard.models.assembly:build_relative_positions"
    extrapolates: ClassVar[bool] = True
    uses_distances: ClassVar[bool] = True
    kind: Literal["relative"] = "relative"
    """Name of the position scheme."""
    max_distance: Distance = 16
    """Distances are clipped to this value; larger distances share a vector."""
    per_head: bool = False
    """Whether each head has its own vectors; otherwise the heads of a layer share them."""


@POSITIONS.register("syntax")
class SyntaxPositionsConfig(PositionsConfig):
    """Positions in the dependency tree of the source: depth and signed distance (Wang et al. 2019).

    Used in the encoder together with sinusoids; the decoder, whose text has no parse, uses sinusoids only.
    """

    builder: ClassVar = "regard.models.assembly:build_syntax_positions"
    needs_parses: ClassVar[bool] = True
    kind: Literal["syntax"] = "syntax"
    """Name of the position scheme."""
    depth: bool = True
    """Whether a learned vector for a word's depth in the tree is added to the embeddings of its tokens."""
    max_depth: Distance = 16
    """Depths are clipped to this value; deeper words share a vector."""
    distance: bool = Field(default=True, validate_default=True)
    """Whether learned vectors for clipped tree distances are added to keys and values, as `relative` does."""
    max_distance: Distance = 16
    """Tree distances are clipped to this value."""
    per_head: bool = False
    """Whether each head has its own distance vectors; otherwise the heads of a layer share them."""
    sinusoidal: bool = True
    """Whether sinusoids are added in the encoder too; otherwise it knows word order only through the tree."""

    @field_validator("distance")
    @classmethod
    def _check_tree_is_used(cls, distance: bool, info: ValidationInfo) -> bool:
        if not distance and info.data.get("depth") is False:
            raise ValueError("together with depth = false leaves the tree unused: set one of the two to true")
        return distance


@POSITIONS.register("none")
class NoPositionsConfig(PositionsConfig):
    """No positions: self-attention cannot distinguish a sentence from its reorderings."""

    builder: ClassVar = "regard.models.assembly:build_no_positions"
    extrapolates: ClassVar[bool] = True
    kind: Literal["none"] = "none"
    """Name of the position scheme."""
