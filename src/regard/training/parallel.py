"""How a network and its batches are divided among processes: the layout `ddp`, and the interface of all layouts.

    ddp      every process has the whole network; gradients are averaged (DistributedDataParallel)
    fsdp     weights, gradients and optimizer state are divided too, and gathered block by block (FSDP2)
    tensor   the heads and hidden units of each block are divided (column- and row-parallel linear layers, DTensor)

`training.parallel` selects one. `regard.training.sharded` has the last two, whose imports take a while.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from regard.config import Config, DdpConfig
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
