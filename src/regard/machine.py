"""The machine: its processor and cores, and the memory allocator. Torch-free."""

import ctypes
import math
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

# Parameters of mallopt in glibc's malloc.h.
M_TRIM_THRESHOLD = -1
M_TOP_PAD = -2
M_MMAP_MAX = -4
THREADS_VARIABLE = "OMP_NUM_THREADS"
CPU_QUOTA_FILE = Path("/sys/fs/cgroup/cpu.max")  # of Linux's control groups, version 2


_core_limit: int | None = None


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, quota_cores() or cores, _core_limit or cores)


@cache
def quota_cores(path: Path = CPU_QUOTA_FILE) -> int | None:
    """Return the cores of this container's CPU limit, rounded up; None without a limit.

    The file has a quota and a period in microseconds: `150000 100000` is one and a half cores, `max 100000` no limit.
    """
    try:
        quota, period = path.read_text().split()
        return None if quota == "max" else max(1, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError, ZeroDivisionError):
        return None


@contextmanager
def limited_cores(count: int, *, overrides: bool = False) -> Iterator[None]:
    """Use at most this many cores in this process and those that it forks; enter it before torch is imported.

    PyTorch follows the environment variable OMP_NUM_THREADS, which stays as it is if it is set, unless `overrides`.
    """
    global _core_limit
    limit, threads = _core_limit, os.environ.get(THREADS_VARIABLE)
    _core_limit = count
    if overrides or threads is None:
        os.environ[THREADS_VARIABLE] = str(available_cores())
    try:
        yield
    finally:
        _core_limit = limit
        if threads is None:
            del os.environ[THREADS_VARIABLE]
        else:
            os.environ[THREADS_VARIABLE] = threads


def processor_name() -> str:
    """Return the name of the processor, which Linux has in a file."""
    if sys.platform == "linux":
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def keep_freed_memory() -> bool:
    """Make glibc's malloc keep freed memory; return whether it does. Call it before the first large tensor.

    By default malloc maps every large tensor again and unmaps it when it is freed, so that each training step faults in
    all of its memory page by page: a fifth of the time on a CPU. This makes the heap grow by 256 MB at a time, never
    shrink, and serve large tensors too. Without glibc, nothing happens.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    parameters = {M_MMAP_MAX: 0, M_TRIM_THRESHOLD: 2**31 - 1, M_TOP_PAD: 256 * 2**20}
    return all(mallopt(parameter, value) == 1 for parameter, value in parameters.items())
