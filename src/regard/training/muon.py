"""Muon (Jordan et al. 2024): momentum whose singular values are made about 1, for the matrices of Transformer layers.

With the gradient G of a matrix (m, n), a step is

    B ← μ B + (1 − μ) G,   O = orthogonalize((1 − μ) G + μ B),   W ← (1 − η λ) W − 0.2 √max(m, n) · η O.

With the singular value decomposition U S Vᵀ of its argument, O is about U Vᵀ. Its entries have a root mean square of
1/√max(m, n), and those of AdamW's updates about 0.2: the last factor makes both equal (Liu et al. 2025), so that both
use the same learning rate.

`torch.optim.Muon` computes the same, one matrix at a time and always in bfloat16. Here fused projections (queries, keys
and values) are orthogonalized one by one, matrices of equal shape together, and in the type of matrix products of the
run.

K matrices · m rows · n columns, m ≤ n
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

import torch
from torch import Tensor, nn

from regard.config import MuonConfig
from regard.nn import Block
from regard.training.distributed import canonical_name

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of X, of X Xᵀ X and of (X Xᵀ)² X; they grow small singular values fastest
ADAMW_RMS = 0.2  # root mean square of an update of AdamW, about
EPSILON = 1e-7  # at least the norm of what is orthogonalized
BATCH_ELEMENTS = 2**20  # of matrices that are orthogonalized together: they should fit the cache


def layer_matrices(network: nn.Module) -> dict[str, tuple[int, ...]]:
    """The matrices of the linear layers in Transformer blocks, by name, with the rows of each projection they fuse.

    >>> from regard import build, load_config
    >>> model = load_config("tiny", ["model.width=8", "model.heads=2", "model.layers=1", "model.feed_forward=16"]).model
    >>> sizes = layer_matrices(build(model))
    >>> sizes["decoder.layers.0.attention.query_key_value.weight"], sizes["decoder.layers.0.attention.output.weight"]
    ((8, 8, 8), (8,))
    """
    matrices: dict[str, tuple[int, ...]] = {}
    for prefix, block in network.named_modules():
        if not isinstance(block, Block):
            continue
        for path, module in block.named_modules(prefix=prefix):
            fused = getattr(module, "fused_projections", {})
            for name, child in module.named_children():
                if isinstance(child, nn.Linear):
                    rows = tuple(fused.get(name, [child.out_features]))
                    matrices[canonical_name(f"{path}.{name}.weight")] = rows
    return matrices


def build_muon(config: MuonConfig, parameter_groups: Sequence[dict[str, Any]]) -> torch.optim.Optimizer:
    """Builder of `muon`, for groups of matrices with `fused_sizes` and `matmul_dtype`."""
    return Muon(parameter_groups, momentum=config.momentum, iterations=config.iterations)


class Muon(torch.optim.Optimizer):
    """Muon for groups of parameters that are matrices.

    Each group has `fused_sizes`, the rows of the matrices that each of its parameters fuses, and `matmul_dtype`.
    """

    def __init__(
        self,
        parameter_groups: Sequence[dict[str, Any]],
        lr: float = 1e-3,
        weight_decay: float = 0.0,
        momentum: float = 0.95,
        iterations: int = 5,
    ) -> None:
        defaults = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "iterations": iterations}
        super().__init__(parameter_groups, defaults)

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Take one step."""
        if closure is not None:
            raise NotImplementedError("Muon takes a step from gradients, without a closure")
        for group in self.param_groups:
            self._step(group)
        return None

    def _step(self, group: Mapping[str, Any]) -> None:
        sizes, rate, momentum = list(group["fused_sizes"]), group["lr"], group["momentum"]
        matrices: dict[torch.Size, list[tuple[Tensor, Tensor]]] = {}  # weights and directions, by shape
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            state = self.state[parameter]
            if not state:
                state["momentum"] = torch.zeros_like(parameter)
            running: Tensor = state["momentum"].lerp_(parameter.grad, 1 - momentum)
            direction = parameter.grad.lerp(running, momentum)
            parameter.mul_(1 - rate * group["weight_decay"])
            for weight, part in zip(parameter.split(sizes), direction.split(sizes), strict=True):
                matrices.setdefault(part.shape, []).append((weight, part))
        for shape, members in matrices.items():
            at_once = max(1, BATCH_ELEMENTS // shape.numel())
            factor = ADAMW_RMS * math.sqrt(max(shape)) * rate
            for start in range(0, len(members), at_once):
                chunk = members[start : start + at_once]
                directions = torch.stack([part for _, part in chunk])
                updates = orthogonalize(directions, group["iterations"], group["matmul_dtype"])
                for (weight, _), update in zip(chunk, updates, strict=True):
                    weight.add_(update, alpha=-factor)


def orthogonalize(matrices: Tensor, iterations: int = 5, dtype: torch.dtype | None = None) -> Tensor:
    """U S' Vᵀ with S' between about 0.7 and 1.2, of matrices (K, …, …) = U S Vᵀ; products are computed in `dtype`.

    Newton-Schulz iterations: each applies the same odd polynomial to all singular values, X ← a X + b X Xᵀ X +
    c (X Xᵀ)² X, with the smaller of the two products of X and Xᵀ.
    """
    a, b, c = COEFFICIENTS
    x = matrices.mT if matrices.size(-2) > matrices.size(-1) else matrices  # (K, m, n)
    x = (x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=EPSILON)).to(dtype or x.dtype)  # singular values up to 1
    for _ in range(iterations):
        gram = torch.bmm(x, x.mT)  # (K, m, m)
        polynomial = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        x = torch.baddbmm(x, polynomial, x, beta=a)
    x = x.mT if matrices.size(-2) > matrices.size(-1) else x
    return x.to(matrices.dtype)
