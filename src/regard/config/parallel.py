"""Settings of distributed training: how the network and the batches are divided among processes."""

from typing import ClassVar, Literal

from regard.config.base import Size, VariantConfig
from regard.registry import Registry


class ParallelConfig(VariantConfig):
    """How the network and the batches are divided among the processes that `torchrun` started.

    The builder is called as `build(config, process_group)` and returns a `regard.training.parallel.Parallelism`.
    """

    default_kind: ClassVar[str] = "ddp"


PARALLEL: Registry[type[ParallelConfig]] = Registry("parallel")
ParallelConfig.registry = PARALLEL


@PARALLEL.register("ddp")
class DdpConfig(ParallelConfig):
    """Each process has the whole network and a part of each batch (DistributedDataParallel)."""

    builder: ClassVar = "regard.training.parallel:build_ddp"
    kind: Literal["ddp"] = "ddp"
    """Name of the layout."""


@PARALLEL.register("fsdp")
class FsdpConfig(ParallelConfig):
    """Weights, gradients and optimizer state are divided among the processes too (FSDP2, `fully_shard`)."""

    builder: ClassVar = "regard.training.sharded:build_fsdp"
    kind: Literal["fsdp"] = "fsdp"
    """Name of the layout."""
    tensor_size: Size = 1
    """Processes that share the heads and hidden units of each layer; the batches are divided among groups of them."""
    cpu_offload: bool = False
    """Whether weights, gradients and optimizer state are kept in main memory and copied to the GPU layer by layer."""


@PARALLEL.register("tensor")
class TensorConfig(ParallelConfig):
    """All processes share the heads and hidden units of each layer, and have the same batch (tensor parallelism)."""

    builder: ClassVar = "regard.training.sharded:build_tensor"
    kind: Literal["tensor"] = "tensor"
    """Name of the layout."""
