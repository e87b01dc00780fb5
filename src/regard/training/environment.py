"""The machine that a run runs on: what it is, and how fast it multiplies matrices."""

import ctypes
import os
import platform
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from regard.training.distributed import SINGLE_PROCESS, ProcessGroup
from regard.version import __version__


@dataclass(frozen=True)
class MatmulPeak:
    """The precision that was asked for, the type in which this machine multiplies matrices, and its best rate."""

    asked: str
    matmul_dtype: torch.dtype
    gflops: float

    def facts(self) -> dict[str, Any]:
        """For run.json."""
        return {
            "precision": self.asked,
            "matmul_dtype": str(self.matmul_dtype).removeprefix("torch."),
            "matmul_gflops": round(self.gflops, 1),
        }


def matmul_peak(asked: str, before: Mapping[str, Any], process_group: ProcessGroup = SINGLE_PROCESS) -> MatmulPeak:
    """How this machine does what is asked for: bfloat16 only if it is the faster, which depends on the processor.

    A run that goes on keeps what it decided `before`, by the facts that it left, and all processes decide alike: so
    what is computed does not hang on a stopwatch.
    """
    exact = MatmulPeak(asked, torch.float32, matmul_gflops(process_group.device, torch.float32))
    if asked == "float32":
        return exact
    short = MatmulPeak(asked, torch.bfloat16, matmul_gflops(process_group.device, torch.bfloat16))
    faster = short.gflops > exact.gflops
    if before.get("precision") == asked:
        faster = before.get("matmul_dtype") == short.facts()["matmul_dtype"]
    return short if process_group.any(faster) else exact


def environment(process_group: int) -> dict[str, Any]:
    """What someone needs to know to make sense of a run's times, or to repeat it."""
    return {
        "regard": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "processes": process_group,
    }


def matmul_gflops(device: torch.device, dtype: torch.dtype, seconds: float = 0.5) -> float:
    """The best rate of large matrix products, in 10⁹ operations a second."""
    size = 1024
    a, b = (torch.ones(size, size, device=device, dtype=dtype) for _ in range(2))
    out = a @ b
    best, end = 0.0, time.perf_counter() + seconds
    while best == 0.0 or time.perf_counter() < end:
        begun = time.perf_counter()
        torch.mm(a, b, out=out)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = max(best, 2 * size**3 / (time.perf_counter() - begun) / 1e9)
    return best


def _processor() -> str:
    """The processor's name, which only Linux keeps in a file."""
    if sys.platform == "linux":
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


# The numbers of mallopt's settings in glibc's malloc.h.
M_TRIM_THRESHOLD = -1
M_TOP_PAD = -2
M_MMAP_MAX = -4


def keep_freed_memory() -> bool:
    """Tell glibc's malloc to keep what is freed; returns whether it does. Call it before the first large tensor.

    By default malloc maps every large tensor anew and gives it back when it is freed, so that each step of training
    faults in all its memory again, page by page: a fifth of the time on a CPU. This lets the heap grow by 256 MB at a
    time, never shrink, and serve large tensors too. Where there is no glibc, nothing happens.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    settings = {M_MMAP_MAX: 0, M_TRIM_THRESHOLD: 2**31 - 1, M_TOP_PAD: 256 * 2**20}
    return all(mallopt(setting, value) == 1 for setting, value in settings.items())
