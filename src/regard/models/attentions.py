"""From settings to the kernels of attention.

What a decoder sees must not lie ahead of it: Linformer and BigBird, which look at whole texts, are for the encoder, and
the decoder beside it keeps full attention. Cross-attention is always full.
"""

import math
from collections.abc import Callable

from regard import nn as rn
from regard.config import BigBirdAttentionConfig, LinformerAttentionConfig, TransformerConfig, WindowAttentionConfig
from regard.nn.bigbird import Pattern

Make = Callable[[], rn.Kernel]


def self_attention(config: TransformerConfig, *, encoder: bool) -> Make:
    """What makes the kernel of each layer in one stack."""
    scale, dropout = _scale(config), config.attention_dropout
    match config.attention:
        case WindowAttentionConfig(window=reach):
            return lambda: rn.WindowAttention(scale, reach, dropout)
        case BigBirdAttentionConfig() as bird if encoder:
            pattern = Pattern(bird.window_blocks, bird.global_blocks, bird.random_blocks, bird.seed)
            return lambda: rn.BigBirdAttention(scale, bird.block_size, pattern, dropout)
        case LinformerAttentionConfig() as settings if encoder:
            return _linformer(config, settings)
        case _:
            return lambda: full_attention(config)


def full_attention(config: TransformerConfig) -> rn.Kernel:
    """Every query meets every key."""
    return rn.FullAttention(_scale(config), config.attention_dropout)


def _linformer(config: TransformerConfig, settings: LinformerAttentionConfig) -> Make:
    def mixtures() -> rn.Mixtures:
        return rn.Mixtures(
            settings.projected_length, settings.max_length, config.heads if settings.sharing == "none" else None
        )

    everywhere = mixtures() if settings.sharing == "layerwise" else None

    def kernel() -> rn.Kernel:
        keys = everywhere or mixtures()
        values = keys if settings.sharing in ("key-value", "layerwise") else mixtures()
        return rn.LinformerAttention(_scale(config), keys, values, config.attention_dropout)

    return kernel


def _scale(config: TransformerConfig) -> float:
    return 1 / math.sqrt(config.key_width or config.head_width) if config.scale_scores else 1.0
