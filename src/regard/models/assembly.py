"""From settings to a network.

`build` assembles a network. Position schemes and attention kernels are built by the `builder` of their config, which is
a function of `models/positions.py` or of this module for the built-in ones and may be in any other package:

    build_positions(config, model, *, encoder) -> nn.Positions
    build_attention(config, model, *, encoder) -> a function without arguments that returns the kernel of a layer

`model` are the settings of the whole Transformer and `encoder` is whether the stack is an encoder. Builders and layers
draw their initial values from torch's default generator, so their order is part of a run's seed.
"""

import math
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import torch
from torch import nn

from regard import nn as rn
from regard.config import (
    BidirectionalLanguageModelConfig,
    BigBirdAttentionConfig,
    ClassHeadConfig,
    DecoderOnlyConfig,
    EncoderConfig,
    EncoderDecoderConfig,
    EncoderOnlyConfig,
    FullAttentionConfig,
    LinformerAttentionConfig,
    ModelConfig,
    NoHeadConfig,
    RecurrentConfig,
    RecurrentEncoderDecoderConfig,
    RecurrentLanguageModelConfig,
    TagHeadConfig,
    TokenHeadConfig,
    TransformerConfig,
    WindowAttentionConfig,
)
from regard.models.initialization import initialize
from regard.models.network import Network
from regard.models.recurrent import BidirectionalLanguageModel, RecurrentEncoderDecoder, RecurrentLanguageModel
from regard.models.transformer import DecoderOnlyTransformer, EncoderDecoderTransformer, EncoderOnlyTransformer
from regard.nn.bigbird import BigBirdPattern
from regard.nn.embedding import embedding_matrix
from regard.nn.prediction_heads import (
    BidirectionalLMHead,
    MaskedLMHead,
    TextClassificationHead,
    TokenClassificationHead,
)
from regard.nn.recurrent import (
    AdditiveScore,
    AttendingLayer,
    DotScore,
    GeneralScore,
    GRUCell,
    LSTMCell,
    RecurrentCell,
    RecurrentLayer,
    RNNCell,
    Score,
    SourceAttention,
)
from regard.nn.recurrent_stack import BidirectionalStack, LayerMixing, RecurrentStack

MakeKernel = Callable[[], rn.AttentionKernel]
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "relu2": rn.SquaredReLU,
    "gelu": nn.GELU,
    "gelu-tanh": partial(nn.GELU, approximate="tanh"),
    "swish": nn.SiLU,
}
GATED_ACTIVATIONS = {"swiglu": "swish", "geglu": "gelu", "geglu-tanh": "gelu-tanh"}
POOLING_LAYERS: dict[str, Callable[[int], nn.Module]] = {
    "mean": lambda width: rn.MeanPooling(),
    "first": lambda width: rn.FirstTokenPooling(),
    "first-dense": rn.DensePooling,
    "first-relu": rn.ReLUPooling,
}
RECURRENT_CELLS: dict[str, type[RecurrentCell]] = {"rnn": RNNCell, "lstm": LSTMCell, "gru": GRUCell}
ATTENTION_SCORES: dict[str, Callable[[int], Score]] = {
    "additive": AdditiveScore,
    "dot": lambda width: DotScore(),
    "general": GeneralScore,
}


def build(config: ModelConfig) -> Network:
    """Build and initialize the network of these settings.

    >>> from regard.config import DecoderOnlyConfig
    >>> network = build(DecoderOnlyConfig(vocab_size=10, width=8, layers=1, heads=2, feed_forward=16))
    >>> sum(parameter.numel() for parameter in network.parameters())
    648
    """
    network = _assemble(config)
    initialize(network, config)
    return network


def build_meta(config: ModelConfig) -> Network:
    """Build the network of these settings on the meta device, without memory for its weights."""
    with torch.device("meta"):
        return _assemble(config)


def _assemble(config: ModelConfig) -> Network:
    match config:
        case EncoderDecoderConfig():
            source = embedding_matrix(config.vocab_size, config.embedding_width)
            target = source
            if not config.share_embeddings:
                target = embedding_matrix(config.target_vocab_size or config.vocab_size, config.embedding_width)
            encoder = _stack(config, source, config.layers)
            decoder = _stack(
                config, target, config.decoder_layers or config.layers, cross=True, causal=config.causal_mask
            )
            return EncoderDecoderTransformer(encoder, decoder, _output_projection(config, target, config.width))
        case DecoderOnlyConfig():
            table = embedding_matrix(config.vocab_size, config.embedding_width)
            decoder = _stack(config, table, config.layers, causal=config.causal_mask)
            return DecoderOnlyTransformer(decoder, _output_projection(config, table, config.width))
        case EncoderOnlyConfig():
            table = embedding_matrix(config.vocab_size, config.embedding_width)
            encoder = _stack(config, table, config.layers, segments=config.segments)
            return EncoderOnlyTransformer(
                encoder, POOLING_LAYERS[config.pooling](config.width), _prediction_head(config, table, config.width)
            )
        case RecurrentEncoderDecoderConfig():
            return _recurrent_encoder_decoder(config)
        case RecurrentLanguageModelConfig():
            return _recurrent_language_model(config)
        case BidirectionalLanguageModelConfig():
            return _bidirectional_language_model(config, POOLING_LAYERS[config.pooling](config.width))
        case _:
            raise TypeError(f"build takes the settings of a model, such as load_config('tiny').model, not {config!r}")


