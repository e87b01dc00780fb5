"""A real browser for tests: Chromium, wherever this machine has it."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Error, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIET = [
    "--no-sandbox",  # tests may run as root, who has none
    *("--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
]
NONE = (
    "There is no Chromium here, so the page is not tested in a browser: install one (`apt-get install chromium`), "
    "or name it in REGARD_CHROMIUM."
)


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser until the block ends; where there is none, the tests that want it are skipped, and say so."""
    found = os.environ.get("REGARD_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path
        if found is None and not Path(own).is_file():
            pytest.skip(NONE)
        try:
            started = playwright.chromium.launch(executable_path=found or own, args=QUIET)
        except Error as error:
            pytest.skip(f"{found or own} does not start here, so the page is not tested: {str(error).splitlines()[0]}")
        yield started
        started.close()
