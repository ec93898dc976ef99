"""Commands that look at a daemon's work and decide about it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from clearway.cli import render
from clearway.model.operations import EvictionState
from clearway.simulation.jobs import Program
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
    assert found["backend"] == "simulated"
    assert found["paused"] is False
    assert [e["state"] for e in found["open_evictions"]] == ["awaiting_approval"]
    shown = site.run("status").stdout
    assert "Slurm through simulated" in shown
    assert "awaiting" in shown


def test_leaders_and_a_lease_that_is_taken_away(site: Site) -> None:
    (leader,) = site.json("leaders")
    assert (leader["epoch"], leader["owner"], leader["ended"]) == (1, "clearway", None)
    forced = site.run("takeover", "--force")
    assert "taken from clearway" in forced.stdout
    assert "may still take effect" in forced.stderr
    (leader,) = site.json("leaders")
    assert leader["ended"] == "forced"
    assert leader["ended_by"].endswith("(command line)")
    assert "forced by" in site.run("leaders").stdout
    assert "No daemon leads." in site.run("status").stdout


def test_status_before_the_daemon_has_run(tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    file.write_text(f'[store]\nurl = "sqlite:///{tmp_path}/none.sqlite"\n')
    result = clearway("status", "--config", file)
    assert result.exit_code == 1
    assert "has the daemon run yet?" in one_line(result.stderr)
    assert not (tmp_path / "none.sqlite").exists(), "asking creates no database"


def test_list(site: Site) -> None:
    for state, count in (("all", 1), ("planned", 1), ("active", 0), ("past", 0)):
        found = site.json("evictions", "list", "--state", state)
        assert len(found) == count, state
    (only,) = site.json("evictions", "list")
    assert only["eviction_id"] == 1
    assert only["mode"] == "approve"
    assert only["nodes_needed"] == 2
    assert only["user"] == "ursula"
    assert "ursula" in site.run("evictions", "list").stdout
    assert site.run("evictions", "list", "--state", "past").stdout == "There are none.\n"


def test_show(site: Site) -> None:
    found = site.json("evictions", "show", 1)
    assert {verdict["job_id"] for verdict in found["verdicts"]} == {str(number) for number in range(1, 9)}
    assert all(verdict["reason"] and verdict["code"] for verdict in found["verdicts"])
    assert len(found["placement_nodes"]) == 2
    assert [p["state"] for p in found["preemptions"]] == ["planned", "planned"]
    assert found["curve"][0]["max_delay_s"] == 0
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
    assert found["cost"]["lost_work_node_s"] == pytest.approx(300, abs=5)
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
        assert (result.exit_code, result.stdout) == (0, "approved\n")
        again = site.run("evictions", "approve", 1)
        assert again.exit_code == 1
        assert again.stdout.startswith("refused: eviction 1 is ")
        result = site.run("evictions", "cancel", 1)
        assert (result.exit_code, result.stdout) == (0, "cancelled\n")
    site.world.run_until(site.world.settled, limit_s=900, every_s=2)
    (found,) = site.json("evictions", "list", "--state", "past")
    assert found["state"] == EvictionState.CANCELLED
    assert "(command line)" in found["outcome"]
    assert not site.world.leftovers()


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
