"""The machine that a run runs on: what it is, and how fast it multiplies matrices."""

import os
import platform
import sys
import time
from typing import Any

import torch

from regard.version import __version__


def environment(processes: int, gflops: float) -> dict[str, Any]:
    """What someone needs to know to make sense of a run's times, or to repeat it."""
    return {
        "regard": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "processes": processes,
        "matmul_gflops": round(gflops, 1),
    }


def matmul_gflops(device: torch.device, seconds: float = 0.5) -> float:
    """The ceiling: the best rate of large matrix products, in 10⁹ operations a second."""
    size = 1024
    a, b = torch.ones(size, size, device=device), torch.ones(size, size, device=device)
    out = a @ b
    best, end = 0.0, time.perf_counter() + seconds
    while best == 0.0 or time.perf_counter() < end:
        begun = time.perf_counter()
        for _ in range(4):
            torch.mm(a, b, out=out)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = max(best, 4 * 2 * size**3 / (time.perf_counter() - begun) / 1e9)
    return best


def _processor() -> str:
    """The processor's name, which only Linux keeps in a file."""
    if sys.platform == "linux":
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
