"""From settings to a network: the one place where a variant's name becomes an object."""

from collections.abc import Callable

import torch
from torch import nn

from regard import nn as rn
from regard.config import (
    AlibiPositionsConfig,
    BidirectionalLanguageModelConfig,
    DecoderOnlyConfig,
    EncoderDecoderConfig,
    EncoderOnlyConfig,
    LearnedPositionsConfig,
    ModelConfig,
    NoPositionsConfig,
    RecurrentEncoderDecoderConfig,
    RecurrentLanguageModelConfig,
    RelativePositionsConfig,
    RotaryPositionsConfig,
    SinusoidalPositionsConfig,
    SyntaxPositionsConfig,
    TransformerConfig,
)
from regard.models.activations import ACTIVATIONS
from regard.models.attentions import full_attention, self_attention
from regard.models.initialise import initialise
from regard.models.network import Network
from regard.models.readouts import readout
from regard.models.recurrent_assembly import (
    bidirectional_language_model,
    recurrent_encoder_decoder,
    recurrent_language_model,
)
from regard.models.transformer import DecoderOnlyTransformer, EncoderDecoderTransformer, EncoderOnlyTransformer
from regard.nn.embedding import token_table

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
        case EncoderDecoderConfig():
            source = token_table(config.vocab_size, config.width)
            target = source
            if not config.share_embeddings:
                target = token_table(config.target_vocab_size or config.vocab_size, config.width)
            return EncoderDecoderTransformer(
                _stack(config, source, config.layers),
                _stack(config, target, config.decoder_layers or config.layers, cross=True, causal=config.causal_mask),
                _output(config, target),
            )
        case DecoderOnlyConfig():
            table = token_table(config.vocab_size, config.width)
            return DecoderOnlyTransformer(
                _stack(config, table, config.layers, causal=config.causal_mask), _output(config, table)
            )
        case EncoderOnlyConfig():
            table = token_table(config.vocab_size, config.width)
            stack = _stack(config, table, config.layers, segments=config.segments)
            return EncoderOnlyTransformer(stack, POOLINGS[config.pooling](config.width), readout(config, table))
        case RecurrentEncoderDecoderConfig():
            return recurrent_encoder_decoder(config)
        case RecurrentLanguageModelConfig():
            return recurrent_language_model(config)
        case BidirectionalLanguageModelConfig():
            return bidirectional_language_model(config, POOLINGS[config.pooling](config.width))
        case _:
            raise TypeError(f"build takes the settings of a model, such as load_config('tiny').model, not {config!r}")


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
    embedding = rn.Embedding(
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


def _block(config: TransformerConfig, kernel: rn.Kernel, positions: rn.Positions, cross: bool) -> rn.Block:
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


def _output(config: EncoderDecoderConfig | DecoderOnlyConfig, table: nn.Parameter) -> rn.Output:
    weight = table if config.tie_output else token_table(*table.shape)
    return rn.Output(weight, bias=config.output_bias)
