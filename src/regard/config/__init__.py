"""Every setting, typed and checked, and the way from presets, files and `--set` to one `Config`.

This room knows nothing of torch, so that reading and checking settings is instant.
"""

from regard.config.attention import BigBirdAttention, FullAttention, LinformerAttention, WindowAttention
from regard.config.complaint import Source
from regard.config.data import Corpus, DataConfig
from regard.config.heads import ClassHead, HeadConfig, NoHead, TagHead, TokenHead
from regard.config.inside import inside
from regard.config.model import (
    BidirectionalLanguageModel,
    DecoderOnly,
    EncoderDecoder,
    EncoderOnly,
    Encodes,
    ModelConfig,
    NetworkConfig,
    RecurrentConfig,
    RecurrentEncoderDecoder,
    RecurrentLanguageModel,
    TransformerConfig,
)
from regard.config.positions import (
    AlibiPositions,
    LearnedPositions,
    NoPositions,
    RelativePositions,
    RotaryPositions,
    SinusoidalPositions,
    SyntaxPositions,
)
from regard.config.schema import Config, SpecialTokens
from regard.config.sources import check, gather, given, preset_names, preset_summary, resolve
from regard.config.tokenizer import TokenizerConfig
from regard.config.training import BLEU_TOKENIZERS, TestingConfig, TrainingConfig, ValidationConfig
from regard.config.written import to_toml

__all__ = [
    "BLEU_TOKENIZERS",
    "AlibiPositions",
    "BidirectionalLanguageModel",
    "BigBirdAttention",
    "ClassHead",
    "Config",
    "Corpus",
    "DataConfig",
    "DecoderOnly",
    "EncoderDecoder",
    "EncoderOnly",
    "Encodes",
    "FullAttention",
    "HeadConfig",
    "LearnedPositions",
    "LinformerAttention",
    "ModelConfig",
    "NetworkConfig",
    "NoHead",
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
    "TagHead",
    "TestingConfig",
    "TokenHead",
    "TokenizerConfig",
    "TrainingConfig",
    "TransformerConfig",
    "ValidationConfig",
    "WindowAttention",
    "check",
    "gather",
    "given",
    "inside",
    "preset_names",
    "preset_summary",
    "resolve",
    "to_toml",
]
