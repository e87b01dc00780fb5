"""How a network and its batches are divided among processes: the layout `ddp`, and the interface of all layouts.

    ddp      every process has the whole network; gradients are averaged (DistributedDataParallel)
    fsdp     weights, gradients and optimizer state are divided too, and gathered block by block (FSDP2)
    tensor   the heads and hidden units of each block are divided (column- and row-parallel linear layers, DTensor)

`training.parallel` selects one. `regard.training.sharded` has the last two, whose imports take a while; what they
cannot divide is here, because the planner leaves it out too.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from regard.config import (
    ATTENTION,
    POSITIONS,
    Config,
    DdpConfig,
    ModelConfig,
    RelativePositionsConfig,
    TransformerConfig,
)
from regard.errors import ConfigError
from regard.models.network import Network
from regard.training.averaging import MovingAverage, swapped_weights
from regard.training.checkpoint import Checkpoint, CheckpointSaver, restore_network, restore_optimizer
from regard.training.distributed import ProcessGroup

Tensors = Mapping[str, Tensor]


class Parallelism:
    """Every process has the whole network, and a part of each batch; also the layout of a single process."""

    sharded = False  # whether each process has only a part of the network

    def __init__(self, process_group: ProcessGroup) -> None:
        self.process_group = process_group
        self.data = process_group
        """The processes among which each batch is divided, and the rank of this one among them."""

    def check(self, config: Config) -> None:
        """Raise a ConfigError for settings that cannot be combined."""

    def divide(self, network: Network, matmul_dtype: torch.dtype = torch.float32) -> None:
        """Move the network to the device of this process; a sharded layout keeps a part of it only."""
        network.to(self.process_group.device)

    def wrap(self, objective: nn.Module) -> nn.Module:
        """The objective, with its gradients averaged over the processes that divide the batches."""
        if self.data.world_size == 1:
            return objective
        device = self.process_group.device
        return DistributedDataParallel(objective, device_ids=[device] if device.type == "cuda" else None)

    def saver(self, folder: Path, on_saved: Callable[[int, Path], None]) -> CheckpointSaver:
        """What saves checkpoints of this layout to a folder; `on_saved` is called when one is on disk."""
        return CheckpointSaver(folder, self.process_group, on_saved)

    def restore(
        self,
        checkpoint: Checkpoint,
        network: nn.Module,
        optimizer: torch.optim.Optimizer,
        average: MovingAverage | None,
    ) -> None:
        """Continue from a checkpoint of any layout."""
        restore_network(network, checkpoint.part("network"))
        restore_optimizer(optimizer, network, checkpoint.part("optimizer"))
        if average is not None:
            average.restore(checkpoint.part("average"))

    def full(self, tensors: Tensors) -> dict[str, Tensor]:
        """Whole tensors, by their names in model folders; every process must call this."""
        return dict(tensors)

    def evaluation(self, network: Network, trained: Network, tensors: Tensors | None) -> AbstractContextManager[None]:
        """Give `network` the weights of the trained one, or other tensors of the same layout, for a while."""
        return swapped_weights(network, tensors)


def build_ddp(config: DdpConfig, process_group: ProcessGroup) -> Parallelism:
    """Builder of `ddp`."""
    return Parallelism(process_group)


# --- what cannot be divided -------------------------------------------------------------------------------------------


class Obstacle(NamedTuple):
    """Why a layout is impossible with some settings, and what to do."""

    reason: str
    remedy: str


def sharding_obstacle(config: Config) -> Obstacle | None:
    """Return what is impossible where each process has a part of the network: `fsdp` and `tensor`.

    With float16 each process would scale its loss by the overflows of its own gradients.
    """
    training = config.training
    if training.precision == "float16":
        reason = "training.precision = 'float16' would scale the loss of each process on its own"
        return Obstacle(reason, "use 'bfloat16', or training.parallel = 'ddp'")
    if training.lora.rank:
        return Obstacle(
            f"training.lora.rank = {training.lora.rank} needs the whole one", "use training.parallel = 'ddp'"
        )
    for optimizer in (training.optimizer, *(group.optimizer for group in training.parameter_groups.values())):
        if optimizer is not None and optimizer.whole_matrices:
            reason = f"training.optimizer = {optimizer.kind!r} needs whole matrices"
            return Obstacle(reason, "use training.parallel = 'ddp', or 'adamw'")
    return None


def tensor_obstacle(model: ModelConfig, size: int, members: str = "processes") -> Obstacle | None:
    """Return why the heads and hidden units of a network cannot be divided among `size` processes."""
    without = "training.parallel = 'fsdp' without tensor_size"
    if not isinstance(model, TransformerConfig):
        reason = f"{size} {members} cannot share the layers of model.kind = {model.kind!r}"
        return Obstacle(reason, "use training.parallel = 'fsdp' or 'ddp'")
    cannot_share = f"{size} {members} cannot share heads with"
    for name, value, registry in (
        ("positions", model.positions, POSITIONS),
        ("attention", model.attention, ATTENTION),
    ):
        if not value.divides_heads:
            others = ", ".join(kind for kind, config in registry.items() if config.divides_heads)
            return Obstacle(f"{cannot_share} model.{name} = {value.kind!r}", f"use {others}, or {without}")
    if model.qk_norm:
        return Obstacle(f"{cannot_share} model.qk_norm = true", f"use {without}")
    if isinstance(model.positions, RelativePositionsConfig) and model.positions.per_head:
        reason = f"{cannot_share} model.positions.per_head = true"
        return Obstacle(reason, f"set it to false, or use {without}")
    sizes = {"heads": model.heads, "kv_heads": model.kv_heads or model.heads, "feed_forward": model.feed_forward}
    for name, number in sizes.items():
        if number % size:
            reason = f"{size} {members} cannot share model.{name} = {number:,} equally"
            return Obstacle(reason, "choose numbers of which one divides the other")
    return None


def check_sharding(config: Config) -> None:
    """Raise a ConfigError if each process cannot have a part of the network."""
    obstacle = sharding_obstacle(config)
    if obstacle is not None:
        kind = config.training.parallel.kind
        raise ConfigError(
            f"training.parallel = {kind!r}: each process has a part of the network, but {obstacle.reason}; "
            f"{obstacle.remedy}."
        )


def check_tensor_parallel(config: Config, size: int) -> None:
    """Raise a ConfigError if the network cannot be divided among `size` processes by heads and hidden units."""
    obstacle = tensor_obstacle(config.model, size)
    if obstacle is not None:
        raise ConfigError(f"training.parallel: {obstacle.reason}; {obstacle.remedy}.")
