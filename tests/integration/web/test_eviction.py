"""An eviction: its reasons and costs, and what can be done about it in two clicks."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from clearway.service.loop import Explainer
from tests.integration.daemon import Simulated, running_here, wait_for
from tests.integration.web.browser import NARROW, WIDE, visiting


def wait_explained(simulated: Simulated, eviction_id: int) -> None:
    """A browser notes it as an error where a page asks for an explanation that is yet to come."""
    wait_for(lambda: simulated.daemon.store.explanation(eviction_id))


@pytest.mark.parametrize(("size", "dark"), [(WIDE, False), (NARROW, True)], ids=["wide", "narrow"])
def test_a_plan_is_read_and_approved(browser: Any, tmp_path: Path, size: Any, dark: bool) -> None:
    with (
        running_here(tmp_path, "approve") as (simulated, address),
        visiting(browser, address, size=size, dark=dark) as visitor,
    ):
        urgent = simulated.submit_urgent(6, work_s=600, name="flood-forecast")
        wait_explained(simulated, 1)
        page = visitor.go("now")
        page.get_by_role("link", name="Eviction 1", exact=True).first.click()
        page.get_by_text("Makes room for urgent job").wait_for()
        page.get_by_text("to approve it with its promise kept").wait_for()
        page.get_by_text("Slurm's own rule").wait_for()
        page.get_by_text("Why every other running job stays").click()
        page.get_by_role("table", name="Every running job").wait_for()
        visitor.check()
        page.get_by_role("button", name="Approve…", exact=True).click()
        dialog = page.locator("dialog[open]")
        assert "reserve 6 nodes for job" in dialog.inner_text()
        assert "requeue 2 jobs without a checkpoint" in dialog.inner_text()
        visitor.check()
        dialog.get_by_role("button", name="Approve", exact=True).click()
        dialog.get_by_text("approved").wait_for()
        dialog.get_by_role("button", name="Close").click()
        page.get_by_text("before the deadline").wait_for()
        page.get_by_text("Every step").click()
        page.get_by_role("table", name="Steps").wait_for()
        visitor.check()
        assert simulated.cluster.jobs[urgent].job.nodes


def test_an_explanation_that_comes_later_is_shown(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else changes then."""
    may, work = threading.Event(), Explainer.work
    monkeypatch.setattr(Explainer, "work", lambda *args: work(*args) if may.is_set() else None)
    with running_here(tmp_path, "approve") as (simulated, address), visiting(browser, address) as visitor:
        simulated.submit_urgent(2)
        wait_for(lambda: simulated.daemon.store.evictions(limit=1))
        page = visitor.go("evictions/1", "Eviction 1")
        page.get_by_text("Not worked out yet").wait_for()
        may.set()
        page.get_by_text("Slurm's own rule").wait_for()


def test_a_plan_is_cancelled(browser: Any, tmp_path: Path) -> None:
    with running_here(tmp_path, "approve") as (simulated, address), visiting(browser, address) as visitor:
        simulated.submit_urgent(2)
        wait_explained(simulated, 1)
        page = visitor.go("evictions/1", "Eviction 1")
        page.get_by_role("button", name="Cancel…", exact=True).click()
        dialog = page.locator("dialog[open]")
        assert "2 jobs that have not left yet will stay" in dialog.inner_text()
        dialog.get_by_role("button", name="Cancel it").click()
        dialog.locator(".result").wait_for()
        dialog.get_by_role("button", name="Close").click()
        page.locator("h1").get_by_text("cancelled").wait_for()
        assert page.get_by_role("button", name="Cancel…").count() == 0
        visitor.check()
        page.get_by_role("link", name="Evictions").click()
        page.get_by_role("cell", name="Cancelled by ann").wait_for()
        visitor.check()


def test_a_plan_that_was_replaced_leads_to_its_successor(browser: Any, tmp_path: Path) -> None:
    with running_here(tmp_path, "approve") as (simulated, address), visiting(browser, address) as visitor:
        urgent = simulated.submit_urgent(2)
        store = simulated.daemon.store
        (first,) = wait_for(lambda: store.evictions(limit=1))
        for job in first.plan.leaving:  # the plan's jobs end: it does not fit any more
            simulated.cluster.end_run(simulated.cluster.jobs[job.job_id], requeue=False)
            simulated.cluster.submit(on=job.nodes, ran_s=5.0)
        wait_for(lambda: store.eviction(1).state.value == "superseded" and len(store.evictions(limit=5)) > 1)
        wait_explained(simulated, 1)
        wait_explained(simulated, 2)
        page = visitor.go("evictions/1", "Eviction 1")
        page.get_by_role("link", name="Eviction 2").click()
        page.locator("h1").get_by_text("Eviction 2").wait_for()
        page.get_by_role("link", name=urgent, exact=True).first.wait_for()
        visitor.check()


def test_an_eviction_that_does_not_exist(browser: Any, tmp_path: Path) -> None:
    with running_here(tmp_path) as (_, address), visiting(browser, address) as visitor:
        page = visitor.page
        page.goto(f"{address}/#/evictions/99")
        page.get_by_role("alert").get_by_text("no eviction 99").wait_for()
        visitor.check(refused=True)
