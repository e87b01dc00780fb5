"""Initialization of the weights, chosen so that training is stable from the first step.

Matrices are Xavier-uniform, each of the fused ones (query, key, value; gate, value) on its own; biases are zero.
Embeddings are N(0, 1/C): after × √C their entries have unit variance, and so have the first logits, because hidden
states are normalized. The output matrices of the sub-layers, whose products are added to the residual stream, are
divided by the square root of their number, or zero with `zero_output`. In a pre-norm network the variance of the stream
then does not grow with depth (Radford et al. 2019), and a post-norm network learns faster:
docs/explanation/choices.md has the numbers.

If the output projection is tied to the embedding, a new decoder would predict the token that it has just seen, with a
logit of √C, because the row of that token dominates the stream. So every other gain of its last norm is initialized to
−1: the product of a row with itself is then 0 on average, and other products keep their distribution. A norm without
gains (`norm_affine = false`) cannot do this; its network has to unlearn to repeat.

Routers of experts are N(0, 0.1/C): their logits are small at first, so that all experts are about equally probable
(Fedus et al. 2022, §2.4).
"""

import torch
from torch import Tensor, nn

from regard.config import NetworkConfig, TransformerConfig
from regard.models.transformer import DecoderOnlyTransformer, EncoderDecoderTransformer
from regard.nn import (
    Block,
    CrossAttention,
    DensePooling,
    FeedForward,
    FusedSyntaxPositions,
    GatedFeedForward,
    MixtureOfExperts,
    SelfAttention,
    Stack,
)
from regard.nn.prediction_heads import MaskedLMHead, TokenClassificationHead
from regard.nn.recurrent import AdditiveScore, GeneralScore, LSTMCell, RecurrentLayer, SourceAttention

ROUTER_VARIANCE = 0.1  # of a logit of a router at first, for inputs of unit variance


@torch.no_grad()
def initialize(network: nn.Module, config: NetworkConfig, *, scale_residual: bool = True) -> None:
    """Initialize every matrix of a network built from `config`; embeddings and norms have their values already.

    With `scale_residual`, the output matrices of the sub-layers are divided by the square root of their number.
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
            case MixtureOfExperts():
                nn.init.normal_(module.router.weight, std=(ROUTER_VARIANCE / module.router.in_features) ** 0.5)
            case DensePooling() | MaskedLMHead() | TokenClassificationHead():
                _xavier(module.dense)
            case FusedSyntaxPositions():
                _xavier(module.fusion)
            case RecurrentLayer():
                _initialize_recurrent(module)
            case AdditiveScore():
                _xavier(module.query)
                _xavier(module.key)
            case GeneralScore():
                _xavier(module.key)
            case SourceAttention():
                _xavier(module.output)
    if isinstance(config, TransformerConfig) and config.residual and scale_residual:
        for stack in (module for module in network.modules() if isinstance(module, Stack)):
            outputs = [weights for layer in stack.layers for weights in _output_matrices(layer)]
            for weights in outputs:
                for weight in weights:
                    weight.mul_(len(outputs) ** -0.5)
    if isinstance(config, TransformerConfig) and config.zero_output:
        for block in (module for module in network.modules() if isinstance(module, Block)):
            for weights in _output_matrices(block):
                for weight in weights:
                    weight.zero_()
    if isinstance(network, EncoderDecoderTransformer | DecoderOnlyTransformer):
        embedding = network.decoder.embedding
        if embedding.weight is network.output.weight and embedding.factor > 1:
            _alternate_gains(network.decoder)


def _xavier(linear: nn.Linear, *sizes: int) -> None:
    """Initialize a linear layer Xavier-uniform, separately for each of the fused matrices with `sizes` rows."""
    for part in linear.weight.split(list(sizes) or [len(linear.weight)]):
        nn.init.xavier_uniform_(part)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)


def _initialize_recurrent(layer: RecurrentLayer) -> None:
    """Initialize the input matrix of each gate Xavier-uniform, and its state matrix orthogonal.

    The state matrix is applied at every step: an orthogonal one preserves the norm of the state. The forget gate of an
    LSTM has a bias of 1, so that it keeps the cell state at first.
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


def _alternate_gains(stack: Stack) -> None:
    """Flip the sign of every other gain of the last norm of a stack."""
    norm = stack.last_norm
    if isinstance(norm, nn.LayerNorm | nn.RMSNorm) and norm.elementwise_affine:
        norm.weight[1::2].neg_()


def _output_matrices(layer: nn.Module) -> list[list[Tensor]]:
    """Return the matrices whose products a layer adds to the residual stream, by sub-layer; an expert has one each."""
    sublayers = SelfAttention | CrossAttention | FeedForward | GatedFeedForward
    parts = [part.experts if isinstance(part, MixtureOfExperts) else [part] for part in layer.children()]
    return [own for part in parts if (own := [child.output.weight for child in part if isinstance(child, sublayers)])]
