"""The environment of a run: versions, processor, and its peak matmul rate."""

import math
import os
import platform
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import nn

from regard.config import Config, TrainingConfig, TransformerConfig
from regard.errors import ConfigError
from regard.machine import processor_name
from regard.nn.transformer import Stack
from regard.training.distributed import SINGLE_PROCESS, ProcessGroup
from regard.version import __version__

BFLOAT16_WIDTH, BFLOAT16_SIZE = 64, 65_536  # least width, and width × tokens; benchmarks/precision.py


@dataclass(frozen=True)
class MatmulPeak:
    """The peak rate of matrix products in the dtype that training uses."""

    precision: str
    """The setting `training.precision`."""
    matmul_dtype: torch.dtype
    gflops: float
    reason: str = ""
    """Why `auto` or `bfloat16` became this dtype."""

    @property
    def dtype_name(self) -> str:
        """Name of the dtype, such as `bfloat16`."""
        return str(self.matmul_dtype).removeprefix("torch.")

    @property
    def note(self) -> str | None:
        """What the user has to know about a dtype that was chosen."""
        if self.precision == "auto":
            return f"training.precision = 'auto': training in {self.dtype_name} ({self.reason})."
        if self.precision == "bfloat16" and self.matmul_dtype == torch.float32:
            return "training.precision = 'bfloat16' is slower than float32 on this processor: training in float32."
        return None

    def facts(self) -> dict[str, Any]:
        """For run.json."""
        return {
            "precision": self.precision,
            "matmul_dtype": self.dtype_name,
            "matmul_gflops": round(self.gflops, 1),
        }


def small_for_bfloat16(config: Config) -> str | None:
    """Why bfloat16 would not be faster for a network whatever the processor, as the end of a message; or None.

    Conversions between both types take longer than small matrix products save.
    """
    model, tokens = config.model, config.training.batch_tokens
    if not isinstance(model, TransformerConfig):
        return "bfloat16 is tested with Transformers"
    if model.width < BFLOAT16_WIDTH:
        return f"model.width = {model.width} is below {BFLOAT16_WIDTH}"
    if model.width * tokens < BFLOAT16_SIZE:
        least = math.ceil(BFLOAT16_SIZE / model.width)
        return f"training.batch_tokens = {tokens} is below {least:,} for a network of width {model.width}"
    return None


def matmul_peak(
    precision: str,
    previous: Mapping[str, Any],
    process_group: ProcessGroup = SINGLE_PROCESS,
    small: str | None = None,
) -> MatmulPeak:
    """Measure the peak, and choose the dtype: bfloat16 only if it was set and is faster on this processor.

    `auto` is bfloat16 under the same condition, unless the network is too `small` (`small_for_bfloat16`), in which case
    nothing else is measured. float16 is an error except on CUDA GPUs: its range is small, and its kernels are theirs. A
    resumed run keeps its `previous` choice, and all processes make the same choice, so that the results do not depend
    on timing.
    """
    if precision == "float16":
        if process_group.device.type != "cuda":
            raise ConfigError(
                f"training.precision = 'float16' is for CUDA GPUs, but the device is {process_group.device.type}; use "
                "'bfloat16' or 'float32'."
            )
        return MatmulPeak(precision, torch.float16, matmul_gflops(process_group.device, torch.float16))
    float32 = MatmulPeak(precision, torch.float32, matmul_gflops(process_group.device, torch.float32))
    if precision == "float32":
        return float32
    if precision == "auto" and small is not None:
        return replace(float32, reason=small)
    bfloat16 = MatmulPeak(precision, torch.bfloat16, matmul_gflops(process_group.device, torch.bfloat16))
    faster = bfloat16.gflops > float32.gflops
    if previous.get("precision") == precision:
        faster = previous.get("matmul_dtype") == bfloat16.facts()["matmul_dtype"]
    if process_group.any(faster):
        rates = f"{bfloat16.gflops:,.0f} instead of {float32.gflops:,.0f} GFLOP/s in matrix products"
        return replace(bfloat16, reason=rates)
    return replace(float32, reason="bfloat16 is slower on this processor")


def matmul_gflops(device: torch.device, dtype: torch.dtype) -> float:
    """The best rate of large matrix products, in 10⁹ operations per second; measured once per process."""
    return _measure_gflops(device, dtype, torch.get_num_threads())


@cache
def _measure_gflops(device: torch.device, dtype: torch.dtype, threads: int, seconds: float = 0.5) -> float:
    size = 1024
    a, b = (torch.ones(size, size, device=device, dtype=dtype) for _ in range(2))
    out = a @ b
    best, end = 0.0, time.perf_counter() + seconds
    while best == 0.0 or time.perf_counter() < end:
        started = time.perf_counter()
        torch.mm(a, b, out=out)
        synchronize(device)
        best = max(best, 2 * size**3 / (time.perf_counter() - started) / 1e9)
    return best


def synchronize(device: torch.device) -> None:
    """Wait until a device has finished all submitted work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def configure_layers(network: nn.Module, training: TrainingConfig) -> None:
    """Let the Transformer blocks of a network be compiled or computed again in the backward pass, as set."""
    wanted = {"compile": training.compile, "gradient_checkpointing": training.gradient_checkpointing}
    stacks = [module for module in network.modules() if isinstance(module, Stack)]
    for name, is_set in wanted.items():
        if is_set and not stacks:
            raise ConfigError(f"training.{name} = true is for Transformers, and this network has no blocks; remove it.")
    if training.compile and not any(map(shutil.which, (os.environ.get("CXX", "g++"), "g++", "clang++", "cl"))):
        raise ConfigError(
            "training.compile = true needs a C++ compiler, and there is none; install g++, or remove the setting."
        )
    for stack in stacks:
        stack.gradient_checkpointing = training.gradient_checkpointing
        stack.compile_options = {} if training.compile else None


def environment(processes: int, device: torch.device | None = None) -> dict[str, Any]:
    """Versions and hardware, to interpret the times of a run or to repeat it."""
    accelerator = {} if device is None or device.type == "cpu" else {"device": _device_name(device)}
    return {
        "regard": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": processor_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "processes": processes,
        **accelerator,
    }


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "Apple GPU"
