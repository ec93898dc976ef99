#!/usr/bin/env python3
"""Makes the pictures of the page from the demo: ``.venv/bin/python docs/images/make_pages.py``. It needs Chromium."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
from playwright.sync_api import sync_playwright

FOLDER = Path(__file__).parent
CLEARWAY = Path(sys.executable).with_name("clearway")
WIDE = {"width": 1280, "height": 900}
DENSE = 1.5  # pixels of the file for one of the page


@contextmanager
def demo() -> Iterator[tuple[str, str]]:
    """Address and token of a demo whose eviction waits for approval."""
    command = [CLEARWAY, "simulate-cluster", "--mode", "approve", "--speed", "20"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603
    try:
        address = token = ""
        for line in running.stdout or ():
            if found := re.match(r"Page: (\S+?)/ ", line):
                address = found[1]
            if found := re.match(r"\s+\. (\S+)", line):
                (token,) = re.findall(r"CLEARWAY_TOKEN=(\S+)", Path(found[1]).read_text())
            if "waits for approval" in line:
                break
        yield address, token.strip("'\"")
    finally:
        running.terminate()
        running.communicate(timeout=30)


def pictures(page: Any, address: str, token: str) -> None:
    page.goto(f"{address}/#/now")
    page.get_by_text("tsunami-forecast").or_(page.get_by_text("awaiting approval")).first.wait_for()
    page.get_by_text("occupied").first.wait_for()
    page.screenshot(path=FOLDER / "page-now.png", full_page=True)
    page.goto(f"{address}/#/evictions/1")
    page.get_by_role("button", name=re.compile("Approve")).first.wait_for()
    page.screenshot(path=FOLDER / "page-eviction.png", full_page=True, clip={"x": 0, "y": 0, **WIDE, "height": 1400})
    headers = {"Authorization": f"Bearer {token}"}
    httpx.post(f"{address}/api/v1/evictions/1/approve", headers=headers).raise_for_status()
    page.goto(f"{address}/#/now")
    page.get_by_text("Under way").first.wait_for()
    page.wait_for_timeout(6_000)  # some of the jobs have left, others save themselves
    page.screenshot(path=FOLDER / "page-under-way.png", full_page=True)


def report(page: Any, address: str, token: str) -> None:
    """What ``clearway report`` says once the urgent job has started."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        site = {"CLEARWAY_URL": address, "CLEARWAY_TOKEN": token}
        command = [CLEARWAY, "report", "--output", "html", "--file", path]
        for _ in range(120):
            subprocess.run(command, env=os.environ | site, check=True)  # noqa: S603
            if "room was made; the job started. " in path.read_text():
                break
            page.wait_for_timeout(1_000)
        page.goto(path.as_uri())
        page.screenshot(path=FOLDER / "report.png", full_page=True)


def main() -> None:
    with demo() as (address, token), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        context = browser.new_context(viewport=WIDE, device_scale_factor=DENSE, reduced_motion="reduce")
        context.add_init_script(f"sessionStorage.setItem('clearway-token', {token!r})")
        pictures(context.new_page(), address, token)
        report(context.new_page(), address, token)
        browser.close()


if __name__ == "__main__":
    main()
