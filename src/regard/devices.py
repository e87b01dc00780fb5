"""Devices: what the option `--device` and the argument `device` select, for PyTorch and for CTranslate2.

`auto` is the GPU of an NVIDIA or AMD card if there is one (`cuda`), and otherwise the CPU. Apple's GPU (`mps`) is used
only by name. PyTorch is imported only when a device of it is needed.
"""

import os
import re
from typing import TYPE_CHECKING, Literal

from regard.errors import ConfigError

if TYPE_CHECKING:
    import torch

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
