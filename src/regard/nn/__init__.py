"""The mathematics: tensors in, tensors out. Knows nothing of files, settings or training.

Letters for shapes, here and in every file of this room:
B batch · S source or key length · T target or query length · H heads · D head width · C model width · V vocabulary
"""

from regard.nn.alibi import AlibiPositions
from regard.nn.attention import FullAttention, Kernel, attend
from regard.nn.bigbird import BigBirdAttention
from regard.nn.block import Block, PostNorm, PreNorm, Residual
from regard.nn.cache import DecoderCache, KeyValues
from regard.nn.dropout import Dropout
from regard.nn.embedding import Embedding
from regard.nn.feed_forward import FeedForward, GatedFeedForward
from regard.nn.layout import Layout, Mask, Packing, Tokens, causal, lay_out
from regard.nn.linformer import LinformerAttention, Mixtures
from regard.nn.multihead import CrossAttention, SelfAttention
from regard.nn.output import Output
from regard.nn.pooling import DensePooling, FirstPooling, MeanPooling
from regard.nn.positions import LearnedPositions, Positions, SinusoidalPositions, sinusoids
from regard.nn.relative import RelativePositions
from regard.nn.rotary import RotaryPositions
from regard.nn.stack import Stack
from regard.nn.syntax import SyntaxPositions
from regard.nn.taps import Tap, open_taps, taps_of
from regard.nn.window import WindowAttention

__all__ = [
    "AlibiPositions",
    "BigBirdAttention",
    "Block",
    "CrossAttention",
    "DecoderCache",
    "DensePooling",
    "Dropout",
    "Embedding",
    "FeedForward",
    "FirstPooling",
    "FullAttention",
    "GatedFeedForward",
    "Kernel",
    "KeyValues",
    "Layout",
    "LearnedPositions",
    "LinformerAttention",
    "Mask",
    "MeanPooling",
    "Mixtures",
    "Output",
    "Packing",
    "Positions",
    "PostNorm",
    "PreNorm",
    "RelativePositions",
    "Residual",
    "RotaryPositions",
    "SelfAttention",
    "SinusoidalPositions",
    "Stack",
    "SyntaxPositions",
    "Tap",
    "Tokens",
    "WindowAttention",
    "attend",
    "causal",
    "lay_out",
    "open_taps",
    "sinusoids",
    "taps_of",
]
