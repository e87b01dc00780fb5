"""The first values of the weights, chosen so that training is stable from its first step.

Matrices are Xavier-uniform, each of the fused ones (query, key, value; gate, value) as if it stood alone; biases are
zero. Embeddings are N(0, 1/C): after × √C their entries have unit variance, and so have the first logits, because the
hidden states are normalised. In a pre-norm network every sub-layer adds to one running sum; the matrices that write to
it shrink by the square root of their number, so that the sum's variance does not grow with depth (Radford et al. 2019).
"""

import torch
from torch import Tensor, nn

from regard.config import TransformerConfig
from regard.nn import CrossAttention, DensePooling, FeedForward, GatedFeedForward, SelfAttention, Stack


@torch.no_grad()
def initialise(network: nn.Module, config: TransformerConfig) -> None:
    """Set every matrix of a network built from `config`; embeddings and norms are right as they are made."""
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
            case DensePooling():
                _xavier(module.dense)
    if config.norm_order == "pre" and config.residual:
        for stack in (module for module in network.modules() if isinstance(module, Stack)):
            writers = [weight for layer in stack.layers for weight in _writers(layer)]
            for weight in writers:
                weight.mul_(len(writers) ** -0.5)


def _xavier(linear: nn.Linear, *sizes: int) -> None:
    """Xavier-uniform, separately for each matrix of `sizes` rows that the layer fuses."""
    for part in linear.weight.split(list(sizes) or [len(linear.weight)]):
        nn.init.xavier_uniform_(part)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)


def _writers(layer: nn.Module) -> list[Tensor]:
    """The matrices of a layer whose products are added to the residual sum."""
    sublayers = SelfAttention | CrossAttention | FeedForward | GatedFeedForward
    return [part.output.weight for part in layer.children() if isinstance(part, sublayers)]
