"""Layouts in which each process has a part of the network: `fsdp`, `tensor`, and both.

`fsdp` with `tensor_size` combines both on a two-dimensional device mesh: the processes of a row share each block, and
the batches are divided among the rows.

A divided network has DTensors for parameters, of which each process holds a part. Fused projections, such as those of
queries, keys and values, are first split into one linear layer for each (`SplitLinear`), so that each process gets
whole heads. Parameters keep the name of the fused one, with `parts.0.` and so on; `canonical_name` removes that.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    parallelize_module,
)

from regard.config import Config, FsdpConfig, TensorConfig
from regard.errors import ConfigError
from regard.models.folder import assign_tensors, named_tensors
from regard.models.network import Network
from regard.nn import Block
from regard.nn.multihead import MultiHeadAttention
from regard.training.averaging import MovingAverage
from regard.training.checkpoint import Checkpoint, CheckpointSaver, flatten_parts
from regard.training.distributed import ProcessGroup, canonical_name, whole_tensor
from regard.training.parallel import Parallelism, Tensors, check_sharding, check_tensor_parallel
from regard.training.sharded_checkpoint import ShardedSaver, load_into, prepare_optimizer


class ShardedParallelism(Parallelism):
    """Each process has a part of the network: FSDP over `data`, tensor parallelism over `tensor`, or both."""

    sharded = True

    def __init__(self, process_group: ProcessGroup, *, fsdp: bool, tensor_size: int, cpu_offload: bool = False) -> None:
        super().__init__(process_group)
        world_size, device = process_group.world_size, process_group.device
        if world_size % tensor_size:
            raise ConfigError(
                f"training.parallel.tensor_size = {tensor_size} does not divide the number of processes, {world_size}: "
                "change it, or torchrun's --nproc-per-node."
            )
        if cpu_offload and device.type == "cpu":
            raise ConfigError("training.parallel.cpu_offload: the network is in main memory already; leave it out.")
        self.fsdp = fsdp
        self.tensor_size = tensor_size
        self.cpu_offload = cpu_offload
        shape = (world_size // tensor_size, tensor_size)
        self.mesh = init_device_mesh(device.type, shape, mesh_dim_names=("data", "tensor"))
        # DTensor warns of two collectives where one would do; both dimensions of the mesh need one
        logging.getLogger("torch.distributed.tensor._redistribute").setLevel(logging.ERROR)
        data = self.mesh["data"]
        self.data = ProcessGroup(data.get_local_rank(), data.size(), device, data.get_group())

    def check(self, config: Config) -> None:
        """Raise a ConfigError for what needs whole matrices, or heads and hidden units that cannot be divided."""
        check_sharding(config)
        if self.tensor_size > 1:
            check_tensor_parallel(config, self.tensor_size)

    def divide(self, network: Network, matmul_dtype: torch.dtype = torch.float32) -> None:
        """Divide the blocks of the network; `wrap` divides the rest."""
        blocks = [module for module in network.modules() if isinstance(module, Block)]
        if self.tensor_size > 1:
            for block in blocks:
                divide_heads(block, self.mesh["tensor"])
        if not self.fsdp:
            network.to(self.process_group.device)
            return
        if not _share_parameters(blocks):  # parameters that blocks share must be gathered for all of them at once
            for block in blocks:
                if matmul_dtype != torch.float32:  # gathers their weights in 16 bits; norms and the rest stay in 32
                    policy = MixedPrecisionPolicy(param_dtype=matmul_dtype, reduce_dtype=torch.float32)
                    self._shard([part for part in block.modules() if isinstance(part, nn.Linear)], policy)
                self._shard([block])

    def wrap(self, objective: nn.Module) -> nn.Module:
        """The objective, whose remaining parameters (embeddings, output projection) are divided as one unit."""
        if self.fsdp:
            self._shard([objective])
        return objective

    def _shard(self, modules: list[nn.Module], policy: MixedPrecisionPolicy | None = None) -> None:
        offload = CPUOffloadPolicy(pin_memory=True) if self.cpu_offload else OffloadPolicy()
        if modules:
            fully_shard(
                modules, mesh=self.mesh["data"], mp_policy=policy or MixedPrecisionPolicy(), offload_policy=offload
            )

    def saver(self, folder: Path, on_saved: Callable[[int, Path], None]) -> CheckpointSaver:
        """Every process writes its part, in the background."""
        return ShardedSaver(folder, self.process_group, on_saved)

    def restore(
        self,
        checkpoint: Checkpoint,
        network: nn.Module,
        optimizer: torch.optim.Optimizer,
        average: MovingAverage | None,
    ) -> None:
        """Read the parts that this process has."""
        parts = {"network": named_tensors(network), "average": average.tensors if average is not None else {}}
        load_into(checkpoint, flatten_parts(parts) | prepare_optimizer(optimizer, network, checkpoint))

    def full(self, tensors: Tensors) -> dict[str, Tensor]:
        """Gather all parts of each tensor, and fuse split projections."""
        parts: dict[str, list[Tensor]] = {}
        for name, tensor in tensors.items():
            parts.setdefault(canonical_name(name), []).append(whole_tensor(tensor.detach()))
        return {name: torch.cat(own) if len(own) > 1 else own[0] for name, own in parts.items()}

    @contextmanager
    def evaluation(self, network: Network, trained: Network, tensors: Tensors | None) -> Iterator[None]:
        """Give `network`, which has no storage otherwise, the whole weights for a while."""
        whole = self.full(named_tensors(trained) if tensors is None else tensors)
        assign_tensors(network, {name: tensor.to(self.process_group.device) for name, tensor in whole.items()})
        network.eval()
        try:
            yield
        finally:
            assign_tensors(network, {name: tensor.to("meta") for name, tensor in named_tensors(network).items()})


def build_fsdp(config: FsdpConfig, process_group: ProcessGroup) -> Parallelism:
    """Builder of `fsdp`; a single process has the whole network."""
    if process_group.world_size == 1:
        return Parallelism(process_group)
    return ShardedParallelism(process_group, fsdp=True, tensor_size=config.tensor_size, cpu_offload=config.cpu_offload)


def build_tensor(config: TensorConfig, process_group: ProcessGroup) -> Parallelism:
    """Builder of `tensor`; a single process has the whole network."""
    if process_group.world_size == 1:
        return Parallelism(process_group)
    return ShardedParallelism(process_group, fsdp=False, tensor_size=process_group.world_size)


# tensor parallelism


class SplitLinear(nn.Module):
    """A fused linear layer as one layer for each of its parts; the outputs are concatenated."""

    def __init__(self, fused: nn.Linear, sizes: Sequence[int]) -> None:
        super().__init__()
        weights = fused.weight.split(list(sizes))
        biases = [None] * len(sizes) if fused.bias is None else fused.bias.split(list(sizes))
        self.parts = nn.ModuleList(_linear(weight, bias) for weight, bias in zip(weights, biases, strict=True))

    def forward(self, x: Tensor) -> Tensor:
        """Concatenate the outputs."""
        return torch.cat([part(x) for part in self.parts], dim=-1)


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    linear = nn.Linear(weight.size(1), weight.size(0), bias=bias is not None, device="meta")
    linear.weight = nn.Parameter(weight.detach().clone())
    if bias is not None:
        linear.bias = nn.Parameter(bias.detach().clone())
    return linear


def divide_heads(block: Block, mesh: DeviceMesh) -> None:
    """Give each process of a one-dimensional mesh equally many heads and hidden units of a block."""
    for attention in block.modules():
        if isinstance(attention, MultiHeadAttention):
            attention.keep_heads(mesh.get_local_rank(), mesh.size(), partial(_sum_gradients, mesh.get_group()))
            _divide(attention, attention.fused_projections, mesh)
    if block.feed_forward is not None:
        for layer in getattr(block.feed_forward, "experts", [block.feed_forward]):
            _divide(layer, getattr(layer, "fused_projections", {}), mesh)


def _sum_gradients(group: torch.distributed.ProcessGroup, parameter: Tensor) -> Tensor:
    """Return a parameter whose gradients are summed over the processes of a group, each of which has other heads."""
    summed: Tensor = _SumGradients.apply(parameter, group)  # type: ignore[no-untyped-call]
    return summed


class _SumGradients(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: torch.distributed.ProcessGroup) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        gradient = gradient.clone(memory_format=torch.contiguous_format)
        torch.distributed.all_reduce(gradient, group=ctx.group)
        return gradient, None


def _divide(layer: nn.Module, fused: Mapping[str, Sequence[int]], mesh: DeviceMesh) -> None:
    """Divide the rows of all linear layers but `output`, whose columns are divided instead."""
    plan: dict[str, ParallelStyle] = {}
    for name, linear in list(layer.named_children()):
        if not isinstance(linear, nn.Linear):
            continue
        if name == "output":
            plan[name] = RowwiseParallel()
        elif name not in fused:
            plan[name] = ColwiseParallel()
        else:
            setattr(layer, name, SplitLinear(linear, fused[name]))
            # once for all parts, so that the gradients of the input are summed once
            plan[name] = PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Replicate())
            plan |= {f"{name}.parts.{number}": ColwiseParallel() for number in range(len(fused[name]))}
    parallelize_module(layer, mesh, plan)


def _share_parameters(blocks: Iterable[Block]) -> bool:
    owners = [{id(parameter) for parameter in block.parameters()} for block in blocks]
    return sum(map(len, owners)) > len(set().union(*owners))
