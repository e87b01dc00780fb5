"""Every setting, typed and checked, and the way from presets, files and `--set` to one `Config`.

This room knows nothing of torch, so that reading and checking settings is instant.
"""

from regard.config.attention import (
    BigBirdAttentionConfig,
    FullAttentionConfig,
    LinformerAttentionConfig,
    WindowAttentionConfig,
)
from regard.config.data import CorpusConfig, DataConfig, TokenizerConfig
from regard.config.errors import ConfigSource
from regard.config.heads import ClassHeadConfig, HeadConfig, NoHeadConfig, TagHeadConfig, TokenHeadConfig
from regard.config.model import (
    BidirectionalLanguageModelConfig,
    DecoderOnlyConfig,
    EncoderConfig,
    EncoderDecoderConfig,
    EncoderOnlyConfig,
    ModelConfig,
    NetworkConfig,
    RecurrentConfig,
    RecurrentEncoderDecoderConfig,
    RecurrentLanguageModelConfig,
    TransformerConfig,
)
from regard.config.positions import (
    AlibiPositionsConfig,
    LearnedPositionsConfig,
    NoPositionsConfig,
    RelativePositionsConfig,
    RotaryPositionsConfig,
    SinusoidalPositionsConfig,
    SyntaxPositionsConfig,
)
from regard.config.schema import Config, SpecialTokensConfig
from regard.config.sources import (
    load_config,
    load_sources,
    preset_names,
    preset_summary,
    resolve_paths,
    to_toml,
    unchecked_value,
    validate_sources,
)
from regard.config.training import BLEU_TOKENIZERS, TestingConfig, TrainingConfig, ValidationConfig

__all__ = [
    "BLEU_TOKENIZERS",
    "AlibiPositionsConfig",
    "BidirectionalLanguageModelConfig",
    "BigBirdAttentionConfig",
    "ClassHeadConfig",
    "Config",
    "ConfigSource",
    "CorpusConfig",
    "DataConfig",
    "DecoderOnlyConfig",
    "EncoderConfig",
    "EncoderDecoderConfig",
    "EncoderOnlyConfig",
    "FullAttentionConfig",
    "HeadConfig",
    "LearnedPositionsConfig",
    "LinformerAttentionConfig",
    "ModelConfig",
    "NetworkConfig",
    "NoHeadConfig",
    "NoPositionsConfig",
    "RecurrentConfig",
    "RecurrentEncoderDecoderConfig",
    "RecurrentLanguageModelConfig",
    "RelativePositionsConfig",
    "RotaryPositionsConfig",
    "SinusoidalPositionsConfig",
    "SpecialTokensConfig",
    "SyntaxPositionsConfig",
    "TagHeadConfig",
    "TestingConfig",
    "TokenHeadConfig",
    "TokenizerConfig",
    "TrainingConfig",
    "TransformerConfig",
    "ValidationConfig",
    "WindowAttentionConfig",
    "load_config",
    "load_sources",
    "preset_names",
    "preset_summary",
    "resolve_paths",
    "to_toml",
    "unchecked_value",
    "validate_sources",
]
