"""A real browser for tests: Chromium, wherever this machine has it."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Error, sync_playwright

# The shell has no windows and no extensions, and takes half of the CPU time.
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
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
    """A browser until the block ends; where there is none, the tests that need it are skipped, with a message."""
    found = os.environ.get("REGARD_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    with sync_playwright() as playwright:
        try:
            started = playwright.chromium.launch(executable_path=found, args=QUIET)  # None: Playwright's own
        except Error as error:
            message = str(error).splitlines()[0]
            pytest.skip(NONE if found is None else f"{found} does not start here, so the page is not tested: {message}")
        yield started
        started.close()
