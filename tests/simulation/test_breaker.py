"""Nodes that are lost after jobs have left them: two stop everything until an operator has looked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from clearway.api.views import read_status
from clearway.model.cluster import JobState
from clearway.model.operations import EvictionState
from clearway.model.requests import RequestKind
from clearway.simulation.jobs import Program
from tests.simulation.world import World, config

LONG = Program(work_s=50_000.0, exit_s=0.5)


def filled(make_world: Callable[..., World], nodes: int, mode: str = "automatic") -> World:
    world = make_world(config=config(mode=mode), node_count=nodes)
    for number in range(1, nodes + 1):
        world.submit(LONG, on=(f"n{number}",), ran_s=100 * number)
    world.tick()
    return world


def left(world: World) -> list[str]:
    return [job_id for job_id, entry in world.cluster.jobs.items() if entry.job.restart_count]


def approve_all(world: World) -> None:
    for e in world.store.open_evictions():
        if e.state is EvictionState.AWAITING_APPROVAL:
            world.store.add_request(RequestKind.APPROVE, e.eviction_id, "root", world.clock.now())


def run(world: World, seconds: float) -> None:
    """Approving whatever waits for it, as an operator who does not look."""
    end = world.clock.now().timestamp() + seconds
    while world.clock.now().timestamp() < end:
        approve_all(world)
        world.tick()


@pytest.mark.parametrize("mode", ["automatic", "approve"])
@pytest.mark.parametrize("nodes", [8, 24])
@pytest.mark.parametrize("dies_after_s", [None, 60.0])
@pytest.mark.fault(
    "Where an epilog failed on each freed node, one urgent job cost a cluster all of its jobs, one every two seconds.",
    found_by="trial",
)
def test_one_urgent_job_costs_two_jobs_at_most(
    make_world: Callable[..., World], nodes: int, mode: str, dies_after_s: float | None
) -> None:
    world = filled(make_world, nodes, mode)
    world.cluster.drains_for = "Epilog error" if dies_after_s is None else "Kill task failed"
    world.cluster.dies_after_s = dies_after_s
    urgent = world.urgent(1)
    run(world, 200)
    assert 1 <= len(left(world)) <= 2
    assert world.state(urgent) is JobState.PENDING
    report = world.tick()
    assert "nodes were lost after jobs had left them" in report.stopped
    (waiting,) = report.waiting
    assert "clearway resume goes on" in waiting.why
    assert world.leftovers() == []


def test_no_other_urgent_job_is_served_either_until_an_operator_has_looked(make_world: Callable[..., World]) -> None:
    world = filled(make_world, 8)
    world.cluster.drains_for = "Epilog error"
    first = world.urgent(1)
    run(world, 60)
    other = world.urgent(1, user="vera")
    run(world, 120)
    gone = left(world)
    assert len(gone) == 2
    world.start_daemon()  # a restart forgets nothing
    assert world.tick().stopped
    shown = read_status(world.store, world.clock.now(), world.config.daemon)
    assert "Epilog error" in shown.stopped
    run(world, 60)
    assert left(world) == gone

    world.cluster.drains_for = ""
    world.store.add_request(RequestKind.RESUME, None, "root", world.clock.now())
    world.run_until(lambda: world.started(other) is not None, limit_s=120)
    assert world.started(first) is None  # two have left for it: it is asked about once more
    approve_all(world)
    world.run_until(lambda: world.started(first) is not None, limit_s=120)
    assert not world.tick().stopped  # the nodes are lost still, and were looked at
    assert len(left(world)) == 4


def test_jobs_that_have_left_come_back_while_it_is_stopped(make_world: Callable[..., World]) -> None:
    world = filled(make_world, 8)
    world.cluster.drains_for = "Epilog error"
    world.urgent(1)
    world.run_until(lambda: bool(world.loop.report and world.loop.report.stopped), limit_s=120)
    world.cluster.drains_for = ""
    for name in ("n1", "n2"):
        world.cluster.bring_back(name)
    back = left(world)
    world.run_until(lambda: all(world.state(job_id) is JobState.RUNNING for job_id in back), limit_s=600)


def test_a_node_that_is_lost_alone_stops_nothing(make_world: Callable[..., World]) -> None:
    """Nor do nodes that were out of order before, that are silent for a moment, or that Clearway has drained."""
    world = filled(make_world, 8)
    world.cluster.drains_for = "Epilog error"
    urgent = world.urgent(1)
    world.run_until(lambda: len(left(world)) == 1, limit_s=60)
    world.run_until(lambda: not world.cluster.nodes["n1"].available, limit_s=60)
    world.cluster.drains_for = ""
    for name, state, reason in (("n7", "DOWN", ""), ("n8", "IDLE*", ""), ("n6", "IDLE+DRAIN", "clearway drain 9")):
        node = world.cluster.nodes[name]
        world.cluster.nodes[name] = replace(node, available=False, raw_state=state, reason=reason)
    world.run_until(lambda: world.started(urgent) is not None, limit_s=60)
    run(world, 120)
    assert not world.tick().stopped
    assert len(left(world)) == 2


def test_all_that_were_planned_and_no_more(make_world: Callable[..., World]) -> None:
    """Four leave at once for an urgent job of four nodes; no fifth follows."""
    world = filled(make_world, 12)
    world.cluster.drains_for = "Epilog error"
    world.urgent(4)
    run(world, 120)
    assert len(left(world)) == 4
    assert world.tick().stopped
