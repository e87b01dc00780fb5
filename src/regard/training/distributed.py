"""Distributed training: the same command under `torchrun` divides the work among its processes.

Only the settings determine the result; the number of processes determines the speed. `regard.training.parallel` divides
the network and the batches; this module has the processes themselves.

Short exchanges, such as gradients, are collectives, which fail when a process does not answer in time
(`training.collective_timeout_minutes`). Work of unknown length, such as preparing data in the first process, ends with
messages in torch's key-value store instead (`exchange`): the others wait for them as long as it takes.
"""

import json
import os
import re
import socket
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count, islice
from typing import TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.distributed.distributed_c10d import PrefixStore, Store, _set_pg_timeout
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from regard.errors import RegardError, RunError
from regard.machine import resolve_device
from regard.training.shutdown import LostProcess, StopRequest, lost_process_message

T = TypeVar("T")
PART = re.compile(r"\.parts\.\d+(?=\.)")
POLL_SECONDS = 0.5  # at most, between two looks at the store
STOP_SECONDS = 20.0  # how long to wait for the others after a stop was requested; torchrun kills after 30
ANSWER_SECONDS = 5.0  # how long processes have to say that they still run, after a connection was lost


@dataclass(frozen=True)
class ProcessGroup:
    """The rank of this process among others, and its device.

    `group` are the processes that take part in collectives, all by default; `store` is the key-value store of all.
    """

    rank: int = 0
    world_size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    group: distributed.ProcessGroup | None = None
    store: Store | None = None
    stop: StopRequest = field(default_factory=StopRequest)  # set while others may have stopped too
    _numbers: "count[int]" = field(default_factory=count, repr=False)  # of exchanges so far

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes files and prints."""
        return self.rank == 0

    def sum(self, values: Tensor) -> Tensor:
        """The sum of the values of all processes."""
        if self.world_size > 1:
            distributed.all_reduce(values, group=self.group)
        return values

    def any(self, value: bool) -> bool:
        """Whether the value is true in any process."""
        if self.world_size == 1:
            return value  # without waiting for a GPU
        return bool(self.sum(torch.tensor(int(value), device=self.device)))

    def barrier(self) -> None:
        """Wait until all processes are here, however long that takes."""
        self.exchange("")

    def exchange(self, message: str) -> list[str]:
        """The messages of all processes, by rank; waits for the last of them, without a time limit.

        It ends with an error when one of them has failed, or does not answer for a while after a stop was requested.
        """
        if self.world_size == 1:
            return [message]
        assert self.store is not None
        number = next(self._numbers)
        if number >= 2:  # all have read the messages of the exchange before the last one
            self.store.delete_key(f"{number - 2}/{self.rank}")
        self.store.set(f"{number}/{self.rank}", message)
        keys = [f"{number}/{rank}" for rank in range(self.world_size)]
        seconds, waited_since_stop = 0.001, 0.0
        while not self.store.check(keys):
            time.sleep(seconds)
            waited_since_stop += seconds if self.stop.requested else 0.0
            if waited_since_stop > STOP_SECONDS or self._failed(number):
                raise distributed.DistNetworkError("a process that others wait for is gone")
            seconds = min(2 * seconds, POLL_SECONDS)
        return [self.store.get(key).decode() for key in keys]

    def _failed(self, number: int) -> bool:
        """Whether a process whose message of an exchange is missing has failed."""
        assert self.store is not None
        missing = [rank for rank in range(self.world_size) if not self.store.check([f"{number}/{rank}"])]
        return any(self.store.check([f"failed/{rank}"]) for rank in missing)

    # shares of a validation, see `regard.training.task.WorkShare`

    def own(self, items: Iterable[T]) -> Iterator[T]:
        """Every `world_size`-th item, from the one with the number of this process on."""
        return islice(items, self.rank, None, self.world_size)

    def total(self, values: Sequence[float]) -> list[float]:
        """The sums of the values of all processes, equal in all of them."""
        rows = [json.loads(message) for message in self.exchange(json.dumps(list(values)))]
        return [sum(column) for column in zip(*rows, strict=True)]

    def merge(self, results: Sequence[T]) -> list[T]:
        """The results of all processes for their `own` items, in the order of all items."""
        shares = [json.loads(message) for message in self.exchange(json.dumps(list(results)))]
        merged = [None] * sum(map(len, shares))
        for rank, share in enumerate(shares):
            merged[rank :: self.world_size] = share
        return merged  # type: ignore[return-value]

    # failures

    @contextmanager
    def fail_together(self) -> Iterator[None]:
        """Run the body in each process; if it fails in one of them, all stop.

        The first process raises the message of the process that failed. An error that is not a RegardError is raised in
        its own process. The processes wait for each other as long as it takes.
        """
        if self.world_size == 1:
            yield
            return
        failure: Exception | None = None
        try:
            yield
        except Exception as error:
            failure = error
        outcomes = [json.loads(outcome) for outcome in self.exchange(json.dumps(_outcome(failure)))]
        failed = next((rank for rank, outcome in enumerate(outcomes) if outcome is not None), None)
        if failed is None:
            return
        if failure is not None and (self.is_first or not isinstance(failure, RegardError)):
            raise failure
        if self.is_first:
            is_user_error, message = outcomes[failed]
            raise RunError(message if is_user_error else lost_process_message([self._describe(failed, message)]))
        raise SystemExit(RegardError.exit_code)

    def report_failure(self, error: BaseException) -> None:
        """Leave a message for the process that reports why all of them stop."""
        if self.store is not None:
            self.store.set(f"failed/{self.rank}", json.dumps(_outcome(error)))

    def lost_process(self) -> LostProcess:
        """After a connection was lost: what is known, and whether this process should report it.

        Each process that still runs says so in the store; the others are lost. The first that runs reports, unless
        rank 0 has failed with an error, which it prints itself.
        """
        if self.store is None:
            return LostProcess(lost_process_message([]), True)
        try:
            self.store.set(f"running/{self.rank}", "")
            missing, end = list(range(self.world_size)), time.monotonic() + ANSWER_SECONDS
            while missing and time.monotonic() < end:
                missing = [rank for rank in missing if not self.store.check([f"running/{rank}"])]
                known = missing if self.is_first else [0]
                if any(self.store.check([f"failed/{rank}"]) for rank in known):
                    break  # it is known what happened
                time.sleep(0.05)
            failed = [rank for rank in missing if self.store.check([f"failed/{rank}"])]
            outcomes = {rank: json.loads(self.store.get(f"failed/{rank}")) for rank in failed}
            running = [rank for rank in range(self.world_size) if rank not in missing]
            by_user = [message for is_user_error, message in outcomes.values() if is_user_error]
            lost = [self._describe(rank, outcomes.get(rank, (False, ""))[1]) for rank in failed or missing]
        except RuntimeError:  # the store is gone too, with torchrun
            return LostProcess(lost_process_message([]), self.is_first)
        report = self.rank == min(running) and 0 not in failed
        return LostProcess(by_user[0] if by_user else lost_process_message(lost), report)

    def _describe(self, rank: int, message: str = "") -> str:
        assert self.store is not None
        process = f"rank {rank} ({self.store.get(f'process/{rank}').decode()})"
        return f"{process} failed with {message}" if message else f"{process} ended without a message"


def _outcome(error: BaseException | None) -> tuple[bool, str] | None:
    """Whether an error is one that a user can cause, and its message."""
    if error is None:
        return None
    return (True, str(error)) if isinstance(error, RegardError) else (False, f"{type(error).__name__}: {error}")


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
    if cuda:
        torch.cuda.set_device(device)
    store, rank, _ = next(rendezvous("env://"))
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")  # torchrun may keep the store when it restarts
    torch_store, own_store = (PrefixStore(f"{name}/{attempt}", store) for name in ("torch", "regard"))
    backend = "cpu:gloo,cuda:nccl" if cuda else "gloo"
    distributed.init_process_group(backend, store=torch_store, rank=rank, world_size=world_size)
    own_store.set(f"process/{rank}", f"PID {os.getpid()} on {socket.gethostname()}")
    try:
        yield ProcessGroup(rank, world_size, device, store=own_store)
    finally:
        distributed.destroy_process_group()


def set_collective_timeout(process_group: ProcessGroup, minutes: float) -> None:
    """Let collectives fail when a process does not answer for some minutes."""
    if process_group.world_size > 1:
        _set_pg_timeout(timedelta(minutes=minutes), process_group.group or distributed.group.WORLD)


# parameters that are divided among processes are DTensors, see `regard.training.sharded`; importing those takes a while


def canonical_name(name: str) -> str:
    """The name of a parameter in model folders, where projections are fused.

    >>> canonical_name("decoder.layers.0.attention.query_key_value.parts.2.weight")
    'decoder.layers.0.attention.query_key_value.weight'
    """
    return PART.sub("", name)


def local_part(tensor: Tensor) -> Tensor:
    """The part of a tensor that this process holds."""
    return tensor if mesh_of(tensor) is None else tensor.to_local()  # type: ignore[attr-defined]


def whole_tensor(tensor: Tensor) -> Tensor:
    """All parts of a tensor, on every process; every process must call this."""
    return tensor if mesh_of(tensor) is None else tensor.full_tensor()  # type: ignore[attr-defined]


def by_mesh(parameters: Iterable[Tensor]) -> list[list[Tensor]]:
    """Parameters that are divided in the same way: torch's functions for lists take no others together."""
    groups: dict[Hashable, list[Tensor]] = {}
    for parameter in parameters:
        groups.setdefault(mesh_of(parameter), []).append(parameter)
    return list(groups.values())


