"""Every setting, typed and checked, and the way from presets, files and `--set` to one `Config`.

This room knows nothing of torch, so that reading and checking settings is instant.
"""

from regard.config.model import (
    DecoderOnly,
    EncoderDecoder,
    EncoderOnly,
    LearnedPositions,
    ModelConfig,
    NoPositions,
    SinusoidalPositions,
    TransformerConfig,
)
from regard.config.schema import Config, SpecialTokens
from regard.config.sources import check, preset_names, preset_summary, resolve

__all__ = [
    "Config",
    "DecoderOnly",
    "EncoderDecoder",
    "EncoderOnly",
    "LearnedPositions",
    "ModelConfig",
    "NoPositions",
    "SinusoidalPositions",
    "SpecialTokens",
    "TransformerConfig",
    "check",
    "preset_names",
    "preset_summary",
    "resolve",
]
