"""One update of the weights: the gradients of some batches added up, checked, clipped, and followed.

The loss is a sum over targets, divided by the number of targets in the whole update. So several small batches, or
several processes with a share each, give the gradient of one large batch.
"""

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from regard.config import AdamConfig, AdamWConfig, OptimizerConfig
from regard.nn.functional import autocast
from regard.training.distributed import SINGLE_PROCESS, ProcessGroup
from regard.training.objectives import Batch


@dataclass(frozen=True)
class UpdateResult:
    """What an update has seen."""

    loss: float  # the loss that was minimised, summed over the targets
    cross_entropy: float  # the negative log-likelihood in nats, summed over the targets
    targets: int
    grad_norm: float


class DivergedError(Exception):
    """The loss or its gradient is not a number, or past all bounds; the weights are as they were before."""


def build_optimizer(network: nn.Module, settings: OptimizerConfig) -> torch.optim.Optimizer:
    """The optimiser that the settings describe; weight decay is for matrices, not for biases and norms."""
    parameters = list(network.parameters())
    if isinstance(settings, AdamConfig):
        betas = (settings.beta1, settings.beta2)
        return torch.optim.Adam(parameters, betas=betas, eps=settings.epsilon, fused=True)
    if not isinstance(settings, AdamWConfig):
        optimizer: torch.optim.Optimizer = settings.load_builder()(settings, [{"params": parameters}])
        return optimizer
    betas = (settings.beta1, settings.beta2)
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": settings.weight_decay},
        {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, betas=betas, eps=settings.epsilon, fused=True)


def update(
    objective: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Sequence[Batch],
    learning_rate: float,
    *,
    max_grad_norm: float = 0.0,
    max_loss: float = math.inf,
    matmul_dtype: torch.dtype = torch.float32,
    process_group: ProcessGroup = SINGLE_PROCESS,
) -> UpdateResult:
    """Take one step on these batches at this learning rate; a loss per target above `bound` counts as diverged.

    Matrix products are taken in the type `products`; weights, their updates and losses keep that of the weights.
    """
    optimizer.zero_grad(set_to_none=True)
    targets = sum(batch.targets for batch in batches)
    sums = torch.zeros(2, dtype=torch.float64, device=process_group.device)
    for number, batch in enumerate(batches, start=1):
        share = batch.shard(process_group.rank, process_group.world_size)
        weight = process_group.world_size / targets  # the processes' gradients are averaged, and should be added
        if share.examples == 0:  # fewer examples than process_group: take part without weight
            share, weight = batch.shard(0, process_group.world_size), 0.0
        with _apart(objective) if number < len(batches) else nullcontext():
            with autocast(matmul_dtype, process_group.device):
                loss = objective(share.to(process_group.device))
            (loss.loss * weight).backward()
        if weight:
            sums += torch.stack([loss.loss.detach(), loss.cross_entropy]).double()
    smoothed, plain = process_group.sum(sums).tolist()
    parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    norm = torch.nn.utils.get_total_norm([p.grad for p in parameters])
    # the norm is asked too: some kernels hide a NaN from the loss, none from every gradient
    if not math.isfinite(norm) or not smoothed / targets < max_loss:
        raise DivergedError(f"the loss is {smoothed / targets:.4g} and the gradient's norm {norm:.4g}")
    if max_grad_norm:
        torch.nn.utils.clip_grads_with_norm_(parameters, max_grad_norm, norm)
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
    optimizer.step()
    return UpdateResult(smoothed, plain, targets, float(norm))


def _apart(objective: nn.Module):  # type: ignore[no-untyped-def]  # a context manager of torch's own
    """While it lasts, processes keep their gradients to themselves: they are exchanged once an update."""
    return objective.no_sync() if isinstance(objective, DistributedDataParallel) else nullcontext()
