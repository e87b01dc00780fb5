"""From settings to a network: the one place where a variant's name becomes an object."""

import math
from collections.abc import Callable

import torch
from torch import nn

from regard import nn as rn
from regard.config import (
    AlibiPositionsConfig,
    BidirectionalLanguageModelConfig,
    BigBirdAttentionConfig,
    DecoderOnlyConfig,
    EncoderDecoderConfig,
    EncoderOnlyConfig,
    FullAttentionConfig,
    LearnedPositionsConfig,
    LinformerAttentionConfig,
    ModelConfig,
    NoPositionsConfig,
    RecurrentEncoderDecoderConfig,
    RecurrentLanguageModelConfig,
    RelativePositionsConfig,
    RotaryPositionsConfig,
    SinusoidalPositionsConfig,
    SyntaxPositionsConfig,
    TransformerConfig,
    WindowAttentionConfig,
)
from regard.models.components import ACTIVATIONS, POOLINGS, output_projection, prediction_head
from regard.models.initialization import initialize
from regard.models.network import Network
from regard.models.recurrent_assembly import (
    bidirectional_language_model,
    recurrent_encoder_decoder,
    recurrent_language_model,
)
from regard.models.transformer import DecoderOnlyTransformer, EncoderDecoderTransformer, EncoderOnlyTransformer
from regard.nn.bigbird import BigBirdPattern
from regard.nn.embedding import embedding_matrix


def build(config: ModelConfig) -> Network:
    """The network that these settings describe, freshly initialised.

    >>> from regard.config import DecoderOnlyConfig
    >>> network = build(DecoderOnlyConfig(vocab_size=10, width=8, layers=1, heads=2, feed_forward=16))
    >>> sum(parameter.numel() for parameter in network.parameters())
    648
    """
    network = _assemble(config)
    initialize(network, config)
    return network


def build_meta(config: ModelConfig) -> Network:
    """The network of these settings without its numbers: for counting or for filling, however large it is."""
    with torch.device("meta"):
        return build(config)


def _assemble(config: ModelConfig) -> Network:
    match config:
        case EncoderDecoderConfig():
            source = embedding_matrix(config.vocab_size, config.width)
            target = source
            if not config.share_embeddings:
                target = embedding_matrix(config.target_vocab_size or config.vocab_size, config.width)
            return EncoderDecoderTransformer(
                _stack(config, source, config.layers),
                _stack(config, target, config.decoder_layers or config.layers, cross=True, causal=config.causal_mask),
                output_projection(config, target),
            )
        case DecoderOnlyConfig():
            table = embedding_matrix(config.vocab_size, config.width)
            return DecoderOnlyTransformer(
                _stack(config, table, config.layers, causal=config.causal_mask), output_projection(config, table)
            )
        case EncoderOnlyConfig():
            table = embedding_matrix(config.vocab_size, config.width)
            stack = _stack(config, table, config.layers, segments=config.segments)
            return EncoderOnlyTransformer(stack, POOLINGS[config.pooling](config.width), prediction_head(config, table))
        case RecurrentEncoderDecoderConfig():
            return recurrent_encoder_decoder(config)
        case RecurrentLanguageModelConfig():
            return recurrent_language_model(config)
        case BidirectionalLanguageModelConfig():
            return bidirectional_language_model(config, POOLINGS[config.pooling](config.width))
        case _:
            raise TypeError(f"build takes the settings of a model, such as resolve('tiny').model, not {config!r}")


def _stack(
    config: TransformerConfig,
    table: nn.Parameter,
    layers: int,
    *,
    cross: bool = False,
    causal: bool = False,
    segments: int = 0,
) -> rn.Stack:
    encoder = not cross and not isinstance(config, DecoderOnlyConfig)
    positions = _positions(config, encoder=encoder)
    embedding = rn.TokenEmbedding(
        table,
        positions,
        scaled=config.scale_embeddings,
        segments=segments,
        norm=_norm(config) if config.embedding_norm else None,
        dropout=config.dropout,
    )
    norm = _norm(config) if config.norm_order == "pre" else None
    kernel = self_attention(config, encoder=encoder)
    blocks = [_block(config, kernel(), positions, cross) for _ in range(layers)]
    return rn.Stack(embedding, blocks, norm, causal=causal)


