"""Distributed training: the same command under `torchrun` splits each batch among its processes.

Only the settings determine the result; the number of processes determines the speed. Each process takes some of the
examples of every batch, and their gradients are summed.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from regard.devices import resolve_device
from regard.errors import RegardError, RunError
from regard.training.shutdown import OTHER_PROCESS_FAILED


@dataclass(frozen=True)
class ProcessGroup:
    """The rank of this process among all processes, and its device."""

    rank: int = 0
    world_size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes files and prints."""
        return self.rank == 0

    def wrap(self, objective: nn.Module) -> nn.Module:
        """The objective, with its gradients averaged over the processes."""
        return objective if self.world_size == 1 else DistributedDataParallel(objective)

    def sum(self, values: Tensor) -> Tensor:
        """The sum of the values of all processes."""
        if self.world_size > 1:
            distributed.all_reduce(values)
        return values

    def any(self, value: bool) -> bool:
        """Whether the value is true in any process."""
        if self.world_size == 1:
            return value  # without waiting for a GPU
        return bool(self.sum(torch.tensor(int(value), device=self.device)))

    def barrier(self) -> None:
        """Wait until all processes are here."""
        if self.world_size > 1:
            distributed.barrier()

    @contextmanager
    def fail_together(self) -> Iterator[None]:
        """Run the body in each process; if it fails in one of them, all stop.

        The first process raises the message of the process that failed. An error that is not a RegardError is raised in
        its own process.
        """
        if self.world_size == 1:
            yield
            return
        failure: Exception | None = None
        try:
            yield
        except Exception as error:
            failure = error
        failed = torch.tensor(self.world_size if failure is None else self.rank, device=self.device)
        distributed.all_reduce(failed, distributed.ReduceOp.MIN)
        if failed == self.world_size:
            return
        message = self._broadcast(int(failed), str(failure) if isinstance(failure, RegardError) else "")
        if failure is not None and (self.is_first or not isinstance(failure, RegardError)):
            raise failure
        if self.is_first:
            raise RunError(message or OTHER_PROCESS_FAILED)
        raise SystemExit(RegardError.exit_code)

    def _broadcast(self, rank: int, message: str) -> str:
        """The message of the process with this rank."""
        own = torch.tensor([*message.encode()], dtype=torch.uint8, device=self.device)
        length = torch.tensor(len(own), device=self.device)
        distributed.broadcast(length, rank)
        received = own if self.rank == rank else torch.zeros(int(length), dtype=torch.uint8, device=self.device)
        if int(length):
            distributed.broadcast(received, rank)
        return bytes(received.tolist()).decode()


SINGLE_PROCESS = ProcessGroup()


@contextmanager
def joined_process_group(device_name: str = "auto") -> Iterator[ProcessGroup]:
    """Join the other processes, if `torchrun` started several, and leave them at the end."""
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    device = resolve_device(device_name)
    cuda = device.type == "cuda"
    if world_size == 1:
        yield ProcessGroup(device=device)
        return
    distributed.init_process_group("nccl" if cuda else "gloo")
    try:
        yield ProcessGroup(distributed.get_rank(), world_size, device)
    finally:
        distributed.destroy_process_group()
