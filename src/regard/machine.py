"""The machine: its devices, its processor and cores, and the memory allocator.

The option `--device` and the argument `device` select a device for PyTorch and for CTranslate2. `auto` is the GPU of an
NVIDIA or AMD card if there is one (`cuda`), and otherwise the CPU. Apple's GPU (`mps`) is used only by name. PyTorch is
imported only when a device of it is needed.
"""

import ctypes
import math
import os
import platform
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from regard.errors import ConfigError

if TYPE_CHECKING:
    import torch

# Parameters of mallopt in glibc's malloc.h.
M_TRIM_THRESHOLD = -1
M_TOP_PAD = -2
M_MMAP_MAX = -4
THREADS_VARIABLE = "OMP_NUM_THREADS"
CPU_QUOTA_FILE = Path("/sys/fs/cgroup/cpu.max")  # of Linux's control groups, version 2

_DEVICE_NAME = re.compile(r"auto|cpu|mps|cuda(?::\d+)?")


def check_device(name: str) -> str:
    """Return the name of a device, or raise ConfigError if it is none, whether it is available or not."""
    if not isinstance(name, str) or not _DEVICE_NAME.fullmatch(name):
        raise ConfigError(f"device {name!r}: there is no such device; use auto, cpu, cuda, cuda:N or mps.")
    return name


def resolve_device(name: str) -> "torch.device":
    """Return the device of this name: `auto`, `cpu`, `cuda`, `cuda:N` or `mps`; a ConfigError if it is not available.

    `cuda` without a number is the first GPU, or under `torchrun` the GPU of the process.

    >>> resolve_device("cpu")
    device(type='cpu')
    """
    import torch

    if check_device(name) == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "mps" and not torch.backends.mps.is_available():
        raise ConfigError(f"device 'mps': {_without_mps()}; use cpu.")
    if not name.startswith("cuda"):
        return torch.device(name)
    if not torch.cuda.is_available():
        raise ConfigError(f"device {name!r}: {_without_cuda()}; use cpu.")
    count, index = torch.cuda.device_count(), _index(name)
    if index >= count:
        raise ConfigError(f"device 'cuda:{index}': PyTorch finds {count} GPUs; use cuda:N with N < {count}, or cpu.")
    return torch.device("cuda", index)


def ctranslate2_device(name: str) -> tuple[Literal["cpu", "cuda"], int] | None:
    """Return the device of this name for CTranslate2 and its index; None if CTranslate2 cannot use it.

    >>> ctranslate2_device("cpu")
    ('cpu', 0)
    >>> ctranslate2_device("mps") is None
    True
    """
    if check_device(name) in ("cpu", "mps"):
        return ("cpu", 0) if name == "cpu" else None
    import ctranslate2

    count, index = ctranslate2.get_cuda_device_count(), _index(name)
    if index < count:
        return "cuda", index
    return ("cpu", 0) if name == "auto" else None


def _index(name: str) -> int:
    return int(name.partition(":")[2] or os.environ.get("LOCAL_RANK", "0"))


def _without_cuda() -> str:
    import torch

    if not torch.backends.cuda.is_built() and torch.version.hip is None:
        return f"PyTorch {torch.__version__} is installed without support for CUDA"
    return "PyTorch finds no GPU or no driver for it"


def _without_mps() -> str:
    import torch

    if not torch.backends.mps.is_built():
        return f"PyTorch {torch.__version__} is installed without support for Apple's GPUs"
    return "PyTorch finds no GPU of Apple"


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
