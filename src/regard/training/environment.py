"""The environment of a run: versions, processor, and its peak matmul rate."""

import os
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from regard.machine import processor_name
from regard.training.distributed import SINGLE_PROCESS, ProcessGroup
from regard.version import __version__


@dataclass(frozen=True)
class MatmulPeak:
    """The peak rate of matrix products in the dtype that training uses."""

    precision: str
    """The setting `training.precision`."""
    matmul_dtype: torch.dtype
    gflops: float

    def facts(self) -> dict[str, Any]:
        """For run.json."""
        return {
            "precision": self.precision,
            "matmul_dtype": str(self.matmul_dtype).removeprefix("torch."),
            "matmul_gflops": round(self.gflops, 1),
        }


def matmul_peak(
    precision: str, previous: Mapping[str, Any], process_group: ProcessGroup = SINGLE_PROCESS
) -> MatmulPeak:
    """Measure the peak, and choose the dtype: bfloat16 only if it was set and is faster on this processor.

    A resumed run keeps its `previous` choice, and all processes make the same choice, so that the results do not
    depend on timing.
    """
    float32 = MatmulPeak(precision, torch.float32, matmul_gflops(process_group.device, torch.float32))
    if precision == "float32":
        return float32
    bfloat16 = MatmulPeak(precision, torch.bfloat16, matmul_gflops(process_group.device, torch.bfloat16))
    faster = bfloat16.gflops > float32.gflops
    if previous.get("precision") == precision:
        faster = previous.get("matmul_dtype") == bfloat16.facts()["matmul_dtype"]
    return bfloat16 if process_group.any(faster) else float32


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
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = max(best, 2 * size**3 / (time.perf_counter() - started) / 1e9)
    return best


def environment(processes: int) -> dict[str, Any]:
    """Versions and hardware, to interpret the times of a run or to repeat it."""
    return {
        "regard": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": processor_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "processes": processes,
    }
