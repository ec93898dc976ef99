"""One browser for all tests of a process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.web.browser import CHROMIUM, browser_or_skip


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    browser_or_skip()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        # As root Chromium has no sandbox; what it opens is ours.
        chromium = driver.chromium.launch(
            executable_path=CHROMIUM, chromium_sandbox=False, args=["--disable-dev-shm-usage"]
        )
        yield chromium
        chromium.close()
