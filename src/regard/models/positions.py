"""From settings to position schemes: the `builder` of each config of `regard.config.positions`.

Each is called with the settings of the whole Transformer and whether the stack is an encoder, and returns the positions
of one stack.
"""

from collections.abc import Callable

from regard import nn as rn
from regard.config import (
    AlibiPositionsConfig,
    BucketPositionsConfig,
    LearnedPositionsConfig,
    NoPositionsConfig,
    RelativePositionsConfig,
    RotaryPositionsConfig,
    SinusoidalPositionsConfig,
    SyntaxPositionsConfig,
    TransformerConfig,
)

ROTARY_SCALINGS: dict[str, Callable[..., rn.FrequencyScaling]] = {
    "linear": rn.LinearScaling,
    "ntk": rn.NtkScaling,
    "yarn": rn.YarnScaling,
    "llama3": rn.Llama3Scaling,
}


def build_sinusoidal_positions(
    config: SinusoidalPositionsConfig, model: TransformerConfig, *, encoder: bool
) -> rn.Positions:
    """Build sinusoidal positions."""
    return rn.SinusoidalPositions(
        config.vector_width(model.width),
        halves=config.layout == "halves",
        concatenate=config.combine == "concatenate",
    )


def build_learned_positions(config: LearnedPositionsConfig, model: TransformerConfig, *, encoder: bool) -> rn.Positions:
    """Build learned positions."""
    return rn.LearnedPositions(
        config.max_length, config.vector_width(model.width), concatenate=config.combine == "concatenate"
    )


def build_rotary_positions(config: RotaryPositionsConfig, model: TransformerConfig, *, encoder: bool) -> rn.Positions:
    """Build rotary positions."""
    scaling = None
    if config.scaling is not None:
        scaling = ROTARY_SCALINGS[config.scaling.kind](**config.scaling.model_dump(exclude={"kind"}))
    return rn.RotaryPositions(
        config.base,
        halves=config.layout == "halves",
        scaling=scaling,
        rotated=config.rotated_width,
        window_base=config.window_base,
    )


def build_alibi_positions(config: AlibiPositionsConfig, model: TransformerConfig, *, encoder: bool) -> rn.Positions:
    """Build ALiBi positions."""
    return rn.AlibiPositions()


def build_relative_positions(
    config: RelativePositionsConfig, model: TransformerConfig, *, encoder: bool
) -> rn.Positions:
    """Build relative positions."""
    return rn.RelativePositions(config.max_distance, config.per_head)


def build_bucket_positions(config: BucketPositionsConfig, model: TransformerConfig, *, encoder: bool) -> rn.Positions:
    """Build T5's relative positions; an encoder distinguishes keys before and after the query."""
    return rn.BucketPositions(model.heads, config.buckets, config.max_distance, both_sides=encoder)


def build_syntax_positions(config: SyntaxPositionsConfig, model: TransformerConfig, *, encoder: bool) -> rn.Positions:
    """Build syntax positions; a decoder, whose text has no parse, has sinusoidal positions."""
    if not encoder:
        return rn.SinusoidalPositions(model.width)
    order = rn.SinusoidalPositions(model.width)
    max_depth = config.max_depth if config.depth else 0
    max_distance = config.max_distance if config.distance else 0
    sizes = (model.width, max_depth, max_distance, config.per_head, config.relation == "edge")
    if config.fusion == "nonlinear":
        return rn.FusedSyntaxPositions(order, *sizes)
    return rn.SyntaxPositions(order if config.sinusoidal else rn.Positions(), *sizes)


def build_no_positions(config: NoPositionsConfig, model: TransformerConfig, *, encoder: bool) -> rn.Positions:
    """Build the scheme that does nothing."""
    return rn.Positions()