def mesh_of(tensor: Tensor) -> Hashable:
    """The device mesh that a tensor is divided among; None if every process has all of it."""
    mesh: Hashable = getattr(tensor, "device_mesh", None)
    return mesh


def gradient_norm(parameters: Sequence[Tensor]) -> Tensor:
    """The norm of the gradients of all parameters, over all of their parts."""
    gradients = [[p.grad for p in group if p.grad is not None] for group in by_mesh(parameters) or [[]]]
    whole = [whole_tensor(torch.nn.utils.get_total_norm(group)) for group in gradients]
    return whole[0] if len(whole) == 1 else torch.linalg.vector_norm(torch.stack(whole))


def clip_gradients(parameters: Sequence[Tensor], max_norm: float, norm: Tensor) -> None:
    """Scale all gradients, whose norm is given, to a norm of at most `max_norm`."""
    for group in by_mesh(parameters):
        torch.nn.utils.clip_grads_with_norm_(group, max_norm, norm)


@contextmanager
def no_sync(objective: nn.Module) -> Iterator[None]:
    """Do not exchange gradients between processes: that happens once per update."""
    set_sync: Callable[[bool], None] | None = getattr(objective, "set_requires_gradient_sync", None)  # of FSDP
    if set_sync is not None:
        set_sync(False)
        try:
            yield
        finally:
            set_sync(True)
        return
    with objective.no_sync() if isinstance(objective, DistributedDataParallel) else nullcontext():
        yield
