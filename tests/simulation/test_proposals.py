"""Proposals stay true while they wait, can be approved in time, and do not fill the database."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from sqlalchemy import text

from clearway.model.operations import EvictionState
from clearway.model.outcome import OutcomeCode
from clearway.model.problem import Action
from clearway.model.requests import RequestKind
from clearway.simulation.jobs import Program
from clearway.store.repository import Store
from tests.simulation.bad_days import busy, finish, untouched
from tests.simulation.world import SAVES, World, config

AT_ONCE = [{"partition": ["urgent"], "max_delay": "0s"}]
OVER_BUDGET = {"jobs_per_hour": 0}


def rows(world: World, table: str) -> int:
    with world.store._database.reading() as connection:
        return int(connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one())


def long_running(world: World, comment: str = SAVES) -> list[str]:
    return busy(world, Program(work_s=1e6, save_s=3.0), comment=comment)


def approve(world: World) -> str:
    waits = [e for e in world.store.open_evictions() if e.state is EvictionState.AWAITING_APPROVAL]
    number = world.store.add_request(RequestKind.APPROVE, waits[0].eviction_id, "olga", world.clock.now())
    world.tick()
    answer = world.store.request(number)
    assert answer is not None
    return answer.result


@pytest.mark.parametrize("comment", [SAVES, ""], ids=["saves", "kill"])
@pytest.mark.fault("Proposals of observe mode made the database grow by 34 GB a day.", found_by="load")
def test_a_waiting_job_without_any_delay_stores_one_proposal(make_world: Callable[..., World], comment: str) -> None:
    world = make_world(config=config("observe", preemptors=AT_ONCE))
    jobs = long_running(world, comment)
    world.urgent(2)
    for _ in range(40):
        world.tick(6.0)
    eviction = world.eviction()
    assert eviction.state is EvictionState.PROPOSED
    assert rows(world, "plans") == 1
    assert 2 <= eviction.revision <= 6, "its figures are those of the last minute"
    assert (world.clock.now() - eviction.plan.made_at).total_seconds() <= 66
    assert world.store.plans(eviction.eviction_id) == (eviction.plan,)
    assert untouched(world, jobs)


def test_a_proposal_that_does_not_fit_any_more_is_replaced_in_place(make_world: Callable[..., World]) -> None:
    world = make_world(config=config("observe"))
    long_running(world)
    world.urgent(1)
    world.tick()
    first = world.eviction()
    (chosen,) = first.preemptions
    world.cluster.end_run(world.cluster.jobs[chosen.job_id], requeue=False)
    for number in range(1, 9):  # so that the node that is free now does not serve
        world.submit(Program(work_s=1e6), on=(f"n{number}",), num_nodes=1, cpus_per_node=1)
    world.tick()
    second = world.eviction()
    assert second.eviction_id == first.eviction_id
    assert second.plan != first.plan
    assert rows(world, "preemptions") == len(second.preemptions)


def test_a_proposal_without_another_plan_is_put_aside(make_world: Callable[..., World]) -> None:
    world = make_world(config=config("observe", candidates={"min_runtime": 0, "allow_kill": False}))
    jobs = long_running(world)
    world.urgent(8)
    world.tick()
    assert world.eviction().state is EvictionState.PROPOSED
    world.cluster.end_run(world.cluster.jobs[jobs[0]], requeue=False)
    world.submit(Program(work_s=1e6), on=("n1",), comment="")
    world.tick()
    assert world.eviction().state is EvictionState.SUPERSEDED


@pytest.mark.parametrize(
    ("mode", "state"), [("automatic", EvictionState.PREEMPTING), ("approve", EvictionState.AWAITING_APPROVAL)]
)
@pytest.mark.fault(
    "A proposal of observe mode kept its urgent job waiting after the mode had changed.", found_by="reading"
)
def test_a_proposal_is_planned_anew_when_the_daemon_may_act(
    make_world: Callable[..., World], mode: str, state: EvictionState
) -> None:
    world = make_world(config=config("observe"))
    long_running(world)
    world.urgent(2)
    world.tick()
    proposed = world.eviction()
    assert proposed.state is EvictionState.PROPOSED
    world.loop.reconfigure(config(mode))
    world.tick()
    before = world.store.eviction(proposed.eviction_id)
    assert before is not None
    assert (before.state, before.outcome) == (
        EvictionState.SUPERSEDED,
        "Not carried out: the daemon does not only observe any more.",
    )
    (after,) = world.store.open_evictions()
    assert (after.state, after.preemptor.job_id) == (state, proposed.preemptor.job_id)


@pytest.mark.parametrize("mode", ["automatic", "approve"])
@pytest.mark.parametrize("rules", [AT_ONCE, [{"partition": ["urgent"], "max_delay": "60s"}]], ids=["0s", "60s"])
def test_an_operator_has_time_to_approve(make_world: Callable[..., World], mode: str, rules: object) -> None:
    world = make_world(config=config(mode, preemptors=rules, budget=OVER_BUDGET))
    long_running(world, "" if rules is AT_ONCE else SAVES)
    urgent = world.urgent(2)
    world.tick()
    first = world.eviction()
    assert first.state is EvictionState.AWAITING_APPROVAL
    for _ in range(50):
        world.tick(12.0)
    later = world.eviction()
    assert later.eviction_id == first.eviction_id
    assert later.state is EvictionState.AWAITING_APPROVAL
    assert {p.job_id for p in later.preemptions} == {p.job_id for p in first.preemptions}
    assert rows(world, "plans") == 1
    world.clock.advance(50)  # its time may have passed when the answer comes
    assert approve(world).startswith("approved: ")
    finish(world, urgent)
    assert world.eviction().eviction_id == first.eviction_id


def test_what_was_approved_is_what_is_done(make_world: Callable[..., World]) -> None:
    """Its jobs would have to leave in another way by now: that needs another look."""
    world = make_world(config=config("approve", preemptors=[{"partition": ["urgent"], "max_delay": "10m"}]))
    jobs = long_running(world)
    world.urgent(1)
    world.tick()
    first = world.eviction()
    assert [p.action for p in first.preemptions] == [Action.APP_CHECKPOINT]
    entry = world.cluster.jobs[first.preemptions[0].job_id]
    entry.job = replace(entry.job, comment="")
    world.clock.advance(1_000)
    for _ in range(3):
        world.tick()
    newest, oldest = world.store.evictions()
    assert oldest.outcome_code is OutcomeCode.SUPERSEDED
    assert newest.state is EvictionState.AWAITING_APPROVAL
    assert untouched(world, jobs)


def test_what_was_put_aside_is_kept_briefly(make_world: Callable[..., World]) -> None:
    world = make_world(config=config("approve"))
    long_running(world)
    for _ in range(5):
        urgent = world.urgent(1)
        world.tick()
        world.cluster.withdraw(world.cluster.jobs[urgent])
        world.tick()
    assert [e.state for e in world.store.evictions()] == [EvictionState.SUPERSEDED] * 5
    for _ in range(15):
        world.tick(60.0)
    assert not world.store.evictions()


def test_a_database_that_is_too_large_takes_no_proposals(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(config=config("observe", daemon={"mode": "observe", "database_limit_mib": 1}))
    jobs = long_running(world)
    assert world.store.size_bytes() > 0
    world.tick()
    report = world.tick()
    assert report.database_bytes == world.store.size_bytes()
    monkeypatch.setattr(Store, "size_bytes", lambda _: 2**21)
    world.tick(61.0)
    world.urgent(1)
    report = world.tick()
    assert "database_limit_mib" in report.waiting[0].why
    assert not world.store.evictions()
    automatic = make_world(config=config(daemon={"mode": "automatic", "database_limit_mib": 1}))
    long_running(automatic)
    automatic.tick()
    finish(automatic, automatic.urgent(1))
    assert untouched(world, jobs)
