"""Chromium as the tests drive it: the system's own, by Playwright, which downloads none.

Where there is none a test is skipped; with CI or TASKGRAPH_TEST_REQUIRE_CHROMIUM set it fails, so that nothing is left
out in silence. `scripts/test` installs it where it can.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

VARIABLE = "TASKGRAPH_TEST_CHROMIUM"
"""The path of another one."""

_NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
_MISSING = f"there is no Chromium: apt-get install chromium, or name one by {VARIABLE}"


def find() -> str:
    """Its path. Skips the test, or fails it, where there is none."""
    named = os.environ.get(VARIABLE, "")
    found = named or next(filter(None, map(shutil.which, _NAMES)), "")
    if not found:
        if os.environ.get("CI") or os.environ.get("TASKGRAPH_TEST_REQUIRE_CHROMIUM"):
            pytest.fail(_MISSING)
        pytest.skip(_MISSING)
    return found


@contextmanager
def started() -> Iterator[Browser]:
    """A browser. While it runs, this thread belongs to Playwright's event loop: asyncio.run is for others."""
    path = find()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path,
            args=["--no-sandbox", "--disable-dev-shm-usage"],  # in containers: as root, with little shared memory
        )
        try:
            yield browser
        finally:
            browser.close()
