"""One browser for the tests of a module, as far as one process runs them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.web.browser import CHROMIUM, browser_or_skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Closed before the next test elsewhere: as long as it is open, an event loop runs in this thread."""
    browser_or_skip()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        # As root Chromium has no sandbox; what it opens is ours.
        chromium = driver.chromium.launch(
            executable_path=CHROMIUM, chromium_sandbox=False, args=["--disable-dev-shm-usage"]
        )
        yield chromium
        chromium.close()