def _block(config: TransformerConfig, kernel: rn.AttentionKernel, positions: rn.Positions, cross: bool) -> rn.Block:
    width, heads, key_width, bias = config.width, config.heads, config.key_width, config.attention_bias
    wrapping = rn.PostNorm if config.norm_order == "post" else rn.PreNorm
    return rn.Block(
        rn.SelfAttention(width, heads, kernel, positions, key_width=key_width, bias=bias),
        rn.CrossAttention(width, heads, full_attention(config), key_width=key_width, bias=bias) if cross else None,
        _feed_forward(config),
        lambda: wrapping(_norm(config), config.dropout, connected=config.residual),
    )


def _feed_forward(config: TransformerConfig) -> nn.Module | None:
    if config.feed_forward == 0:
        return None
    if config.activation == "swiglu":
        return rn.GatedFeedForward(config.width, config.feed_forward, config.activation_dropout)
    activation = ACTIVATIONS[config.activation]()
    return rn.FeedForward(config.width, config.feed_forward, activation, config.activation_dropout)


def _norm(config: TransformerConfig) -> nn.Module:
    match config.norm:
        case "layer":
            return nn.LayerNorm(config.width, eps=config.norm_epsilon)
        case "rms":
            return nn.RMSNorm(config.width, eps=config.norm_epsilon)
        case "none":
            return nn.Identity()


def _positions(config: TransformerConfig, *, encoder: bool) -> rn.Positions:
    match config.positions:
        case SinusoidalPositionsConfig(layout=layout):
            return rn.SinusoidalPositions(config.width, halves=layout == "halves")
        case LearnedPositionsConfig(max_length=length):
            return rn.LearnedPositions(length, config.width)
        case RotaryPositionsConfig(base=base, layout=layout):
            return rn.RotaryPositions(base, halves=layout == "halves")
        case AlibiPositionsConfig():
            return rn.AlibiPositions()
        case RelativePositionsConfig(max_distance=clip, per_head=per_head):
            return rn.RelativePositions(clip, per_head)
        case SyntaxPositionsConfig() if not encoder:  # what a decoder writes has no parse
            return rn.SinusoidalPositions(config.width)
        case SyntaxPositionsConfig() as tree:
            sequential = rn.SinusoidalPositions(config.width) if tree.sinusoidal else rn.Positions()
            deepest, clip = tree.max_depth if tree.depth else 0, tree.max_distance if tree.distance else 0
            return rn.SyntaxPositions(sequential, config.width, deepest, clip, tree.per_head)
        case NoPositionsConfig():
            return rn.Positions()
        case registered:
            positions: rn.Positions = registered.load_builder()(registered, config, encoder=encoder)
            return positions


Make = Callable[[], rn.AttentionKernel]


def self_attention(config: TransformerConfig, *, encoder: bool) -> Make:
    """What makes the kernel of each layer in one stack."""
    scale, dropout = _scale(config), config.attention_dropout
    match config.attention:
        case WindowAttentionConfig(window=reach):
            return lambda: rn.WindowAttention(scale, reach, dropout)
        case BigBirdAttentionConfig() as bird if encoder:
            pattern = BigBirdPattern(bird.window_blocks, bird.global_blocks, bird.random_blocks, bird.seed)
            return lambda: rn.BigBirdAttention(scale, bird.block_size, pattern, dropout)
        case LinformerAttentionConfig() as settings if encoder:
            return _linformer(config, settings)
        case FullAttentionConfig() | BigBirdAttentionConfig() | LinformerAttentionConfig():
            return lambda: full_attention(config)
        case registered:
            make: Make = registered.load_builder()(registered, config, encoder=encoder)
            return make


def full_attention(config: TransformerConfig) -> rn.AttentionKernel:
    """Every query meets every key."""
    return rn.FullAttention(_scale(config), config.attention_dropout)


def _linformer(config: TransformerConfig, settings: LinformerAttentionConfig) -> Make:
    def mixtures() -> rn.LengthProjection:
        return rn.LengthProjection(
            settings.projected_length, settings.max_length, config.heads if settings.sharing == "none" else None
        )

    everywhere = mixtures() if settings.sharing == "layerwise" else None

    def kernel() -> rn.AttentionKernel:
        keys = everywhere or mixtures()
        values = keys if settings.sharing in ("key-value", "layerwise") else mixtures()
        return rn.LinformerAttention(_scale(config), keys, values, config.attention_dropout)

    return kernel


def _scale(config: TransformerConfig) -> float:
    return 1 / math.sqrt(config.key_width or config.head_width) if config.scale_scores else 1.0
