"""Objectives: what a network is trained to do, as a module from a batch to its loss.

An objective is a module so that DistributedDataParallel can wrap it. It asks for logits only where there is a target:
the projection to the vocabulary is the largest matrix of all, and pads have no use for it.

B examples · S source length · T target length · N real targets
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Generic, Self, TypeVar

import torch
from torch import Tensor, nn

from regard.models.network import DecoderNetwork, EncoderDecoderNetwork, Network
from regard.training.losses import Loss, rdrop_cross_entropy, smoothed_cross_entropy
from regard.training.losses_fused import fused_cross_entropy, fused_rdrop_cross_entropy


@dataclass(frozen=True)
class Batch:
    """What an objective is given: examples, one a row, in tensors or tables of tensors by name; None where absent."""

    @property
    def examples(self) -> int:
        """How many rows it has."""
        raise NotImplementedError

    @property
    def targets(self) -> int:
        """How many predictions the loss is summed over."""
        raise NotImplementedError

    def shard(self, rank: int, world: int) -> Self:
        """Every `world`-th example, from the `rank`-th on: one process's share."""
        return self if world == 1 else self._map(lambda tensor: tensor[rank::world])

    def repeated(self) -> Self:
        """All examples, and then all of them again."""
        return self._map(lambda tensor: torch.cat([tensor, tensor]))

    def to(self, device: torch.device) -> Self:
        """The same on another device."""
        return self._map(lambda tensor: tensor.to(device))

    def _map(self, change: Callable[[Tensor], Tensor]) -> Self:
        def changed(value: Tensor | Mapping[str, Tensor] | None) -> Any:
            if isinstance(value, Mapping):
                return {name: change(tensor) for name, tensor in value.items()}
            return None if value is None else change(value)

        return type(self)(**{field.name: changed(getattr(self, field.name)) for field in fields(self)})


@dataclass(frozen=True)
class TokenBatch(Batch):
    """Texts whose next tokens are to be predicted, and where the real tokens are; None: everywhere."""

    target: Tensor  # (B, T) what the decoder reads
    labels: Tensor  # (B, T) the token that follows each
    target_mask: Tensor | None = None
    source: Tensor | None = None  # (B, S), for networks that encode
    source_mask: Tensor | None = None
    features: Mapping[str, Tensor] | None = None  # (B, T) about the target
    source_features: Mapping[str, Tensor] | None = None  # (B, S) about the source

    @property
    def examples(self) -> int:
        """How many texts, or pairs of them."""
        return len(self.target)

    @property
    def targets(self) -> int:
        """How many tokens are to be predicted."""
        return int(self.labels.numel() if self.target_mask is None else self.target_mask.sum())


Trained = TypeVar("Trained", bound=Network)


class Objective(nn.Module, Generic[Trained]):
    """What a network is trained to do: predict targets from the states that it makes of a batch.

    N predictions · C model width · V vocabulary
    """

    network: Trained
    label_smoothing: float

    @abstractmethod
    def states(self, batch: Any) -> tuple[Tensor, Tensor]:
        """What the network predicts from (N, C), and what it should predict (N,)."""

    def forward(self, batch: Any) -> Loss:
        """The loss of a batch, summed over its targets."""
        return self.loss(*self.states(batch))

    def loss(self, states: Tensor, targets: Tensor) -> Loss:
        """The loss of predictions from these states."""
        return smoothed_cross_entropy(self._logits(states), targets.flatten(), self.label_smoothing)

    def rdrop_loss(self, first: Tensor, second: Tensor, targets: Tensor, weight: float) -> Loss:
        """The loss of two readings, of which agreement is asked by this weight."""
        logits = self._logits(first), self._logits(second)
        return rdrop_cross_entropy(*logits, targets.flatten(), self.label_smoothing, weight)

    def _logits(self, states: Tensor) -> Tensor:
        return self.network.logits(states).flatten(0, -2)


class NextToken(Objective[DecoderNetwork | EncoderDecoderNetwork]):
    """Predict each token of the target from those before it, and from the source if there is one.

    With a source it is translation, without one language modelling.
    """

    def __init__(self, network: Network, label_smoothing: float) -> None:
        super().__init__()
        assert isinstance(network, DecoderNetwork | EncoderDecoderNetwork)
        self.network = network
        self.label_smoothing = label_smoothing

    def states(self, batch: TokenBatch) -> tuple[Tensor, Tensor]:
        """The decoder's state at each real token (N, C), and the tokens that follow (N,)."""
        memory = None
        if batch.source is not None:
            memory = self.network.encode(batch.source, batch.source_mask, batch.source_features)
        hidden = self.network.decode(batch.target, memory, mask=batch.target_mask, features=batch.features)  # (B, T, C)
        hidden, predicted = hidden.flatten(0, 1), batch.labels.flatten()
        if batch.target_mask is not None:
            wanted = batch.target_mask.flatten().nonzero().squeeze(1)
            hidden, predicted = hidden.index_select(0, wanted), predicted.index_select(0, wanted)
        return hidden, predicted

    def loss(self, states: Tensor, targets: Tensor) -> Loss:
        """The loss of predictions from these states."""
        return fused_cross_entropy(states, self.network.output, targets, self.label_smoothing)

    def rdrop_loss(self, first: Tensor, second: Tensor, targets: Tensor, weight: float) -> Loss:
        """The loss of two readings, of which agreement is asked by this weight."""
        return fused_rdrop_cross_entropy(first, second, self.network.output, targets, self.label_smoothing, weight)


class RDrop(nn.Module):
    """An objective that reads each batch twice, with other dropout, and asks that both predict the same."""

    def __init__(self, objective: Objective[Any], weight: float) -> None:
        super().__init__()
        self.objective = objective
        self.weight = weight

    def forward(self, batch: Batch) -> Loss:
        """The loss of a batch, summed over its targets."""
        states, targets = self.objective.states(batch.repeated())
        half = len(targets) // 2
        return self.objective.rdrop_loss(states[:half], states[half:], targets[:half], self.weight)
