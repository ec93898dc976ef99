"""What an urgent job asks for, as it waits, as no plan is possible for it, and while others leave for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from clearway.estimates.costs import TIME_LIMIT_SLACK_S
from clearway.model.operations import EvictionState
from clearway.simulation.jobs import Program
from tests.simulation.bad_days import busy
from tests.simulation.world import SAVES, World, config

PATIENT = {"name": "patient", "qos": ["patient"], "max_delay": "300s", "max_kill_loss": 0}
RESCUE = {"name": "rescue", "qos": ["rescue"], "max_delay": "25s"}


def change(world: World, job_id: str, **fields: Any) -> None:
    entry = world.cluster.jobs[job_id]
    entry.job = replace(entry.job, **fields)


def waited_s(world: World, job_id: str, since: float) -> float:
    started = world.started(job_id)
    assert started is not None
    return started.timestamp() - since


def until_started(world: World, job_id: str, limit_s: float = 120.0) -> float:
    """Seconds from now on."""
    since = world.clock.now().timestamp()
    world.run_until(lambda: world.started(job_id) is not None, limit_s=limit_s)
    return waited_s(world, job_id, since)


def rules(make_world: Callable[..., World], **sections: Any) -> World:
    return make_world(config=config(preemptors=[PATIENT, RESCUE], **sections))


@pytest.mark.fault(
    "An urgent job whose QoS came under a rule with a shorter delay was looked at 30 s later, after its deadline.",
    found_by="trial",
)
def test_another_rule_is_another_ask_where_there_was_no_plan(make_world: Callable[..., World]) -> None:
    """Nothing can be saved, and its first rule lets nothing be lost."""
    world = rules(make_world)
    busy(world, comment="")
    urgent = world.urgent(2, qos="patient")
    world.tick()
    world.tick()
    assert not world.store.evictions()
    change(world, urgent, qos="rescue")
    assert until_started(world, urgent) <= 10.0


@pytest.mark.parametrize(
    "fields", [{"num_nodes": 1}, {"comment": "clearway:max_delay=200"}, {"time_limit_s": 10}], ids=str
)
def test_a_changed_job_is_looked_at_again_at_once(make_world: Callable[..., World], fields: dict[str, Any]) -> None:
    world = make_world(config=config(candidates={"allow_kill": False}))
    world.submit(Program(work_s=1e6, save_s=100.0), on=tuple(f"n{n}" for n in range(1, 8)), num_nodes=7, ran_s=9.0)
    saves = f"{SAVES},took=100"
    world.submit(Program(work_s=1e6, save_s=100.0), on=("n8",), ran_s=9.0, comment=saves)
    urgent = world.urgent(1)
    world.tick()
    assert not world.store.evictions()
    solved = world.loop.report
    assert solved is not None
    change(world, urgent, **fields)
    world.tick()
    assert bool(world.store.evictions()) is ("comment" in fields)


@pytest.mark.fault(
    "What could not be planned was not looked at again when time alone had changed the answer.", found_by="trial"
)
def test_a_job_that_comes_of_age_is_a_candidate_at_that_moment(make_world: Callable[..., World]) -> None:
    rule = {"partition": ["urgent"], "max_delay": "35s"}
    world = make_world(config=config(preemptors=[rule], candidates={"min_runtime": "20s"}))
    for number in range(1, 9):
        world.submit(Program(work_s=1e6), on=(f"n{number}",), ran_s=17.0)
    urgent = world.urgent(1)
    assert until_started(world, urgent) <= 3.0 + 10.0


def test_an_end_that_comes_within_the_delay_once_more(make_world: Callable[..., World]) -> None:
    """Its deadline has passed: its delay counts again from every moment, and then an end comes within it."""
    rule = {"partition": ["urgent"], "max_delay": "60s"}
    world = make_world(config=config(preemptors=[rule], candidates={"allow_kill": False}))
    for number in range(1, 9):
        world.submit(Program(work_s=1e6), on=(f"n{number}",), ran_s=10.0, time_limit_s=10 + 300 + number)
    urgent = world.urgent(1)
    for _ in range(640):
        world.tick()
        if world.store.evictions():
            break
    made = world.eviction().plan.made_at
    waited = (made - world.cluster.jobs[urgent].job.submit_time).total_seconds()
    ends_s = 301.0 + TIME_LIMIT_SLACK_S  # the first of them
    assert ends_s - 60 <= waited <= ends_s - 60 + 8


@pytest.mark.fault(
    "A shorter delay that an urgent job got while others saved themselves did not count.", found_by="trial"
)
def test_a_shorter_deadline_while_jobs_save_themselves(make_world: Callable[..., World]) -> None:
    """The plan that is carried out would be too late for it: another one is made in its place."""
    rule = {"name": "slow", "qos": ["slow"], "max_delay": "300s"}
    world = make_world(config=config(preemptors=[rule, RESCUE]))
    busy(world, Program(work_s=1e6, save_s=100.0), f"{SAVES},took=100")
    urgent = world.urgent(2, qos="slow")
    for _ in range(4):
        world.tick()
    assert world.eviction().state is EvictionState.PREEMPTING
    change(world, urgent, qos="rescue", eligible_time=None)
    assert until_started(world, urgent) <= 25.0
    done = world.eviction()
    assert (done.revision, done.plan.rule) == (1, "rescue")
    assert done.plan.ask is not None
    assert done.plan.ask.max_delay_s == 25.0


@pytest.mark.parametrize(
    "fields",
    [{"name": "other"}, {"comment": "for the record"}, {"priority": 5}, {"reason": "Priority"}, {"dependency": ""}],
    ids=str,
)
def test_what_does_not_matter_costs_no_plan(world: World, fields: dict[str, Any]) -> None:
    busy(world, Program(work_s=1e6, save_s=8.0), f"{SAVES},took=8")
    urgent = world.urgent(2)
    for _ in range(3):
        world.tick()
    change(world, urgent, **fields)
    assert until_started(world, urgent) <= 20.0
    assert world.eviction().revision == 0


def test_a_job_that_is_urgent_no_more_gets_nothing(make_world: Callable[..., World]) -> None:
    world = rules(make_world)
    jobs = busy(world, Program(work_s=1e6, save_s=8.0), f"{SAVES},took=8")
    urgent = world.urgent(2, qos="rescue")
    for _ in range(3):
        world.tick()
    change(world, urgent, qos="normal")
    world.run_until(world.settled)
    assert world.eviction().state is EvictionState.CANCELLED
    assert "is not urgent any more" in world.eviction().outcome
    assert all(len(world.cluster.jobs[job_id].runs) == 1 for job_id in jobs)
    assert not world.leftovers()


def test_an_approved_plan_is_not_replaced_by_another(make_world: Callable[..., World]) -> None:
    """What the operator has not read is not carried out."""
    world = make_world(config=config("approve", preemptors=[{"partition": ["urgent"], "max_delay": "300s"}]))
    jobs = busy(world, Program(work_s=1e6, save_s=20.0), f"{SAVES},took=20")
    urgent = world.urgent(2)
    world.tick()
    world.store.add_request("approve", world.eviction().eviction_id, "olga", world.clock.now())
    for _ in range(4):
        world.tick()
    assert world.eviction().state is EvictionState.PREEMPTING
    change(world, urgent, excluded_nodes=("n1",))
    for _ in range(12):
        world.tick(2.0)
    first, *others = sorted(world.store.evictions(), key=lambda e: e.eviction_id)
    assert first.state is EvictionState.CANCELLED
    assert "has to be approved" in first.outcome
    assert [e.state for e in others] == [EvictionState.AWAITING_APPROVAL]
    assert all(len(world.cluster.jobs[job_id].runs) == 1 for job_id in jobs)