def _prediction_head(config: EncoderConfig, table: nn.Parameter, width: int) -> nn.Module | None:
    """Return the head of an encoder with the embedding matrix `table` (V, E) and token states of size `width`."""
    match config.head:
        case NoHeadConfig():
            return None
        case TokenHeadConfig(activation=activation, norm_epsilon=epsilon):
            norm = nn.LayerNorm(table.size(1), eps=epsilon)
            output = rn.OutputProjection(table, bias=True)
            return MaskedLMHead(nn.Linear(width, table.size(1)), ACTIVATIONS[activation](), norm, output)
        case ClassHeadConfig(labels=labels, dropout=dropout):
            return TextClassificationHead(width, len(labels), dropout)
        case TagHeadConfig(labels=labels, dropout=dropout):
            return TokenClassificationHead(width, len(labels), dropout)


def _output_projection(
    config: EncoderDecoderConfig | DecoderOnlyConfig | RecurrentConfig, table: nn.Parameter, width: int
) -> rn.OutputProjection:
    """Return the projection of states (…, width) to logits; its matrix is `table` (V, width) if `tie_output` is set."""
    weight = table if config.tie_output else embedding_matrix(len(table), width)
    return rn.OutputProjection(weight, bias=config.output_bias, soft_cap=getattr(config, "logit_soft_cap", None))


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
    positions: rn.Positions = config.positions.build(config, encoder=encoder)
    embedding = rn.TokenEmbedding(
        table,
        positions,
        scaled=config.scale_embeddings,
        segments=segments,
        norm=_norm(config) if config.embedding_norm else None,
        dropout=config.dropout,
    )
    norm = _norm(config) if config.norm_order == "pre" else None
    kernel: MakeKernel = config.attention.build(config, encoder=encoder)
    blocks = [_block(config, kernel(), positions, cross) for _ in range(layers)]
    if not config.first_norm:
        blocks[0].attention_residual.norm = nn.Identity()
    return rn.Stack(embedding, blocks, norm, causal=causal)


def _block(config: TransformerConfig, kernel: rn.AttentionKernel, positions: rn.Positions, cross: bool) -> rn.Block:
    width, heads = config.width, config.heads
    qk_norm = partial(nn.RMSNorm, eps=config.norm_epsilon, elementwise_affine=config.norm_affine)
    options: Any = {"kv_heads": config.kv_heads, "value_width": config.value_width, "key_width": config.key_width}
    options |= {"bias": bool(config.attention_bias), "output_bias": config.attention_bias is True}
    options["qk_norm"] = qk_norm if config.qk_norm else None
    if isinstance(kernel, rn.WindowAttention):
        positions = positions.in_windows()
    attention = rn.SelfAttention(width, heads, kernel, positions, **options)
    cross_attention = None
    if cross:
        cross_attention = rn.CrossAttention(width, heads, _full_attention(config), **options)
    return rn.Block(
        attention,
        cross_attention,
        _feed_forward(config),
        lambda: _residual(config),
        parallel=config.parallel_sublayers,
    )


def _residual(config: TransformerConfig) -> rn.Residual:
    if config.sandwich_norm:
        return rn.SandwichNorm(_norm(config), _norm(config), config.dropout, connected=config.residual)
    kind = rn.PostNorm if config.norm_order == "post" else rn.PreNorm
    return kind(_norm(config), config.dropout, connected=config.residual)


def _feed_forward(config: TransformerConfig) -> nn.Module | None:
    """Return the feed-forward layer of a block, or the experts in its place; None if there is none."""
    if config.feed_forward == 0:
        return None
    if config.experts > 1:
        experts = [_single_feed_forward(config) for _ in range(config.experts)]
        return rn.MixtureOfExperts(config.width, experts, config.experts_per_token)
    return _single_feed_forward(config)


def _single_feed_forward(config: TransformerConfig) -> nn.Module:
    if config.activation in GATED_ACTIVATIONS:
        gate = ACTIVATIONS[GATED_ACTIVATIONS[config.activation]]()
        return rn.GatedFeedForward(config.width, config.feed_forward, config.activation_dropout, gate)
    activation = ACTIVATIONS[config.activation]()
    return rn.FeedForward(config.width, config.feed_forward, activation, config.activation_dropout)


def _norm(config: TransformerConfig) -> nn.Module:
    match config.norm:
        case "layer":
            return nn.LayerNorm(config.width, config.norm_epsilon, config.norm_affine)
        case "rms":
            return nn.RMSNorm(config.width, config.norm_epsilon, config.norm_affine)
        case "none":
            return nn.Identity()


def build_full_attention(config: FullAttentionConfig, model: TransformerConfig, *, encoder: bool) -> MakeKernel:
    """Build full attention."""
    return lambda: _full_attention(model)


