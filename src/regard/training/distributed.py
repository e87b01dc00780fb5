"""One process or many: the same command under `torchrun` shares each batch among its process_group.

The settings alone decide what is computed; the number of processes only decides how fast. Each process takes its share
of every batch's examples, and their gradients are added up.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from regard.errors import RegardError, RunError
from regard.training.rank_zero import OTHER_PROCESS_FAILED


@dataclass(frozen=True)
class ProcessGroup:
    """Which of how many processes this is, and the device it computes on."""

    rank: int = 0
    world_size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes files and speaks."""
        return self.rank == 0

    def wrap(self, objective: nn.Module) -> nn.Module:
        """The objective, its gradients averaged over the processes as they are computed."""
        return objective if self.world_size == 1 else DistributedDataParallel(objective)

    def sum(self, values: Tensor) -> Tensor:
        """The sum of each process's values."""
        if self.world_size > 1:
            distributed.all_reduce(values)
        return values

    def any(self, value: bool) -> bool:
        """Whether any of the processes says so."""
        return bool(self.sum(torch.tensor(int(value), device=self.device)))

    def barrier(self) -> None:
        """Go on when all have come this far."""
        if self.world_size > 1:
            distributed.barrier()

    @contextmanager
    def fail_together(self) -> Iterator[None]:
        """While it lasts, each works for itself; then all go on, or if one has failed, all leave.

        The first process raises the sentence of whoever failed; what is no sentence is raised where it happened.
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
        sentence = self._told(int(failed), str(failure) if isinstance(failure, RegardError) else "")
        if failure is not None and (self.is_first or not isinstance(failure, RegardError)):
            raise failure
        if self.is_first:
            raise RunError(sentence or OTHER_PROCESS_FAILED)
        raise SystemExit(RegardError.exit_code)

    def _told(self, rank: int, sentence: str) -> str:
        """What one of the processes says."""
        said = torch.tensor([*sentence.encode()], dtype=torch.uint8, device=self.device)
        length = torch.tensor(len(said), device=self.device)
        distributed.broadcast(length, rank)
        heard = said if self.rank == rank else torch.zeros(int(length), dtype=torch.uint8, device=self.device)
        if int(length):
            distributed.broadcast(heard, rank)
        return bytes(heard.tolist()).decode()


SINGLE_PROCESS = ProcessGroup()


@contextmanager
def joined_process_group() -> Iterator[ProcessGroup]:
    """Join the other process_group, if `torchrun` started several, and leave them at the end."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if cuda else torch.device("cpu")
    if world == 1:
        yield ProcessGroup(device=device)
        return
    distributed.init_process_group("nccl" if cuda else "gloo")
    try:
        yield ProcessGroup(distributed.get_rank(), world, device)
    finally:
        distributed.destroy_process_group()
