"""Every test is deterministic: torch is seeded before each, and hypothesis tries the same examples every time.

Other hypothesis profiles: `quick` for `make check`, and `random`, which looks for new counterexamples
(`pytest --hypothesis-profile random`).
"""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # also in processes that tests start: pytest already uses every core

import pytest
import torch
from hypothesis import settings

from random_models import translator, writer  # noqa: F401  # fixtures
from served_models import (  # noqa: F401  # fixtures
    encoder_server,
    loaded_encoders,
    loaded_models,
    model_folders,
    recurrent_models,
    server,
)

settings.register_profile("regard", deadline=None, derandomize=True, max_examples=25, database=None)
settings.register_profile("quick", settings.get_profile("regard"), max_examples=4)
settings.register_profile("random", deadline=None, max_examples=200, print_blob=True)
settings.load_profile("regard")
torch.set_num_threads(1)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say plainly what was not tested, and why."""
    skipped = [report.longrepr for report in terminalreporter.stats.get("skipped", [])]
    for reason in sorted({reason[2] for reason in skipped if isinstance(reason, tuple)}):
        terminalreporter.write_line(reason)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
