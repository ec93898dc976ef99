"""A real browser for the page: Debian's Chromium, driven by Playwright, and what every page has to keep to.

axe-core lies in ``vendor`` as it is published (MPL-2.0), so that no test needs a registry. ``evaluate`` puts it into
the page, whose own policy lets no script in.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integration.daemon import PATIENT_S, TOKEN, get, wait_for

CHROMIUM = shutil.which("chromium")
AXE = Path(__file__).parent / "vendor" / "axe.min.js"
PATIENT_MS = PATIENT_S * 1_000
WIDE, NARROW = (1280, 900), (390, 844)
_TOO_WIDE = """document.documentElement.scrollWidth <= innerWidth ? [] : [...document.querySelectorAll("main *")]
    .filter((each) => each.getBoundingClientRect().right > innerWidth).map((each) => each.outerHTML.slice(0, 120))"""
SERIOUS = ("serious", "critical")


def missing() -> str:
    """Why there is no browser here; empty where there is one."""
    try:
        import playwright  # noqa: F401
    except ImportError:
        return "playwright is not installed"
    return "" if CHROMIUM else "chromium is not installed"


def browser_or_skip() -> None:
    why = missing()
    if why and "integration" in os.environ.get("CLEARWAY_REQUIRE_TIERS", "").replace(",", " ").split():
        pytest.fail(f"tier integration is required, but {why}", pytrace=False)
    if why:
        pytest.skip(why)


class Visitor:
    """One person with a tab. Whatever the console says as an error or a warning is kept, and so is what fails."""

    def __init__(
        self, browser: Any, address: str, *, token: str = TOKEN, size: tuple[int, int] = WIDE, dark: bool = False
    ) -> None:
        self.context = browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
            has_touch=size == NARROW,
        )
        self.context.set_default_timeout(PATIENT_MS)
        self.address = address
        self.complaints: list[str] = []
        self.elsewhere: list[str] = []
        if token:
            self.context.add_init_script(f"sessionStorage.setItem('clearway-token', {token!r})")
        self.page = self.context.new_page()
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.complaints.append(f"page error: {error}"))
        self.page.on("request", self._asked)
        self.page.on("dialog", self._alert)

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text}")

    def _asked(self, request: Any) -> None:
        if not request.url.startswith(self.address):
            self.elsewhere.append(request.url)

    def _alert(self, dialog: Any) -> None:
        self.complaints.append(f"a dialog of the browser: {dialog.message}")
        dialog.dismiss()

    def go(self, place: str = "now", heading: str = "") -> Any:
        self.page.goto(f"{self.address}/#/{place}")
        self.page.wait_for_selector(f"h1:has-text({heading!r})" if heading else "main h1", state="attached")
        return self.page

    def sees(self, text: str) -> None:
        self.page.get_by_text(text).first.wait_for()

    def serious(self) -> list[str]:
        """What axe finds that is serious or critical."""
        self.page.evaluate(AXE.read_text())
        found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{each['id']}: {node['target']} {node['html'][:200]}"
            for each in found["violations"]
            if each["impact"] in SERIOUS
            for node in each["nodes"]
        ]

    def check(self, *, refused: bool = False) -> None:
        """What holds for every page. Chromium itself complains of each answer that is a refusal."""
        found = self.serious()
        assert not found, "\n".join(found)
        wide = self.page.evaluate(_TOO_WIDE)
        assert not wide, f"wider than the screen: {wide}"
        complaints = [each for each in self.complaints if not (refused and "status of 4" in each)]
        assert not complaints, complaints
        assert not self.elsewhere, self.elsewhere


@contextmanager
def visiting(browser: Any, address: str, **how: Any) -> Iterator[Visitor]:
    """A visitor of a daemon that has seen the cluster: before, it refuses some, and Chromium complains."""
    wait_for(lambda: get(f"{address}/readiness").is_success, what="the daemon's first cycle")
    visitor = Visitor(browser, address, **how)
    try:
        yield visitor
    finally:
        visitor.context.close()
