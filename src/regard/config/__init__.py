"""Every setting, typed and checked, and the way from presets, files and `--set` to one `Config`.

This room knows nothing of torch, so that reading and checking settings is instant.
"""

from regard.config.complaint import Source
from regard.config.data import Corpus, DataConfig
from regard.config.model import (
    AlibiPositions,
    BigBirdAttention,
    DecoderOnly,
    EncoderDecoder,
    EncoderOnly,
    FullAttention,
    LearnedPositions,
    LinformerAttention,
    ModelConfig,
    NetworkConfig,
    NoPositions,
    RecurrentConfig,
    RecurrentEncoderDecoder,
    RecurrentLanguageModel,
    RelativePositions,
    RotaryPositions,
    SinusoidalPositions,
    SyntaxPositions,
    TransformerConfig,
    WindowAttention,
)
from regard.config.schema import Config, SpecialTokens
from regard.config.sources import check, gather, given, preset_names, preset_summary, resolve
from regard.config.tokenizer import TokenizerConfig
from regard.config.training import TrainingConfig, ValidationConfig
from regard.config.written import to_toml

__all__ = [
    "AlibiPositions",
    "BigBirdAttention",
    "Config",
    "Corpus",
    "DataConfig",
    "DecoderOnly",
    "EncoderDecoder",
    "EncoderOnly",
    "FullAttention",
    "LearnedPositions",
    "LinformerAttention",
    "ModelConfig",
    "NetworkConfig",
    "NoPositions",
    "RecurrentConfig",
    "RecurrentEncoderDecoder",
    "RecurrentLanguageModel",
    "RelativePositions",
    "RotaryPositions",
    "SinusoidalPositions",
    "Source",
    "SpecialTokens",
    "SyntaxPositions",
    "TokenizerConfig",
    "TrainingConfig",
    "TransformerConfig",
    "ValidationConfig",
    "WindowAttention",
    "check",
    "gather",
    "given",
    "preset_names",
    "preset_summary",
    "resolve",
    "to_toml",
]
