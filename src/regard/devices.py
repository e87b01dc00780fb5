"""Devices: what the option `--device` and the argument `device` select.

`auto` is the GPU of an NVIDIA or AMD card if PyTorch finds one (`cuda`), and otherwise the CPU. Apple's GPU (`mps`) is
used only by name.
"""

import os
import re

import torch

from regard.errors import ConfigError

DEVICE_NAMES = ("auto", "cpu", "cuda", "mps")
_DEVICE_NAME = re.compile(r"auto|cpu|mps|cuda(?::\d+)?")


def resolve_device(name: str) -> torch.device:
    """The device of this name: `auto`, `cpu`, `cuda`, `cuda:N` or `mps`; a ConfigError if it is not available.

    `cuda` without a number is the first GPU, or under `torchrun` the GPU of the process.

    >>> resolve_device("cpu")
    device(type='cpu')
    """
    if not isinstance(name, str) or not _DEVICE_NAME.fullmatch(name):
        raise ConfigError(f"device {name!r}: there is no such device; use auto, cpu, cuda, cuda:N or mps.")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "mps" and not torch.backends.mps.is_available():
        raise ConfigError(f"device 'mps': {_without_mps()}; use cpu.")
    if not name.startswith("cuda"):
        return torch.device(name)
    if not torch.cuda.is_available():
        raise ConfigError(f"device {name!r}: {_without_cuda()}; use cpu.")
    count = torch.cuda.device_count()
    index = int(name.partition(":")[2] or os.environ.get("LOCAL_RANK", "0"))
    if index >= count:
        raise ConfigError(f"device 'cuda:{index}': PyTorch finds {count} GPUs; use cuda:N with N < {count}, or cpu.")
    return torch.device("cuda", index)


def _without_cuda() -> str:
    if not torch.backends.cuda.is_built() and torch.version.hip is None:
        return f"PyTorch {torch.__version__} is installed without support for CUDA"
    return "PyTorch finds no GPU or no driver for it"


def _without_mps() -> str:
    if not torch.backends.mps.is_built():
        return f"PyTorch {torch.__version__} is installed without support for Apple's GPUs"
    return "PyTorch finds no GPU of Apple"