def build_window_attention(config: WindowAttentionConfig, model: TransformerConfig, *, encoder: bool) -> MakeKernel:
    """Build sliding-window attention; layers among `full_layers` have full attention."""
    layers = count()

    def kernel() -> rn.AttentionKernel:
        if next(layers) in config.full_layers:
            return _full_attention(model)
        return rn.WindowAttention(_scale(model), config.window, model.attention_dropout, model.attention_soft_cap)

    return kernel


def build_bigbird_attention(config: BigBirdAttentionConfig, model: TransformerConfig, *, encoder: bool) -> MakeKernel:
    """Build BigBird attention; it attends to later tokens, so a decoder has full attention."""
    if not encoder:
        return lambda: _full_attention(model)
    pattern = BigBirdPattern(config.window_blocks, config.global_blocks, config.random_blocks, config.seed)
    return lambda: rn.BigBirdAttention(_scale(model), config.block_size, pattern, model.attention_dropout)


def build_linformer_attention(
    config: LinformerAttentionConfig, model: TransformerConfig, *, encoder: bool
) -> MakeKernel:
    """Build Linformer attention; it attends to later tokens, so a decoder has full attention."""
    if not encoder:
        return lambda: _full_attention(model)
    heads = (model.kv_heads or model.heads) if config.sharing == "none" else None

    def projection() -> rn.LengthProjection:
        return rn.LengthProjection(config.projected_length, config.max_length, heads)

    shared = projection() if config.sharing == "layerwise" else None

    def kernel() -> rn.AttentionKernel:
        keys = shared or projection()
        values = keys if config.sharing in ("key-value", "layerwise") else projection()
        return rn.LinformerAttention(_scale(model), keys, values, model.attention_dropout)

    return kernel


def _full_attention(model: TransformerConfig) -> rn.AttentionKernel:
    return rn.FullAttention(_scale(model), model.attention_dropout, model.attention_soft_cap)


def _scale(model: TransformerConfig) -> float:
    return 1 / math.sqrt(model.key_width or model.head_width) if model.scale_scores else 1.0


def _recurrent_encoder_decoder(config: RecurrentEncoderDecoderConfig) -> RecurrentEncoderDecoder:
    """Assemble the encoder-decoder network of these settings."""
    source = embedding_matrix(config.vocab_size, config.width)
    target = source
    if not config.share_embeddings:
        target = embedding_matrix(config.target_vocab_size or config.vocab_size, config.width)
    return RecurrentEncoderDecoder(
        _recurrent_stack(config, source, bidirectional=config.bidirectional),
        _recurrent_decoder(config, target),
        _output_projection(config, target, config.width),
    )


def _recurrent_decoder(config: RecurrentEncoderDecoderConfig, table: nn.Parameter) -> RecurrentStack:
    layers = config.decoder_layers or config.layers
    if config.attention == "none":
        return _recurrent_stack(config, table, layers)
    before = config.attention_timing == "before"
    attention = SourceAttention(
        config.width, ATTENTION_SCORES[config.attention](config.width), others=2 if before else 1
    )
    return _recurrent_stack(config, table, layers, attention=attention, attends=before)


def _recurrent_language_model(config: RecurrentLanguageModelConfig) -> RecurrentLanguageModel:
    """Assemble the language model of these settings."""
    table = embedding_matrix(config.vocab_size, config.width)
    return RecurrentLanguageModel(_recurrent_stack(config, table), _output_projection(config, table, config.width))


def _bidirectional_language_model(
    config: BidirectionalLanguageModelConfig, pooling: nn.Module
) -> BidirectionalLanguageModel:
    """Assemble the bidirectional language model of these settings; each direction has half of the width."""
    half = config.width // 2
    table = embedding_matrix(config.vocab_size, half)
    forwards, backwards = (
        [RecurrentLayer(RECURRENT_CELLS[config.cell], half, half) for _ in range(config.layers)] for _ in range(2)
    )
    embedding = rn.TokenEmbedding(table, rn.Positions(), dropout=config.dropout)
    if isinstance(config.head, TokenHeadConfig):
        head: nn.Module | None = BidirectionalLMHead(_output_projection(config, table, half))
    else:
        head = _prediction_head(config, table, config.width)
    return BidirectionalLanguageModel(
        BidirectionalStack(embedding, forwards, backwards, config.dropout),
        LayerMixing(1 + config.layers),
        pooling,
        head,
    )


def _recurrent_stack(
    config: RecurrentConfig,
    table: nn.Parameter,
    layers: int | None = None,
    *,
    bidirectional: bool = False,
    attention: SourceAttention | None = None,
    attends: bool = False,
) -> RecurrentStack:
    cell, width, count = RECURRENT_CELLS[config.cell], config.width, layers or config.layers
    lowest = [AttendingLayer(cell, width, width)] if attends else []
    others = [RecurrentLayer(cell, width, width, bidirectional=bidirectional) for _ in range(count - len(lowest))]
    embedding = rn.TokenEmbedding(table, rn.Positions(), dropout=config.dropout)
    return RecurrentStack(embedding, [*lowest, *others], attention, config.dropout)
