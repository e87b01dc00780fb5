"""Parts that Transformers and recurrent networks share: activations, pooling, prediction heads, output projection."""

from collections.abc import Callable
from functools import partial

from torch import nn

from regard import nn as rn
from regard.config import (
    ClassHeadConfig,
    DecoderOnlyConfig,
    EncoderConfig,
    EncoderDecoderConfig,
    NoHeadConfig,
    RecurrentConfig,
    TagHeadConfig,
    TokenHeadConfig,
)
from regard.nn.embedding import embedding_matrix
from regard.nn.prediction_heads import MaskedLMHead, TextClassificationHead, TokenClassificationHead

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "gelu-tanh": partial(nn.GELU, approximate="tanh"),
    "swish": nn.SiLU,
}
POOLING_LAYERS: dict[str, Callable[[int], nn.Module]] = {
    "mean": lambda width: rn.MeanPooling(),
    "first": lambda width: rn.FirstTokenPooling(),
    "first-dense": rn.DensePooling,
}


def prediction_head(config: EncoderConfig, table: nn.Parameter, width: int | None = None) -> nn.Module | None:
    """Return the head of an encoder with the embedding matrix `table` (V, C) and token states of size `width`."""
    width = width or table.size(1)
    match config.head:
        case NoHeadConfig():
            return None
        case TokenHeadConfig(activation=activation, norm_epsilon=epsilon):
            norm = nn.LayerNorm(width, eps=epsilon)
            output = rn.OutputProjection(table, bias=True)
            return MaskedLMHead(nn.Linear(width, width), ACTIVATIONS[activation](), norm, output)
        case ClassHeadConfig(labels=labels, dropout=dropout):
            return TextClassificationHead(width, len(labels), dropout)
        case TagHeadConfig(labels=labels, dropout=dropout):
            return TokenClassificationHead(width, len(labels), dropout)


def output_projection(
    config: EncoderDecoderConfig | DecoderOnlyConfig | RecurrentConfig, table: nn.Parameter
) -> rn.OutputProjection:
    """Return the projection to logits; its matrix is the embedding matrix `table` (V, C) if `tie_output` is set."""
    weight = table if config.tie_output else embedding_matrix(*table.shape)
    return rn.OutputProjection(weight, bias=config.output_bias)
