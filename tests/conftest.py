"""Every test is deterministic: torch is seeded before each, and hypothesis tries the same examples every time.

`pytest --quick`, for `make check`, leaves out tests marked `slow` or `browser`, takes a sample of the cases of tests
that have many, and tries few hypothesis examples. `pytest --hypothesis-profile random` looks for new counterexamples.
"""

import os
import shutil
from collections import defaultdict
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # also in processes that tests start: pytest already uses every core

import pytest
import torch
from hypothesis import settings

from random_models import talker, translator, writer  # noqa: F401  # fixtures
from served_models import (  # noqa: F401  # fixtures
    encoder_server,
    loaded_encoders,
    loaded_models,
    model_folders,
    recurrent_models,
    server,
)

settings.register_profile("regard", deadline=None, derandomize=True, max_examples=15, database=None)
settings.register_profile("quick", settings.get_profile("regard"), max_examples=4)
settings.register_profile("random", deadline=None, max_examples=200, print_blob=True)
settings.load_profile("regard")
torch.set_num_threads(1)
QUICK_CASES = 3  # cases of one test that `--quick` runs
MEMORY_FOLDER, MEMORY_NEEDED = "/dev/shm", 4 << 30  # bytes
SLOW_COST = 50  # of a slow test, in fast tests


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--quick`."""
    parser.addoption("--quick", action="store_true", help="run fast tests only, and at most a few cases of each")


def pytest_configure(config: pytest.Config) -> None:
    """Keep files of tests in memory where there is room; use few examples of property tests with `--quick`."""
    if os.access(MEMORY_FOLDER, os.W_OK) and shutil.disk_usage(MEMORY_FOLDER).free > MEMORY_NEEDED:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", MEMORY_FOLDER)  # a disk takes 10 ms to synchronize each file
    if config.getoption("--quick"):
        settings.load_profile("quick")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the files with the most slow tests first, so that all processes end together; select tests for `--quick`."""
    if config.getoption("--quick"):
        kept = _quick_selection(items)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]
    costs: dict[Path, float] = defaultdict(float)
    for item in items:
        costs[item.path] += SLOW_COST if item.get_closest_marker("slow") else 1
    items.sort(key=lambda item: -costs[item.path])


def _quick_selection(items: list[pytest.Item]) -> set[pytest.Item]:
    """Return the fast tests, and of a test with many cases some that are evenly spread over all of them."""
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if not any(item.get_closest_marker(mark) for mark in ("slow", "browser")):
            cases[item.nodeid.partition("[")[0]].append(item)
    kept = set()
    for of_test in cases.values():
        count = min(QUICK_CASES, len(of_test))
        kept |= {of_test[index * len(of_test) // count] for index in range(count)}
    return kept


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say plainly what was not tested, and why."""
    skipped = [report.longrepr for report in terminalreporter.stats.get("skipped", [])]
    for reason in sorted({reason[2] for reason in skipped if isinstance(reason, tuple)}):
        terminalreporter.write_line(reason)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
