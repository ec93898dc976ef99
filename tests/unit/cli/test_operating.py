"""Commands that look at a daemon's work and decide about it."""

import json
import re
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from clearway.cli import render
from clearway.execution.restraints import BREAKER
from clearway.model.errors import StoreError
from clearway.model.operations import EvictionState
from clearway.simulation.jobs import Program
from clearway.store.repository import Store
from tests.simulation.world import SAVES, World, config
from tests.unit.cli.running import Site, clearway, one_line


@pytest.fixture
def site(make_world: Callable[..., World], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setenv("COLUMNS", "200")
    world = make_world(config=config("approve"))
    for number in range(1, 9):
        world.submit(Program(save_s=3.0), on=(f"n{number}",), ran_s=100 * number, comment=SAVES if number > 4 else "")
    world.urgent(2)
    world.tick()
    return Site(world, tmp_path)


def test_status(site: Site) -> None:
    found = site.json("status")
    assert (found["running"], found["mode"], found["leader"]) == (True, "approve", "clearway")
    assert found["backend"] == "simulated"
    assert found["paused"] is False
    assert [e["state"] for e in found["open_evictions"]] == ["awaiting_approval"]
    (waiting,) = found["waiting"]
    assert (waiting["job_id"], waiting["user"], waiting["eviction_id"]) == ("9", "ursula", 1)
    assert waiting["left_s"] == pytest.approx(59.5)
    shown = [line.rstrip() for line in site.run("status").stdout.splitlines()]
    assert shown[0] == "Running in mode approve. clearway leads; last sign of life 0s ago."
    assert shown[1] == "Slurm 26.05.0 through simulated; Clearway acts on this release as its mode says."
    assert shown.index("Urgent jobs that wait") < shown.index("Waits for approval (clearway evictions approve NUMBER)")


def test_status_on_a_release_that_was_never_tried(site: Site) -> None:
    site.world.backend.slurm_version = "31.05.1"
    site.world.tick()
    why = "Slurm 31.05.1 is newer than 26.05, the newest that Clearway was tried with; "
    why += 'slurm.act_on_release = "31.05" lets it act'
    found = site.json("status")
    assert (found["slurm_version"], found["only_observes"]) == ("31.05.1", why)
    shown = site.run("status").stdout
    assert "Slurm 31.05.1 through simulated." in shown
    assert f"It only observes, whatever its mode: {why}." in shown


def test_status_of_a_daemon_that_is_gone(site: Site) -> None:
    """It said "Last sign of life 1h ago" among other lines, and the exit status was 0."""
    died = site.world.clock.now()
    site.world.clock.advance(3_600)
    result = site.run("status")
    assert result.exit_code == 3
    since = f"NOT RUNNING since {render.when(died)} (1h00m ago): no daemon leads. It was in mode approve."
    assert result.stdout.splitlines()[0] == since
    told = json.loads(site.run("status", "-o", "json").stdout)
    assert (told["running"], told["leader"]) == (False, None)
    assert datetime.fromisoformat(told["not_running_since"]) == died


def test_status_of_a_daemon_that_has_stopped_in_order(site: Site) -> None:
    site.world.loop.leadership.release()
    result = site.run("status")
    assert (result.exit_code, result.stdout.startswith("NOT RUNNING since ")) == (3, True)


def test_status_where_nodes_were_lost(site: Site) -> None:
    site.world.store.set_value(BREAKER, {"stopped": "n1 and n2 were lost"})
    told = "Stopped: n1 and n2 were lost. No job is made to leave. Look at these nodes, then: clearway resume"
    assert told in site.run("status").stdout.splitlines()


def test_status_where_the_database_cannot_be_read(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise StoreError("the server does not answer")

    monkeypatch.setattr(Store, "sign_of_life", failing)
    result = site.run("status")
    assert result.exit_code == 3
    assert one_line(result.stderr) == "clearway: not known whether Clearway runs: the server does not answer"


def test_status_is_shown_again_and_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = []

    def sleep(_: float) -> None:
        shown.append(1)
        if len(shown) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    result = site.run("status", "--watch")
    assert result.exit_code == 0
    assert result.stdout.count("Running in mode approve") == 3


def test_leaders_and_a_lease_that_is_taken_away(site: Site) -> None:
    (leader,) = site.json("leaders")["items"]
    assert (leader["epoch"], leader["owner"], leader["ended"]) == (1, "clearway", None)
    forced = site.run("takeover", "--force")
    assert "taken from clearway" in forced.stdout
    assert "may still take effect" in forced.stderr
    (leader,) = site.json("leaders")["items"]
    assert leader["ended"] == "forced"
    assert leader["ended_by"].endswith("(command line)")
    assert "forced by" in site.run("leaders").stdout
    assert "NOT RUNNING since " in site.run("status").stdout


def test_status_before_the_daemon_has_run(tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    file.write_text(f'[store]\nurl = "sqlite:///{tmp_path}/none.sqlite"\n')
    result = clearway("status", "--config", file)
    assert result.exit_code == 3
    assert "has the daemon run yet?" in one_line(result.stderr)
    assert not (tmp_path / "none.sqlite").exists(), "asking creates no database"


def test_list(site: Site) -> None:
    for state, count in (("all", 1), ("planned", 1), ("active", 0), ("past", 0)):
        found = site.json("evictions", "list", "--state", state)["items"]
        assert len(found) == count, state
    (only,) = site.json("evictions", "list")["items"]
    assert only["eviction_id"] == 1
    assert only["mode"] == "approve"
    assert only["nodes_needed"] == 2
    assert only["user"] == "ursula"
    assert "ursula" in site.run("evictions", "list").stdout
    assert site.run("evictions", "list", "--state", "past").stdout == "There are none.\n"


def test_show(site: Site) -> None:
    found = site.json("evictions", "show", 1)
    verdicts = site.json("evictions", "verdicts", 1)["items"]
    assert {verdict["job_id"] for verdict in verdicts} == {str(number) for number in range(1, 9)}
    assert all(verdict["reason"] and verdict["code"] for verdict in verdicts)
    assert found["plan"]["placement_nodes"] == "n[1-2]"
    assert site.json("evictions", "steps", 1) == {"items": []}
    assert [p["state"] for p in found["preemptions"]] == ["planned", "planned"]
    assert found["plan"]["curve"]["points"][0]["max_delay_s"] == 0
    shown = site.run("evictions", "show", 1).stdout
    for text in ("Trade-off", "Every job, with the reason", "What was done", "<- chosen"):
        assert text in shown


def test_explain(site: Site) -> None:
    early = site.run("explain", 1)
    assert early.exit_code == 1
    assert "eviction 1 is not explained yet" in one_line(early.stderr)
    assert "no eviction 99" in one_line(site.run("explain", 99).stderr)

    site.world.loop.explain(float("inf"))
    found = site.json("explain", 1)
    assert {each["job_id"] for each in found["alternatives"]} == {str(number) for number in range(1, 9)}
    assert [rule["rule"] for rule in found["rules"]] == [
        "slurm-default",
        "youngest-first",
        "youngest-prune",
        "loss-per-node-prune",
    ]
    # There is no time to save anything: the two jobs go that ran for 100 s and 200 s, which Slurm's own rule does too.
    # They run on for the minute in which an operator may approve that.
    assert found["cost"]["lost_work_node_s"] == pytest.approx(300 + 2 * 60, abs=5)
    assert found["rules"][0]["more_lost_work_node_s"] == 0
    assert (found["exact"], found["gap_ratio"], found["complete"]) == (True, 0.0, True)
    shown = site.run("explain", 1).stdout
    for text in (
        "Why these jobs",
        "Why not the other jobs",
        "What simple rules would have lost",
        "slurm-default",
        "<- chosen",
    ):
        assert text in shown


def test_an_eviction_that_does_not_exist(site: Site) -> None:
    for arguments in (("show", 99), ("approve", 99), ("cancel", 99)):
        result = site.run("evictions", *arguments)
        assert result.exit_code == 1
        assert "no eviction 99" in one_line(result.stderr)


def test_numbers_that_no_database_holds_are_refused(site: Site) -> None:
    for arguments in (
        ("explain",),
        ("evictions", "show"),
        ("evictions", "approve"),
        ("evictions", "cancel"),
        ("rolling", "show"),
        ("rolling", "cancel"),
    ):
        result = site.run(*arguments, 10**20)
        assert result.exit_code == 2
        assert "2147483647" in result.stderr


def test_approve_and_then_cancel(site: Site) -> None:
    with site.cycling(each_s=0.0):  # or the eviction may be over before it is cancelled
        result = site.run("evictions", "approve", 1)
        assert result.exit_code == 0
        approved, became = result.stdout.splitlines()
        assert approved.startswith("approved: job(s) ")
        assert became.startswith("Eviction 1 is preempting: 2 jobs")
        again = site.run("evictions", "approve", 1)
        assert (again.exit_code, again.stdout) == (1, "")
        assert again.stderr.startswith("clearway: refused: eviction 1 is ")
        result = site.run("evictions", "cancel", 1)
        assert (result.exit_code, result.stdout) == (0, "cancelled\n")
    site.world.run_until(site.world.settled, limit_s=900, every_s=2)
    (found,) = site.json("evictions", "list", "--state", "past")["items"]
    assert found["state"] == EvictionState.CANCELLED
    assert "(command line)" in found["outcome"]
    assert not site.world.leftovers()


def test_approve_by_the_urgent_job(site: Site) -> None:
    with site.cycling(each_s=0.0):
        assert "no eviction for the job '77' waits" in one_line(site.run("evictions", "approve", "--job", 77).stderr)
        assert site.run("evictions", "approve").exit_code == 2
        assert site.run("evictions", "approve", 1, "--job", 9).exit_code == 2
        told = site.run("evictions", "approve", "--job", 9).stdout
        assert re.match(r"approved: .*\nEviction 1 is preempting", told)


def test_an_approval_that_comes_to_nothing_says_so_and_what_replaces_it(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer was "approved", and no more was heard of it."""
    world = site.world
    entry = world.cluster.jobs["9"]
    entry.job = replace(entry.job, num_nodes=3)

    def cycles(answer: Callable[[], object]) -> object:
        while (found := answer()) is None:
            world.tick(0.0)
        return found

    monkeypatch.setattr(render, "wait_for", cycles)
    result = site.run("evictions", "approve", 1)
    assert result.exit_code == 1
    told = one_line(result.stderr)
    assert told.startswith("clearway: eviction 1 was superseded, and nothing was done: ")
    assert told.endswith(" Eviction 2 replaces it.")
    again = site.run("evictions", "approve", 1)
    assert one_line(again.stderr) == "clearway: refused: eviction 1 is superseded; eviction 2 replaces it"
    assert site.json("evictions", "show", 1)["replaced_by"] == 2
    assert "Eviction 2 replaces it" in site.run("evictions", "show", 1).stdout


def test_halt_and_unhalt(site: Site) -> None:
    with site.cycling():
        assert site.run("halt").stdout == "halted\n"
        assert site.json("status")["halted"].startswith("halted by ")
        assert "No command is given to Slurm" in site.run("status").stdout
        assert site.run("unhalt").stdout == "not halted any more\n"
    assert site.json("status")["halted"] == ""


def test_pause_and_resume(site: Site) -> None:
    with site.cycling():
        assert site.run("pause").stdout == "paused\n"
        assert site.json("status")["paused"] is True
        assert "Paused: nothing new is begun." in site.run("status").stdout
        assert site.run("resume").stdout == "resumed\n"
    assert site.json("status")["paused"] is False


def test_a_daemon_that_does_not_answer(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    real = render.wait_for
    monkeypatch.setattr(render, "wait_for", lambda answer: real(answer, limit_s=0.2))
    result = site.run("pause")
    assert result.exit_code == 1
    assert "the daemon has not answered yet" in one_line(result.stderr)
    assert len(site.world.store.pending_requests()) == 1
