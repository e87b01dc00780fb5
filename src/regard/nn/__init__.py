"""Layers of the networks: tensors in, tensors out. Imports neither config nor files nor training.

Letters for shapes, here and in every module of this package:
B batch · S source or key length · T target or query length · H heads · D head width · C model width · V vocabulary
"""

from regard.nn.attention import AttentionKernel, FullAttention, attend
from regard.nn.bigbird import BigBirdAttention
from regard.nn.cache import DecoderCache, KeyValueCache
from regard.nn.embedding import OutputProjection, TokenEmbedding
from regard.nn.experts import MixtureOfExperts
from regard.nn.feed_forward import FeedForward, GatedFeedForward, SquaredReLU
from regard.nn.functional import Dropout
from regard.nn.layout import AttentionMask, Layout, Packing, Tokens, causal_mask, make_layout
from regard.nn.linformer import LengthProjection, LinformerAttention
from regard.nn.multihead import CrossAttention, SelfAttention
from regard.nn.positions import (
    AlibiPositions,
    BucketPositions,
    LearnedPositions,
    Positions,
    RelativePositions,
    SinusoidalPositions,
    sinusoidal_table,
)
from regard.nn.prediction_heads import DensePooling, FirstTokenPooling, MeanPooling, ReLUPooling
from regard.nn.rotary import (
    FrequencyScaling,
    LinearScaling,
    Llama3Scaling,
    NtkScaling,
    RotaryPositions,
    YarnScaling,
)
from regard.nn.sparse import WindowAttention
from regard.nn.syntax import FusedSyntaxPositions, SyntaxPositions
from regard.nn.taps import Tap, open_taps, taps_of
from regard.nn.transformer import (
    Block,
    PostNorm,
    PreNorm,
    Residual,
    SandwichNorm,
    Stack,
)

__all__ = [
    "AlibiPositions",
    "AttentionKernel",
    "AttentionMask",
    "BigBirdAttention",
    "Block",
    "BucketPositions",
    "CrossAttention",
    "DecoderCache",
    "DensePooling",
    "Dropout",
    "FeedForward",
    "FirstTokenPooling",
    "FrequencyScaling",
    "FullAttention",
    "FusedSyntaxPositions",
    "GatedFeedForward",
    "KeyValueCache",
    "Layout",
    "LearnedPositions",
    "LengthProjection",
    "LinearScaling",
    "LinformerAttention",
    "Llama3Scaling",
    "MeanPooling",
    "MixtureOfExperts",
    "NtkScaling",
    "OutputProjection",
    "Packing",
    "Positions",
    "PostNorm",
    "PreNorm",
    "ReLUPooling",
    "RelativePositions",
    "Residual",
    "RotaryPositions",
    "SandwichNorm",
    "SelfAttention",
    "SinusoidalPositions",
    "SquaredReLU",
    "Stack",
    "SyntaxPositions",
    "Tap",
    "TokenEmbedding",
    "Tokens",
    "WindowAttention",
    "YarnScaling",
    "attend",
    "causal_mask",
    "make_layout",
    "open_taps",
    "sinusoidal_table",
    "taps_of",
]
