"""The load-balancing loss of a mixture of experts (Fedus et al. 2022), which keeps all experts in use.

For each layer it is E Σ_e f_e P_e, of the fractions f_e of the tokens that chose an expert and the means P_e of its
probability: 1 if all experts have equally many tokens, and E if one has them all. The gradient is that of P_e. The mean
over the layers, multiplied by `training.load_balancing`, is added to the loss of each target.

Fractions are those of a whole batch: with several processes their counts are added (Qiu et al. 2025), so that the loss
is that of a single process. With gradient accumulation each batch has its own.

L layers · E experts
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.nn.experts import MixtureOfExperts, Routing, RoutingLog, load_balancing_loss
from regard.training.distributed import ProcessGroup


class BalanceLoss(NamedTuple):
    """The load-balancing loss of a batch, multiplied by its number of targets; with several processes, a part of it."""

    weighted: Tensor  # what is added to the loss
    value: Tensor  # without the weight; detached


class LoadBalancing:
    """Records what the routers of a network do, and computes the loss of it."""

    def __init__(self, network: nn.Module, weight: float) -> None:
        self.weight = weight
        self._mixtures = [module for module in network.modules() if isinstance(module, MixtureOfExperts)]
        for mixture in self._mixtures:
            mixture.log = RoutingLog()

    @staticmethod
    def of(network: nn.Module, weight: float) -> "LoadBalancing | None":
        """Return the load balancing of a network; None if it has no experts."""
        has_experts = any(isinstance(module, MixtureOfExperts) for module in network.modules())
        return LoadBalancing(network, weight) if has_experts else None

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record the forward pass inside the context; a layer that is computed again later is not recorded."""
        logs = [mixture.log for mixture in self._mixtures if mixture.log is not None]
        for log in logs:
            log.entries.clear()
            log.is_open = True
        try:
            yield
        finally:
            for log in logs:
                log.is_open = False

    def loss(self, targets: int, process_group: ProcessGroup, *, counts: bool = True) -> BalanceLoss:
        """Return the loss of the recorded batch with this number of targets, and forget the record.

        The parts of all processes add up to the loss; `counts=False` if this one has rows of another process.
        """
        logs = [mixture.log for mixture in self._mixtures if mixture.log is not None and mixture.log.entries]
        if not logs:  # such as an encoder whose layers are frozen
            return BalanceLoss(*torch.zeros(2, device=process_group.device))
        routings = [_total(log) for log in logs]
        probabilities = torch.stack([routing.probabilities for routing in routings]) * float(counts)  # (L, E)
        choices = torch.stack([routing.choices for routing in routings])  # (L, E)
        tokens = torch.stack([routing.tokens for routing in routings])[:, None]  # (L, 1)
        sums = process_group.sum(torch.cat([choices, tokens], dim=1) * int(counts))
        value = targets * load_balancing_loss(probabilities, sums[:, :-1], sums[:, -1:]).mean()
        return BalanceLoss(self.weight * value, value.detach())


def _total(log: RoutingLog) -> Routing:
    """Return the sums of all passes of a layer, and clear its log."""
    passes = [(routing.probabilities, routing.choices, routing.tokens) for routing in log.entries]
    log.entries.clear()
    return Routing(*(torch.stack(parts).sum(0) for parts in zip(*passes, strict=True)))
