"""From settings to a network: the one place where a variant's name becomes an object."""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from regard import nn as rn
from regard.config import (
    DecoderOnly,
    EncoderDecoder,
    EncoderOnly,
    LearnedPositions,
    ModelConfig,
    NoPositions,
    RecurrentEncoderDecoder,
    RecurrentLanguageModel,
    SinusoidalPositions,
    TransformerConfig,
)
from regard.models.initialise import initialise
from regard.models.network import Network
from regard.models.recurrent_assembly import recurrent_encoder_decoder, recurrent_language_model
from regard.models.transformer import DecoderOnlyTransformer, EncoderDecoderTransformer, EncoderOnlyTransformer
from regard.nn.embedding import token_table

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "gelu-tanh": partial(nn.GELU, approximate="tanh"),
    "swish": nn.SiLU,
}
POOLINGS: dict[str, Callable[[int], nn.Module]] = {
    "mean": lambda width: rn.MeanPooling(),
    "first": lambda width: rn.FirstPooling(),
    "first-dense": rn.DensePooling,
}


def build(config: ModelConfig) -> Network:
    """The network that these settings describe, freshly initialised.

    >>> from regard.config import DecoderOnly
    >>> network = build(DecoderOnly(vocabulary=10, width=8, layers=1, heads=2, feed_forward=16))
    >>> sum(parameter.numel() for parameter in network.parameters())
    648
    """
    network = _assemble(config)
    initialise(network, config)
    return network


def sketch(config: ModelConfig) -> Network:
    """The network of these settings without its numbers: for counting or for filling, however large it is."""
    with torch.device("meta"):
        return build(config)


def _assemble(config: ModelConfig) -> Network:
    match config:
        case EncoderDecoder():
            source = token_table(config.vocabulary, config.width)
            target = source
            if not config.share_embeddings:
                target = token_table(config.target_vocabulary or config.vocabulary, config.width)
            return EncoderDecoderTransformer(
                _stack(config, source, config.layers),
                _stack(
                    config, target, config.decoder_layers or config.layers, cross=True, causal=config.look_ahead_mask
                ),
                _output(config, target),
            )
        case DecoderOnly():
            table = token_table(config.vocabulary, config.width)
            return DecoderOnlyTransformer(
                _stack(config, table, config.layers, causal=config.look_ahead_mask), _output(config, table)
            )
        case EncoderOnly():
            table = token_table(config.vocabulary, config.width)
            stack = _stack(config, table, config.layers, segments=config.segments)
            return EncoderOnlyTransformer(stack, POOLINGS[config.pooling](config.width))
        case RecurrentEncoderDecoder():
            return recurrent_encoder_decoder(config)
        case RecurrentLanguageModel():
            return recurrent_language_model(config)
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
    positions = _positions(config)
    embedding = rn.Embedding(
        table,
        positions,
        scaled=config.scale_embeddings,
        segments=segments,
        norm=_norm(config) if config.embedding_norm else None,
        dropout=config.dropout,
    )
    norm = _norm(config) if config.norm_order == "pre" else None
    return rn.Stack(embedding, [_block(config, positions, cross) for _ in range(layers)], norm, causal=causal)


def _block(config: TransformerConfig, positions: rn.Positions, cross: bool) -> rn.Block:
    width, heads, key_width, bias = config.width, config.heads, config.key_width, config.attention_bias
    wrapping = rn.PostNorm if config.norm_order == "post" else rn.PreNorm
    return rn.Block(
        rn.SelfAttention(width, heads, _kernel(config), positions, key_width=key_width, bias=bias),
        rn.CrossAttention(width, heads, _kernel(config), key_width=key_width, bias=bias) if cross else None,
        _feed_forward(config),
        lambda: wrapping(_norm(config), config.dropout, connected=config.residual),
    )


def _kernel(config: TransformerConfig) -> rn.Kernel:
    key_width = config.key_width or config.head_width
    return rn.FullAttention(1 / math.sqrt(key_width) if config.scale_scores else 1.0, config.attention_dropout)


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


def _positions(config: TransformerConfig) -> rn.Positions:
    match config.positions:
        case SinusoidalPositions(layout=layout):
            return rn.SinusoidalPositions(config.width, halves=layout == "halves")
        case LearnedPositions(length=length):
            return rn.LearnedPositions(length, config.width)
        case NoPositions():
            return rn.Positions()


def _output(config: EncoderDecoder | DecoderOnly, table: nn.Parameter) -> rn.Output:
    weight = table if config.share_output else token_table(*table.shape)
    return rn.Output(weight, bias=config.output_bias)
