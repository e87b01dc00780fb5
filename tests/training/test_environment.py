"""Freed memory stays with the process where glibc can keep it, and nothing breaks where it cannot."""

import platform
import subprocess
import sys
from unittest import mock

import pytest

from regard.training.environment import keep_freed_memory

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's malloc has these settings")

PROCESS = """
import resource
from regard.training.environment import keep_freed_memory
assert keep_freed_memory() is True
import torch

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def work():
    for _ in range(30):
        torch.zeros(2**22)  # 16 MB, 4096 pages

work()  # the heap grows to what is needed
before = faults()
work()
print(faults() - before)
"""


@glibc
def test_a_process_that_keeps_its_memory_faults_it_in_once() -> None:
    done = subprocess.run([sys.executable, "-c", PROCESS], capture_output=True, text=True, check=True, timeout=120)
    assert int(done.stdout) < 4096  # less than one tensor's; without the settings it would be all thirty


def test_nothing_happens_where_there_is_no_glibc() -> None:
    with mock.patch("platform.libc_ver", return_value=("", "")):
        assert keep_freed_memory() is False
