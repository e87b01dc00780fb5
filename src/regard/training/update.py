"""One optimizer step: accumulate the gradients of some batches, check, clip and apply them.

The loss is a sum over targets, divided by the number of targets in the whole update. So several small batches, or
several processes with a part of each batch, give the gradient of one large batch.
"""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from regard.nn.functional import autocast
from regard.training.distributed import SINGLE_PROCESS, ProcessGroup
from regard.training.objectives import Batch


@dataclass(frozen=True)
class UpdateResult:
    """Sums over the targets of an update, and the norm of its gradient."""

    loss: float  # what was minimized
    cross_entropy: float  # negative log-likelihood in nats
    targets: int
    grad_norm: float  # before clipping


class DivergedError(Exception):
    """The loss or its gradient is not finite, or the loss is too large; the weights were not changed."""


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
    """Take one optimizer step on these batches; a loss per target above `max_loss` raises DivergedError.

    Matrix products are computed in `matmul_dtype`; weights, updates and losses keep the dtype of the weights.
    """
    optimizer.zero_grad(set_to_none=True)
    targets = sum(batch.targets for batch in batches)
    sums = torch.zeros(2, dtype=torch.float64, device=process_group.device)
    for number, batch in enumerate(batches, start=1):
        shard = batch.shard(process_group.rank, process_group.world_size)
        weight = process_group.world_size / targets  # gradients are averaged over processes, and should be summed
        if shard.examples == 0:  # fewer examples than processes: take part with weight 0
            shard, weight = batch.shard(0, process_group.world_size), 0.0
        with _no_sync(objective) if number < len(batches) else nullcontext():
            with autocast(matmul_dtype, process_group.device):
                loss = objective(shard.to(process_group.device))
            (loss.loss * weight).backward()
        if weight:
            sums += torch.stack([loss.loss.detach(), loss.cross_entropy]).double()
    total_loss, cross_entropy = process_group.sum(sums).tolist()
    parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    norm = torch.nn.utils.get_total_norm([p.grad for p in parameters])
    # Some kernels hide a NaN from the loss, but none from every gradient: check the norm too.
    if not math.isfinite(norm) or not total_loss / targets < max_loss:
        raise DivergedError(f"the loss is {total_loss / targets:.4g} and the gradient norm {norm:.4g}")
    if max_grad_norm:
        torch.nn.utils.clip_grads_with_norm_(parameters, max_grad_norm, norm)
    for group in optimizer.param_groups:
        group["lr"] = learning_rate * group.get("lr_multiplier", 1.0)
    optimizer.step()
    return UpdateResult(total_loss, cross_entropy, targets, float(norm))


def _no_sync(objective: nn.Module) -> AbstractContextManager[None]:
    """Do not exchange gradients between processes: that happens once per update."""
    context: AbstractContextManager[None] = nullcontext()
    if isinstance(objective, DistributedDataParallel):
        context = objective.no_sync()
    return context
