"""The allocator keeps freed memory, with glibc only; cores are limited by a container and by the server."""

import os
import platform
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from regard.machine import available_cores, keep_freed_memory, limited_cores, quota_cores

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


@pytest.fixture
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.machine._core_limit", None)
    monkeypatch.setattr("regard.machine.quota_cores", lambda: None)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)), raising=False)


@pytest.mark.usefixtures("eight_cores")
def test_threads_can_be_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    with limited_cores(2):
        assert (available_cores(), os.environ["OMP_NUM_THREADS"]) == (2, "3")
        with limited_cores(1, overrides=True):
            assert (available_cores(), os.environ["OMP_NUM_THREADS"]) == (1, "1")
    assert (available_cores(), os.environ["OMP_NUM_THREADS"]) == (8, "3")
    monkeypatch.delenv("OMP_NUM_THREADS")
    with limited_cores(12):
        assert (available_cores(), os.environ["OMP_NUM_THREADS"]) == (8, "8")
    assert "OMP_NUM_THREADS" not in os.environ


@pytest.mark.parametrize(
    ("content", "cores"),
    [
        ("max 100000\n", None),
        ("200000 100000\n", 2),
        ("150000 100000", 2),
        ("5000 100000", 1),
        ("", None),
        ("1 0", None),
    ],
)
def test_a_container_limits_the_cores(tmp_path: Path, content: str, cores: int | None) -> None:
    (tmp_path / "cpu.max").write_text(content)
    assert quota_cores(tmp_path / "cpu.max") == cores


@pytest.mark.usefixtures("eight_cores")
def test_the_limit_of_the_container_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.machine.quota_cores", lambda: 3)
    assert available_cores() == 3
