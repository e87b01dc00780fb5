"""The machine: its processor and cores, and the memory allocator. Torch-free."""

import ctypes
import os
import platform
import sys

# Parameters of mallopt in glibc's malloc.h.
M_TRIM_THRESHOLD = -1
M_TOP_PAD = -2
M_MMAP_MAX = -4


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
