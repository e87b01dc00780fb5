"""The first values of the weights, chosen so that training is stable from its first step.

Matrices are Xavier-uniform, each of the fused ones (query, key, value; gate, value) as if it stood alone; biases are
zero. Embeddings are N(0, 1/C): after × √C their entries have unit variance, and so have the first logits, because the
hidden states are normalised. Every sub-layer adds to what came before it; the matrices that write what is added shrink
by the square root of their number, so that it does not drown the rest. In a pre-norm network the sum's variance then
does not grow with depth (Radford et al. 2019), and a post-norm one learns sooner: docs/explanation/choices.md has the
numbers.

Where the embedding is also the projection to logits, a fresh decoder would expect the token it has just read, whose
row is most of the sum: by a logit of √C. So every other one of its last gains is negative at first: then that row says
nothing of itself, and all else is as it was.
"""

import torch
from torch import Tensor, nn

from regard.config import NetworkConfig, TransformerConfig
from regard.models.transformer import DecoderOnlyTransformer, EncoderDecoderTransformer
from regard.nn import CrossAttention, DensePooling, FeedForward, GatedFeedForward, SelfAttention, Stack
from regard.nn.prediction_heads import MaskedLMHead, TokenClassificationHead
from regard.nn.recurrent import LSTMCell, RecurrentLayer
from regard.nn.recurrent_attention import AdditiveScore, GeneralScore, SourceAttention


@torch.no_grad()
def initialize(network: nn.Module, config: NetworkConfig, *, scale_residual: bool = True) -> None:
    """Set every matrix of a network built from `config`; embeddings and norms are right as they are made.

    Without `scale_residual`, what sub-layers add starts as large as what they add it to.
    """
    for module in network.modules():
        match module:
            case SelfAttention():
                _xavier(module.query_key_value, *module.sizes)
                _xavier(module.output)
            case CrossAttention():
                _xavier(module.query)
                _xavier(module.key_value, *module.sizes)
                _xavier(module.output)
            case FeedForward():
                _xavier(module.inner)
                _xavier(module.output)
            case GatedFeedForward():
                half = module.output.in_features
                _xavier(module.inner, half, half)
                _xavier(module.output)
            case DensePooling() | MaskedLMHead() | TokenClassificationHead():
                _xavier(module.dense)
            case RecurrentLayer():
                _recurrent(module)
            case AdditiveScore():
                _xavier(module.query)
                _xavier(module.key)
            case GeneralScore():
                _xavier(module.key)
            case SourceAttention():
                _xavier(module.output)
    if isinstance(config, TransformerConfig) and config.residual and scale_residual:
        for stack in (module for module in network.modules() if isinstance(module, Stack)):
            writers = [weight for layer in stack.layers for weight in _writers(layer)]
            for weight in writers:
                weight.mul_(len(writers) ** -0.5)
    if isinstance(network, EncoderDecoderTransformer | DecoderOnlyTransformer):
        embedding = network.decoder.embedding
        if embedding.weight is network.output.weight and embedding.factor > 1:
            _turn_away(network.decoder)


def _xavier(linear: nn.Linear, *sizes: int) -> None:
    """Xavier-uniform, separately for each matrix of `sizes` rows that the layer fuses."""
    for part in linear.weight.split(list(sizes) or [len(linear.weight)]):
        nn.init.xavier_uniform_(part)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)


def _recurrent(layer: RecurrentLayer) -> None:
    """Each gate's matrix from the input Xavier-uniform, and that from the state orthogonal.

    The latter is applied at every step: an orthogonal one turns the state, and neither grows nor shrinks it. An LSTM's
    forget gate is biased by 1: at first it keeps what it has.
    """
    for direction, cell in enumerate(layer.cells):
        x_weight, h_weight, x_bias, h_bias = layer.weights(direction)
        width = h_weight.size(1)
        for part in x_weight.split(width):
            nn.init.xavier_uniform_(part)
        for part in h_weight.split(width):
            nn.init.orthogonal_(part)
        nn.init.zeros_(x_bias)
        nn.init.zeros_(h_bias)
        if isinstance(cell, LSTMCell):
            x_bias[width : 2 * width] = 1.0


def _turn_away(stack: Stack) -> None:
    """Turn round every other number of a stack's states."""
    norm = stack.last_norm
    if isinstance(norm, nn.LayerNorm | nn.RMSNorm):
        norm.weight[1::2].neg_()


def _writers(layer: nn.Module) -> list[Tensor]:
    """The matrices of a layer whose products are added to the residual sum."""
    sublayers = SelfAttention | CrossAttention | FeedForward | GatedFeedForward
    return [part.output.weight for part in layer.children() if isinstance(part, sublayers)]
