"""Now: the daemon, the urgent jobs, what is under way and the nodes, live."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.daemon import running_here, wait_for
from tests.integration.web.browser import NARROW, WIDE, visiting


@pytest.mark.parametrize(("size", "dark"), [(WIDE, False), (NARROW, True)], ids=["wide", "narrow"])
def test_what_happens_now_is_shown_as_it_happens(browser: Any, tmp_path: Path, size: Any, dark: bool) -> None:
    with running_here(tmp_path) as (simulated, address), visiting(browser, address, size=size, dark=dark) as visitor:
        page = visitor.go("now")
        visitor.sees("No urgent job waits.")
        visitor.sees("Plans are carried out by themselves.")
        visitor.check()
        urgent = simulated.submit_urgent(6, work_s=600, name="flood-forecast")
        page.get_by_role("link", name="Eviction 1", exact=True).first.wait_for()
        page.get_by_text("runs an urgent job that room was made for").wait_for()
        visitor.check()
        assert simulated.cluster.jobs[urgent].job.nodes


def test_a_name_that_is_a_script_does_not_run(browser: Any, tmp_path: Path) -> None:
    evil = "<img src=x onerror=alert(1)>"
    with running_here(tmp_path, "approve") as (simulated, address), visiting(browser, address) as visitor:
        page = visitor.go("now")
        simulated.submit_urgent(2, name=evil)
        page.get_by_text(evil).wait_for()
        assert page.locator("main img").count() == 0
        visitor.check()


def test_pause_resume_and_halt_in_two_clicks(browser: Any, tmp_path: Path) -> None:
    with running_here(tmp_path) as (simulated, address), visiting(browser, address) as visitor:
        page = visitor.go("now")
        for act, does, told in (
            ("Pause", "begins nothing new", "Paused."),
            ("Resume", "plans and acts again", "paused"),
            ("Halt", "no command any more", "Halted."),
            ("End the halt", "gives Slurm commands again", "halted"),
        ):
            page.get_by_role("button", name=f"{act}…", exact=True).click()
            dialog = page.locator("dialog[open]")
            assert does in dialog.inner_text()
            dialog.get_by_role("button", name=act, exact=True).click()
            dialog.locator(".result").wait_for()
            visitor.check()
            dialog.get_by_role("button", name="Close").click()
            if told.endswith("."):
                page.get_by_role("alert").get_by_text(told).wait_for()
            else:
                wait_for(lambda: not page.get_by_role("alert").count(), what=told)
        asked = [row.document() for row in simulated.daemon.store.audit_trail()]
        kinds = [each["about"]["kind"] for each in reversed(asked) if each["kind"] == "request"]
        assert kinds == ["pause", "resume", "halt", "unhalt"]


def test_a_release_of_slurm_that_was_never_tried_is_told(browser: Any, tmp_path: Path) -> None:
    with running_here(tmp_path) as (simulated, address), visiting(browser, address) as visitor:
        page = visitor.go("now")
        simulated.daemon.loop.parts.backend.slurm_version = "31.05.1"
        page.get_by_role("alert").get_by_text("Only observing.").wait_for()
        page.get_by_role("alert").get_by_text("Slurm 31.05.1 is newer than 26.05").wait_for()
        visitor.check()


def test_without_a_token_nothing_is_shown(browser: Any, tmp_path: Path) -> None:
    with running_here(tmp_path, public="health") as (_, address), visiting(browser, address, token="") as visitor:
        page = visitor.go("now", "Clearway")
        visitor.check(refused=True)
        page.get_by_label("Token").fill("wrong")
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("alert").get_by_text("not valid").wait_for()
        visitor.check(refused=True)
