"""Settings of position schemes: how token order reaches a Transformer."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from regard.config.base import BaseConfig, PositiveFloat, Size, VariantConfig, variant
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
    divides_heads: ClassVar[bool] = False
    """Whether tensor parallelism can divide the heads among processes: each then calls `keep_heads`."""

    def appended_width(self, model_width: int) -> int:
        """Units of a model of this width that hold position vectors only; the embeddings have the others."""
        return 0


POSITIONS: Registry[type[PositionsConfig]] = Registry("positions")
PositionsConfig.registry = POSITIONS


class VectorPositionsConfig(PositionsConfig):
    """A vector per position that is added to the embedding, or concatenated with it."""

    divides_heads: ClassVar[bool] = True
    combine: Literal["add", "concatenate"] = "add"
    """`add`: embedding + position vector, as in the paper; `concatenate`: each has its own units of the model width."""
    width: Size | None = None
    """Units of a concatenated position vector; a quarter of `model.width` by default. Embeddings have the rest."""

    @field_validator("width")
    @classmethod
    def _check_vectors_are_concatenated(cls, width: int | None, info: ValidationInfo) -> int | None:
        if width is not None and info.data.get("combine") == "add":
            raise ValueError(
                "is for concatenated vectors, but model.positions.combine = 'add': set combine to 'concatenate'"
            )
        return width

    def appended_width(self, model_width: int) -> int:
        """Width of the concatenated vectors; 0 if vectors are added."""
        return 0 if self.combine == "add" else self.width or max(1, model_width // 4)

    def vector_width(self, model_width: int) -> int:
        """Width of a position vector, added or concatenated."""
        return self.appended_width(model_width) or model_width


@POSITIONS.register("sinusoidal")
class SinusoidalPositionsConfig(VectorPositionsConfig):
    """Sines and cosines of geometrically growing wavelengths, added to the embeddings (§3.5)."""

    builder: ClassVar = "regard.models.positions:build_sinusoidal_positions"
    kind: Literal["sinusoidal"] = "sinusoidal"
    """Name of the position scheme."""
    layout: Literal["interleaved", "halves"] = "interleaved"
    """`interleaved`: sin, cos, sin, cos … as in the paper; `halves`: all sines, then all cosines."""


@POSITIONS.register("learned")
class LearnedPositionsConfig(VectorPositionsConfig):
    """One learned vector per position, added to the embeddings."""

    builder: ClassVar = "regard.models.positions:build_learned_positions"
    kind: Literal["learned"] = "learned"
    """Name of the position scheme."""
    max_length: Size = 512
    """Number of learned positions, which is the longest sequence the network accepts."""


class _ScalingConfig(BaseConfig):
    factor: Annotated[float, Field(ge=1)]
    """How much longer than the original texts the new ones are."""


class LinearScalingConfig(_ScalingConfig):
    """All frequencies are divided by the factor (position interpolation, Chen et al. 2023)."""

    kind: Literal["linear"] = "linear"
    """Name of the scaling."""


class NtkScalingConfig(_ScalingConfig):
    """The base is raised: the lowest frequency is divided by the factor and the highest is kept ("NTK-aware")."""

    kind: Literal["ntk"] = "ntk"
    """Name of the scaling."""


class YarnScalingConfig(_ScalingConfig):
    """Low frequencies are divided by the factor, high ones kept, and scores multiplied (Peng et al. 2023)."""

    kind: Literal["yarn"] = "yarn"
    """Name of the scaling."""
    original_length: Size
    """Length of the texts that the network was trained on."""
    fast_turns: PositiveFloat = 32.0
    """Frequencies with more turns than this over the original length are kept."""
    slow_turns: PositiveFloat = 1.0
    """Frequencies with fewer turns than this over the original length are divided by the factor."""
    attention_factor: PositiveFloat | None = None
    """Multiplies queries and keys; 0.1 · ln(factor) + 1 by default."""


class Llama3ScalingConfig(_ScalingConfig):
    """Low frequencies are divided by the factor, high ones kept (Llama 3.1, Grattafiori et al. 2024)."""

    kind: Literal["llama3"] = "llama3"
    """Name of the scaling."""
    original_length: Size
    """Length of the texts that the network was trained on."""
    low_turns: PositiveFloat = 1.0
    """Frequencies with fewer turns than this over the original length are divided by the factor."""
    high_turns: PositiveFloat = Field(default=4.0, validate_default=True)
    """Frequencies with more turns than this over the original length are kept; more than `low_turns`."""

    @field_validator("high_turns")
    @classmethod
    def _check_turns_are_ordered(cls, high: float, info: ValidationInfo) -> float:
        low = info.data.get("low_turns")
        if low is not None and high <= low:
            raise ValueError(f"should be more than low_turns = {low:g}: use {4 * low:g}")
        return high


ScalingConfig = Annotated[
    LinearScalingConfig | NtkScalingConfig | YarnScalingConfig | Llama3ScalingConfig,
    Field(discriminator="kind"),
    variant("linear"),
]


@POSITIONS.register("rotary")
class RotaryPositionsConfig(PositionsConfig):
    """Queries and keys are rotated by angles proportional to their position (Su et al. 2021)."""

    builder: ClassVar = "regard.models.positions:build_rotary_positions"
    divides_heads: ClassVar[bool] = True
    kind: Literal["rotary"] = "rotary"
    """Name of the position scheme."""
    layout: Literal["interleaved", "halves"] = "interleaved"
    """Which entries are rotated together: 2i and 2i + 1 (`interleaved`, the paper), or i and i + d_k/2 (LLaMA)."""
    base: Annotated[float, Field(gt=1)] = 10_000.0
    """Base of the geometric sequence of frequencies; increase it for long texts."""
    scaling: ScalingConfig | None = None
    """Scaling of the frequencies for longer texts than a network was trained on: `linear`, `ntk`, `yarn`, `llama3`."""
    rotated_width: Annotated[int, Field(ge=2, le=2**16, multiple_of=2)] | None = None
    """How many units of a query and key are rotated, the first ones; all by default (GPT-NeoX: a quarter)."""
    window_base: Annotated[float, Field(gt=1)] | None = None
    """Base in layers with sliding windows; `base` by default (ModernBERT: a lower one)."""


@POSITIONS.register("alibi")
class AlibiPositionsConfig(PositionsConfig):
    """Scores are reduced in proportion to the distance, with a slope per head (Press et al. 2022)."""

    builder: ClassVar = "regard.models.positions:build_alibi_positions"
    extrapolates: ClassVar[bool] = True
    uses_distances: ClassVar[bool] = True
    divides_heads: ClassVar[bool] = True
    kind: Literal["alibi"] = "alibi"
    """Name of the position scheme."""


@POSITIONS.register("relative")
class RelativePositionsConfig(PositionsConfig):
    """Learned vectors for clipped relative distances, added to keys and values (Shaw et al. 2018)."""

    builder: ClassVar = "regard.models.positions:build_relative_positions"
    extrapolates: ClassVar[bool] = True
    uses_distances: ClassVar[bool] = True
    divides_heads: ClassVar[bool] = True
    kind: Literal["relative"] = "relative"
    """Name of the position scheme."""
    max_distance: Distance = 16
    """Distances are clipped to this value; larger distances share a vector."""
    per_head: bool = False
    """Whether each head has its own vectors; otherwise the heads of a layer share them."""


@POSITIONS.register("buckets")
class BucketPositionsConfig(PositionsConfig):
    """A learned number per head and bucket of distances, added to the scores of all layers (T5, Raffel et al. 2020)."""

    builder: ClassVar = "regard.models.positions:build_bucket_positions"
    extrapolates: ClassVar[bool] = True
    uses_distances: ClassVar[bool] = True
    kind: Literal["buckets"] = "buckets"
    """Name of the position scheme."""
    buckets: Annotated[int, Field(ge=4, le=2**16, multiple_of=2)] = 32
    """Number of buckets; in an encoder half of them are for later keys."""
    max_distance: Distance = 128
    """Larger distances share the last bucket; buckets grow logarithmically up to it."""

    @field_validator("max_distance")
    @classmethod
    def _check_buckets_grow(cls, distance: int, info: ValidationInfo) -> int:
        buckets = info.data.get("buckets")
        if buckets is not None and distance <= buckets // 2:
            raise ValueError(f"should be more than half of buckets = {buckets}: use {4 * buckets}")
        return distance


@POSITIONS.register("syntax")
class SyntaxPositionsConfig(PositionsConfig):
    """Positions in the dependency tree of the source: depth and signed distance (Wang et al. 2019).

    Used in the encoder together with sinusoids; the decoder, whose text has no parse, uses sinusoids only.
    """

    builder: ClassVar = "regard.models.positions:build_syntax_positions"
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
    fusion: Literal["add", "nonlinear"] = "add"
    """How sinusoids and depths are merged: `add` both, or add tanh(W [sinusoid; depth] + b), as in the paper."""
    relation: Literal["path", "edge"] = "path"
    """Words whose distance is the difference of their depths: all of one `path` to the root, or those of one `edge`."""

    @field_validator("fusion")
    @classmethod
    def _check_both_are_used(cls, fusion: str, info: ValidationInfo) -> str:
        off = next((name for name in ("depth", "sinusoidal") if info.data.get(name) is False), None)
        if fusion == "nonlinear" and off is not None:
            raise ValueError(
                f"merges sinusoids and depths, but model.positions.{off} = false: set it to true, or fusion to 'add'"
            )
        return fusion

    @field_validator("distance")
    @classmethod
    def _check_tree_is_used(cls, distance: bool, info: ValidationInfo) -> bool:
        if not distance and info.data.get("depth") is False:
            raise ValueError("together with depth = false leaves the tree unused: set one of the two to true")
        return distance


@POSITIONS.register("none")
class NoPositionsConfig(PositionsConfig):
    """No positions: self-attention cannot distinguish a sentence from its reorderings."""

    builder: ClassVar = "regard.models.positions:build_no_positions"
    extrapolates: ClassVar[bool] = True
    divides_heads: ClassVar[bool] = True
    kind: Literal["none"] = "none"
    """Name of the position scheme."""
