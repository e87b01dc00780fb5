"""Memory allocator settings: glibc keeps freed memory; nothing happens without glibc."""

import platform
import subprocess
import sys
from unittest import mock

import pytest

from regard.machine import keep_freed_memory

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only malloc of glibc has these settings")

PROCESS = """
import resource
from regard.machine import keep_freed_memory
assert keep_freed_memory() is True
import torch

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def work():
    for _ in range(30):
        torch.zeros(2**22)  # 16 MB, 4096 pages

work()  # the heap grows to its final size
before = faults()
work()
print(faults() - before)
"""


@glibc
@pytest.mark.slow
def test_kept_memory_causes_no_page_faults() -> None:
    done = subprocess.run([sys.executable, "-c", PROCESS], capture_output=True, text=True, check=True, timeout=120)
    assert int(done.stdout) < 4096  # less than for one tensor; without the settings it would be thirty tensors


def test_without_glibc_nothing_happens() -> None:
    with mock.patch("platform.libc_ver", return_value=("", "")):
        assert keep_freed_memory() is False
