"""What ``clearway drain``, ``compact`` and ``promote`` print: one line for people, one document for programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from clearway.cli import asker, database, render
from clearway.estimates.learning import key_of
from clearway.model.claims import read_claims
from clearway.model.problem import Action
from clearway.model.records import CheckpointOutcome, CheckpointRecord
from clearway.simulation.backend import SimulatedBackend
from clearway.simulation.jobs import Program
from tests.simulation.moving_jobs import moving, serial
from tests.simulation.world import SAVES, World
from tests.unit.cli.running import Site


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(asker, "actor", lambda: "root (command line)")


@pytest.fixture
def site(make_world: Callable[..., World], tmp_path: Path) -> Site:
    world = make_world()
    world.submit(Program(save_s=0.5), on=("n1",), ran_s=100, comment=SAVES)
    world.submit(on=("n2",), ran_s=100, user="bob")
    return Site(world, tmp_path)


@pytest.fixture
def moves(make_world: Callable[..., World], tmp_path: Path) -> Site:
    world = make_world(config=moving())
    serial(world, "n1")
    serial(world, "n3", cpus=2)
    world.tick()
    return Site(world, tmp_path)


def planned_from(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dry runs look at the simulated cluster."""
    backend = SimulatedBackend(site.world.cluster, site.world.clock)
    monkeypatch.setattr(database, "open_backend", lambda *_: backend)


def test_a_drain_is_answered_in_json(site: Site) -> None:
    with site.cycling():
        begun = site.json("drain", "n3")
        assert begun["result"] == "drain 1: emptying n3"
        assert (begun["code"], begun["eviction_id"], begun["rolling_id"]) == ("done", 1, None)
        waited = site.json("drain", "n1", "--wait")
        told = (waited["eviction_id"], waited["drain"]["nodes"], waited["outcome"])
        assert told == (2, "n1", "The nodes are empty.")
        rolling = site.json("drain", "n4", "--rolling", 1)
        assert (rolling["rolling_id"], rolling["code"]) == (1, "done")
        refused = site.run("drain", "n9", "-o", "json")
    assert refused.exit_code == 1
    told = json.loads(refused.stdout)
    assert (told["code"], told["result"]) == ("refused", "refused: n9 is not a node of this cluster")


def test_bringing_back_is_answered_in_json(site: Site) -> None:
    with site.cycling():
        assert site.run("drain", "n3", "--wait").exit_code == 0
        back = site.run("undrain", "n3", "-o", "json")
        none = site.run("undrain", "n9", "-o", "json")
    told = json.loads(back.stdout)
    assert (back.exit_code, told["result"], told["code"]) == (0, "brought back n3", "done")
    assert (none.exit_code, json.loads(none.stdout)["code"]) == (1, "refused")


@pytest.mark.parametrize("command", ["drain", "undrain"])
@pytest.mark.parametrize(("nodes", "told"), [("", "is empty"), ("n" * 4_097, "has more than 4096 characters")])
def test_a_list_that_is_none_is_refused_in_words(site: Site, command: str, nodes: str, told: str) -> None:
    assert site.run(command, nodes).stderr == f"clearway: nodes: {told}\n"
    assert site.world.store.pending_requests() == ()


def test_a_drain_that_is_not_possible_fails_in_json_as_well(site: Site) -> None:
    with site.cycling():
        result = site.run("drain", "n2", "--wait", "-o", "json")
    assert result.exit_code == 1
    told = json.loads(result.stdout)
    assert told["state"] == "cancelled"
    assert "1 job(s) in the way" in told["outcome"]


def test_a_compaction_is_answered_in_json(moves: Site) -> None:
    with moves.cycling(each_s=1.0):
        refused = moves.run("promote", "-o", "json")
        moved = moves.json("compact", "--wait")
    assert (refused.exit_code, json.loads(refused.stdout)["code"]) == (1, "refused")
    assert (moved["drain"]["move"]["kind"], moved["state"]) == ("compaction", "completed")


def test_a_request_without_an_answer_says_that_it_will_be_carried_out(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(render, "_ANSWER_LIMIT_S", 0.0)
    monkeypatch.setattr(render, "wait_for", lambda answer: answer())
    result = site.run("drain", "n1")
    assert result.exit_code == 1
    assert result.stderr == (
        "clearway: the daemon has not answered yet (clearway status); "
        "request 1 is stored, and carried out as soon as it does\n"
    )


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("n1", "1 job(s) would leave n1; saving them takes "),
        ("n[3-5]", "No job is on n[3-5]: nothing would have to leave."),
    ],
)
def test_a_dry_run_begins_with_what_would_be_done(
    site: Site, monkeypatch: pytest.MonkeyPatch, nodes: str, first: str
) -> None:
    planned_from(site, monkeypatch)
    shown = site.run("drain", nodes, "--dry-run").stdout
    assert shown.startswith(first)
    assert ("Trade-off" in shown) == (nodes == "n1")
    assert ("Every job, with the reason" in shown) == (nodes == "n1")


def test_a_dry_run_of_a_drain_knows_what_the_daemon_has_learned(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    planned_from(site, monkeypatch)
    world = site.world
    job, now = world.cluster.running()[0].job, world.clock.now()
    claims, _ = read_claims(job)
    assert claims is not None
    assert site.run("drain", "n1", "--dry-run").exit_code == 0
    for eviction_id in range(world.config.learning.failures):
        failed = CheckpointRecord(
            **key_of(job, claims)._asdict(),
            eviction_id=eviction_id,
            job_id=job.job_id,
            run=0,
            action=Action.APP_CHECKPOINT,
            nodes=1,
            asked_at=now,
            ended_at=now,
            outcome=CheckpointOutcome.FAILED,
            predicted_s=1.0,
        )
        assert world.store.record_checkpoint(failed)
    refused = site.run("drain", "n1", "--dry-run")
    assert refused.exit_code == 1
    assert "1 job(s) in the way" in refused.stdout


def test_a_dry_run_of_moves_tells_where_they_go(moves: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    planned_from(moves, monkeypatch)
    with moves.file.open("a") as settings:
        settings.write('[compaction]\nmin_gain = 0.1\n[candidates]\nmin_runtime = "0s"\n')
    table = moves.run("compact", "--dry-run").stdout
    assert table.startswith("Compaction: 1 job(s) would move; n1 would become empty; gain ")
    assert "Trade-off" not in table
    told = moves.json("compact", "--dry-run")["drain"]["move"]
    assert [(each["source"], each["target"], each["processors"]) for each in told["moves"]] == [("n1", "n3", 1)]
    assert told["gain_node_s"] > 2 * told["cost_node_s"] > 0
    assert moves.run("promote", "--dry-run").stdout.startswith("Not possible: all nodes in question rank alike")


def test_on_a_narrow_screen_outcomes_have_room(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    with site.cycling():
        site.run("drain", "n2", "--wait")
    monkeypatch.setenv("COLUMNS", "80")
    shown = site.run("evictions", "list").stdout.splitlines()
    assert max(map(len, shown)) <= 80
    assert len(shown) <= 6  # twelve with every column
    assert "planned" in site.run("evictions", "list", "-o", "wide").stdout
    monkeypatch.setenv("COLUMNS", "120")
    assert "planned" in site.run("evictions", "list").stdout
    monkeypatch.delenv("COLUMNS")
    assert "planned" in site.run("evictions", "list").stdout, "a pipe is no narrow screen"
