"""The other pages: jobs, search, what if, drains and moves, calibration, audit. Each action is done for real."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.daemon import running_here, wait_for
from tests.integration.web.browser import NARROW, WIDE, visiting

SIZES = pytest.mark.parametrize(("size", "dark"), [(WIDE, False), (NARROW, True)], ids=["wide", "narrow"])
EVIL = "<script>alert(1)</script>"


@SIZES
def test_my_jobs_and_one_of_them(browser: Any, tmp_path: Path, size: Any, dark: bool) -> None:
    with running_here(tmp_path) as (simulated, address), visiting(browser, address, size=size, dark=dark) as visitor:
        cluster = simulated.cluster
        mine = cluster.submit(num_nodes=1, user="ann", name=EVIL, partitions=("batch",))
        page = visitor.go("mine", "My jobs")
        page.get_by_text(EVIL).first.wait_for()
        page.get_by_text("has had nothing to do with your jobs").wait_for()
        visitor.check()
        page.get_by_role("link", name=mine, exact=True).click()
        page.locator("h1").get_by_text(f"Job {mine}").wait_for()
        visitor.check()
        urgent = simulated.submit_urgent(6, work_s=600)
        wait_for(lambda: cluster.jobs[urgent].job.nodes)
        page = visitor.go("jobs/5", "Job 5")
        page.get_by_role("heading", name="What Clearway had to do with it").wait_for()
        page.get_by_role("link", name="eviction 1").wait_for()
        visitor.check()
        assert page.locator("main script").count() == 0


def test_search_by_job_user_and_node(browser: Any, tmp_path: Path) -> None:
    with running_here(tmp_path) as (_, address), visiting(browser, address) as visitor:
        page = visitor.go("search", "Search")
        visitor.check()
        page.get_by_label("By", exact=True).select_option("user")
        page.get_by_label("Name of the user").fill("alice")
        page.get_by_role("button", name="Search").click()
        page.get_by_role("table", name="Jobs that were found").wait_for()
        assert page.get_by_role("table").get_by_role("row").count() == 9
        visitor.check()
        page.get_by_label("By", exact=True).select_option("node")
        page.get_by_label("Name of the node").fill("n3")
        page.get_by_role("button", name="Search").click()
        page.get_by_role("heading", name="Jobs on node n3").wait_for()
        page.get_by_role("link", name="3", exact=True).wait_for()
        page.get_by_label("By", exact=True).select_option("job")
        page.get_by_label("Number of the job").fill("3")
        page.get_by_role("button", name="Search").click()
        page.get_by_role("heading", name="If an urgent job came now").wait_for()
        visitor.check()


@SIZES
def test_what_an_urgent_job_would_cost(browser: Any, tmp_path: Path, size: Any, dark: bool) -> None:
    with running_here(tmp_path) as (simulated, address), visiting(browser, address, size=size, dark=dark) as visitor:
        wait_for(lambda: simulated.daemon.loop.report)
        page = visitor.go("what-if", "What if")
        page.get_by_text("1 node to be freed").wait_for()
        page.locator("#nodes[max='8']").wait_for()
        page.get_by_label("Nodes:").fill("6")
        page.get_by_text("6 nodes to be freed").wait_for()
        visitor.check()
        page.get_by_label("It may wait:").fill("0")
        page.get_by_text("Starts within").wait_for()
        assert simulated.daemon.store.evictions(limit=1) == ()


@SIZES
def test_nodes_are_emptied_and_given_back(browser: Any, tmp_path: Path, size: Any, dark: bool) -> None:
    extra = '\n[drain]\noperators = ["ann"]\n'
    with (
        running_here(tmp_path, extra=extra) as (simulated, address),
        visiting(browser, address, size=size, dark=dark) as visitor,
    ):
        wait_for(lambda: simulated.daemon.loop.report)
        page = visitor.go("drains", "Drains and moves")
        visitor.check()
        page.get_by_label("Nodes", exact=True).fill("n8")
        page.get_by_label("Reason").fill("new fans")
        page.get_by_role("button", name="Show what would happen").click()
        page.get_by_role("table", name="Jobs that would leave").wait_for()
        page.get_by_role("button", name="Drain…", exact=True).click()
        dialog = page.locator("dialog[open]")
        assert "The nodes stay drained until they are given back." in dialog.inner_text()
        dialog.get_by_role("button", name="Drain", exact=True).click()
        dialog.locator(".result").wait_for()
        dialog.get_by_role("button", name="Close").click()
        page.get_by_role("link", name="Drain 1").wait_for()
        page.get_by_role("button", name="Give back…").wait_for()
        visitor.check()
        page.get_by_role("button", name="Give back…").click()
        dialog.get_by_role("button", name="Give them back").click()
        dialog.locator(".result").wait_for()
        dialog.get_by_role("button", name="Close").click()
        wait_for(lambda: not any(node.drained for node in simulated.daemon.loop.report.snapshot.nodes))
        page.get_by_role("link", name="Drain 1").click()
        page.get_by_text("Empties n8").wait_for()
        visitor.check()


def test_a_rolling_drain_is_planned_begun_and_cancelled(browser: Any, tmp_path: Path) -> None:
    extra = '\n[drain]\noperators = ["ann"]\n'
    with running_here(tmp_path, extra=extra) as (simulated, address), visiting(browser, address) as visitor:
        wait_for(lambda: simulated.daemon.loop.report)
        page = visitor.go("drains", "Drains and moves")
        page.get_by_label("Nodes", exact=True).fill("n[5-8]")
        page.get_by_label("So many at a time").fill("1")
        page.get_by_role("button", name="Show what would happen").click()
        page.get_by_role("table", name="Nodes in turn").wait_for()
        page.get_by_role("button", name="Drain…", exact=True).click()
        dialog = page.locator("dialog[open]")
        dialog.get_by_role("button", name="Drain", exact=True).click()
        dialog.locator(".result").wait_for()
        dialog.get_by_role("button", name="Close").click()
        table = page.get_by_role("table", name="Rolling drains")
        table.get_by_text("Rolling drain 1").wait_for()
        visitor.check()
        table.get_by_role("button", name="Cancel…").click()
        dialog.get_by_role("button", name="Cancel it").click()
        dialog.locator(".result").wait_for()
        dialog.get_by_role("button", name="Close").click()
        table.get_by_text("cancel").first.wait_for()
        visitor.check()


@pytest.mark.parametrize("kind", ["Compaction", "Promotion"])
def test_moves_are_planned_and_asked_for(browser: Any, tmp_path: Path, kind: str) -> None:
    with running_here(tmp_path) as (simulated, address), visiting(browser, address) as visitor:
        wait_for(lambda: simulated.daemon.loop.report)
        page = visitor.go("drains", "Drains and moves")
        page.get_by_role("button", name=f"Show what would move ({kind.lower()})").click()
        page.get_by_text("Not possible.").wait_for()
        page.get_by_role("button", name=f"{kind}…", exact=True).click()
        dialog = page.locator("dialog[open]")
        dialog.get_by_role("button", name="Begin").click()
        dialog.locator(".result").wait_for()
        visitor.check()


def test_calibration(browser: Any, tmp_path: Path) -> None:
    with running_here(tmp_path) as (simulated, address), visiting(browser, address) as visitor:
        page = visitor.go("calibration", "Calibration")
        page.get_by_text("Nothing has been learned yet").wait_for()
        visitor.check()
        simulated.submit_urgent(6, work_s=600)
        page.get_by_role("table", name="By application").wait_for()
        visitor.check()


def test_the_audit_trail_is_for_admins(browser: Any, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with running_here(tmp_path / "a") as (_, address), visiting(browser, address) as visitor:
        page = visitor.go("audit", "Not found")
        assert page.get_by_role("link", name="Audit").count() == 0
        visitor.check()
    with running_here(tmp_path / "b", role="admin") as (_, address), visiting(browser, address) as visitor:
        page = visitor.go("audit", "Audit trail")
        page.get_by_role("table", name="Audit trail").wait_for()
        page.get_by_role("button", name="Check that no entry was changed").click()
        page.get_by_text("entries are intact").wait_for()
        visitor.check()
