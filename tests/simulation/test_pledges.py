"""What leaves for one urgent job: as planned, or approved, and what one lost node costs. Beyond that it is asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from clearway.execution.restraints import SUPPRESSED
from clearway.model.cluster import JobState
from clearway.model.operations import EvictionState
from clearway.model.outcome import OutcomeCode
from clearway.model.problem import Action
from clearway.model.requests import RequestKind
from tests.simulation.test_breaker import LONG, filled, left, run
from tests.simulation.world import SAVES, World, config


def waiting_for_approval(world: World) -> list[str]:
    return [e.outcome for e in world.store.open_evictions() if e.state is EvictionState.AWAITING_APPROVAL]


def go_on(world: World, seconds: float) -> None:
    end = world.clock.now().timestamp() + seconds
    while world.clock.now().timestamp() < end:
        world.tick()


def times_left(world: World) -> int:
    return sum(entry.job.restart_count for entry in world.cluster.jobs.values())


def lose_by(world: World, job_id: str, state: str = "DOWN") -> None:
    """The node that this job has left takes no jobs any more, and is silent: no breaker counts it."""
    (name,) = world.cluster.jobs[job_id].runs[0]
    world.cluster.nodes[name] = replace(world.cluster.nodes[name], available=False, raw_state=state)


@pytest.mark.fault(
    "Each plan that was made anew for an urgent job could cost as much as the first one.", found_by="trial"
)
def test_nodes_that_are_lost_one_after_another_cost_one_more_and_then_it_is_asked(
    make_world: Callable[..., World],
) -> None:
    """Whatever takes the nodes: here what the breaker does not count, a switch that is gone."""
    world = filled(make_world, 8)
    urgent = world.urgent(1)
    gone: set[str] = set()
    for _ in range(200):
        for job_id in set(left(world)) - gone:
            lose_by(world, job_id, "IDLE*")
            gone.add(job_id)
        world.tick()
    assert len(gone) == 2, world.describe()
    assert world.started(urgent) is None
    first = world.store.eviction(1)
    assert first.outcome_code is OutcomeCode.COSTS_MORE
    (asked,) = waiting_for_approval(world)
    assert "than was planned" in asked
    assert asked.startswith("Needs approval: 1 more job(s) would leave for it, and lose up to ")
    (waits,) = world.tick().waiting
    assert waits.why == asked

    run(world, 60)  # an operator approves
    assert len(left(world)) == 3


def begun_for(world: World, urgent: str) -> int | None:
    """The number of the eviction that jobs leave for, while the urgent job waits."""
    acting = [e for e in world.store.open_evictions() if e.subject.job_id == urgent and e.state.before_start]
    left_for = [e for e in acting if any(p.requeued_at for p in e.preemptions)]
    return left_for[0].eviction_id if left_for else None


def requeue(world: World, urgent: str) -> None:
    """By its owner, once it runs: Slurm counts it as submitted anew."""
    entry = world.cluster.jobs[urgent]
    if entry.job.state is JobState.RUNNING:
        world.by_hand.requeue(entry.job)
        world.run_until(lambda: entry.job.state is JobState.PENDING, limit_s=10)
        now = world.clock.now()
        entry.job = replace(entry.job, submit_time=now, eligible_time=now, reason="Resources")


def cancel(world: World, urgent: str) -> None:
    """By an operator, who then lets it be planned for anew."""
    begun = begun_for(world, urgent)
    if begun is not None:
        world.store.add_request(RequestKind.CANCEL, begun, "root", world.clock.now())
        world.tick()
        world.store.set_value(SUPPRESSED, {})


def change(world: World, urgent: str) -> None:
    """By its owner, while jobs leave for it."""
    if begun_for(world, urgent) is not None:
        entry = world.cluster.jobs[urgent]
        asks = ("urgent", "batch") if entry.job.partitions == ("urgent",) else ("urgent",)
        entry.job = replace(entry.job, partitions=asks)
        world.tick()


@pytest.mark.parametrize("disturb", [requeue, cancel, change])
def test_another_eviction_for_the_same_job_goes_on_with_what_is_left_of_the_first_one(
    make_world: Callable[..., World], disturb: Callable[[World, str], None]
) -> None:
    """One node is planned for, and each node that was freed is gone: one more job leaves, and no third."""
    world = filled(make_world, 8)
    world.loop.reconfigure(config(budget={"cancelled_pause": 0}, execution={"watch_return": 1}))
    world.cluster.dies_after_s = 3.0
    urgent = world.urgent(1, work_s=9_000)
    gone: set[str] = set()
    for _ in range(600):
        disturb(world, urgent)
        for job_id in {each for each in left(world) if each != urgent} - gone:
            if world.state(urgent) is JobState.PENDING and (disturb is not requeue or world.cluster.jobs[urgent].runs):
                lose_by(world, job_id, "IDLE*")
                gone.add(job_id)
        world.tick()
    others = [e.job.restart_count for job_id, e in world.cluster.jobs.items() if job_id != urgent]
    assert sum(others) == 2, world.describe() + str(world.tick().waiting)
    (asked,) = waiting_for_approval(world)
    assert "than was planned" in asked


@pytest.mark.fault(
    "A job that was to end by itself left in place of a lost node's job as well, as if it had been pledged.",
    found_by="random faults",
)
def test_a_job_that_was_to_end_by_itself_was_not_to_leave(make_world: Callable[..., World]) -> None:
    """Its limit is extended, and the node that another job has left is gone: two more would have to leave."""
    longer = config(preemptors=[{"partition": ["urgent"], "max_delay": "300s"}])
    world = make_world(config=longer, node_count=8)
    ends = world.submit(LONG, on=("n1",), ran_s=100, time_limit_s=160)
    saves = world.submit(replace(LONG, save_s=1.0), on=("n2",), ran_s=100, comment=SAVES)
    for number in range(3, 9):
        world.submit(LONG, on=(f"n{number}",), ran_s=10_000)
    urgent = world.urgent(2)
    world.run_until(lambda: left(world) == [saves], limit_s=60)
    (first,) = world.store.open_evictions()
    assert {each.job_id: each.action for each in first.plan.chosen.actions}[ends] is Action.END
    lose_by(world, saves, "IDLE*")
    world.cluster.jobs[ends].job = replace(world.cluster.jobs[ends].job, time_limit_s=90_000)
    go_on(world, 120)
    assert left(world) == [saves], world.describe()
    assert world.started(urgent) is None
    assert "than was planned" in waiting_for_approval(world)[0]
