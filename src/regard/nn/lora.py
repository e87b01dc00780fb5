"""Low-rank adaptation, LoRA (Hu et al. 2022): a frozen linear layer plus the product of two small trained matrices.

    LoRA(x) = W x + b + α/r · B A x        A (r, C), B (N, r)

A is initialized at random and B with zeros, so that training begins at the frozen layer. Dropout applies to the x of
A x. A layer that fuses several projections, such as queries, keys and values, has one A for all of them.

C input width · N output width · r rank
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.nn.functional import Dropout


class LoRALinear(nn.Linear):
    """A linear layer with the weight and bias of another one, and a low-rank product that is added to it."""

    def __init__(self, linear: nn.Linear, rank: int, alpha: float, dropout: float = 0.0) -> None:
        nn.Module.__init__(self)  # not that of nn.Linear, which would make weights of its own
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight = linear.weight
        self.register_parameter("bias", linear.bias)
        self.lora_a = nn.Parameter(linear.weight.new_empty(rank, self.in_features))
        self.lora_b = nn.Parameter(linear.weight.new_zeros(self.out_features, rank))
        nn.init.kaiming_uniform_(self.lora_a, a=math.sqrt(5))  # as the layer itself in PyTorch: uniform in ±1/√C
        self.scale = alpha / rank
        self.dropout = Dropout(dropout)
        self.enabled = True
        self.train(linear.training)

    def forward(self, x: Tensor) -> Tensor:
        """(…, C) -> (…, N)"""
        out = F.linear(x, self.weight, self.bias)
        return out + self.low_rank(self.dropout(x)) if self.enabled else out

    def low_rank(self, x: Tensor) -> Tensor:
        """Return α/r · B A x: (…, C) -> (…, N)."""
        return F.linear(F.linear(x, self.lora_a) * self.scale, self.lora_b)

    @property
    def merged_weight(self) -> Tensor:
        """W + α/r · B A, or W while the adapter is switched off."""
        return merged_weight(self.weight, self.lora_a, self.lora_b, self.scale) if self.enabled else self.weight


def merged_weight(weight: Tensor, lora_a: Tensor, lora_b: Tensor, scale: float) -> Tensor:
    """Return W + scale · B A, computed in at least float32 and rounded once to the type of W."""
    dtype = torch.promote_types(weight.dtype, torch.float32)
    return (weight.to(dtype) + scale * (lora_b.to(dtype) @ lora_a.to(dtype))).to(weight.dtype)


def linear_weight(linear: nn.Linear) -> Tensor:
    """Return the matrix that a linear layer computes with."""
    return linear.merged_weight if isinstance(linear, LoRALinear) else linear.weight


def linear_layers(network: nn.Module, accepts: Callable[[str], bool] = lambda name: True) -> list[str]:
    """Return the names of the linear layers that LoRA can adapt, in the order of the network."""
    return [name for name, module in network.named_modules() if type(module) is nn.Linear and accepts(name)]


def add_lora(network: nn.Module, names: Sequence[str], rank: int, alpha: float, dropout: float = 0.0) -> None:
    """Replace linear layers by `LoRALinear` layers with the same parameters."""
    for name in names:
        parent, _, child = name.rpartition(".")
        linear = network.get_submodule(name)
        assert isinstance(linear, nn.Linear)
        setattr(network.get_submodule(parent), child, LoRALinear(linear, rank, alpha, dropout))


def merge_lora(network: nn.Module) -> None:
    """Replace `LoRALinear` layers by linear layers with the sum of both matrices."""
    for name, module in list(network.named_modules()):
        if isinstance(module, LoRALinear):
            parent, _, child = name.rpartition(".")
            linear = nn.Linear(module.in_features, module.out_features, module.bias is not None, device="meta")
            linear.weight = nn.Parameter(module.merged_weight.detach())
            linear.bias = module.bias
            setattr(network.get_submodule(parent), child, linear.train(module.training))


@contextmanager
def lora_disabled(network: nn.Module) -> Iterator[None]:
    """Switch the adapter of a network off for a while: it computes what its base model computes."""
    layers = [module for module in network.modules() if isinstance(module, LoRALinear)]
    before = [layer.enabled for layer in layers]
    try:
        for layer in layers:
            layer.enabled = False
        yield
    finally:
        for layer, enabled in zip(layers, before, strict=True):
            layer.enabled = enabled
