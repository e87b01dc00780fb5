"""Weights averaged over time: an exponential moving average at every step, or the mean of the last checkpoints."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from regard.models.weights import tensors_of
from regard.training.checkpoint import restore_network


class MovingAverage:
    """average ← decay · average + (1 − decay) · weights, after every step.

    In the first steps the decay is smaller, (1 + step) / (10 + step): the random first values are soon forgotten.
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.network = network
        self.decay = decay
        self.tensors = {name: tensor.clone() for name, tensor in tensors_of(network).items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the weights after a step."""
        decay = min(self.decay, (1 + step) / (10 + step))
        now = list(tensors_of(self.network).values())
        torch._foreach_lerp_(list(self.tensors.values()), now, 1 - decay)

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from a checkpoint's average."""
        for name, tensor in self.tensors.items():
            tensor.copy_(tensors[name])


def mean(several: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of each tensor, summed in double precision.

    >>> mean([{"w": torch.tensor([1.0])}, {"w": torch.tensor([2.0])}])
    {'w': tensor([1.5000])}
    """
    first = several[0]
    return {
        name: torch.stack([tensors[name].double() for tensors in several]).mean(0).to(tensor.dtype)
        for name, tensor in first.items()
    }


@contextmanager
def swapped(network: nn.Module, tensors: Mapping[str, Tensor] | None) -> Iterator[None]:
    """While it lasts, the network has other weights; None leaves it its own."""
    if tensors is None:
        yield
        return
    own = {name: tensor.clone() for name, tensor in tensors_of(network).items()}
    restore_network(network, tensors)
    try:
        yield
    finally:
        restore_network(network, own)
