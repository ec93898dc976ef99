"""Several urgent jobs at once, from end to end on the simulated cluster."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from clearway.model.cluster import JobState
from clearway.model.operations import EvictionState, PreemptionState
from clearway.simulation.jobs import Program
from tests.simulation.world import SAVES, World, config


def fill(world: World, *, wide: Program | None = None, **fields: str) -> dict[str, str]:
    """A job on four nodes that is cheap to let go, and one on each of the other four that is not."""
    jobs = {"wide": world.submit(wide, on=("n1", "n2", "n3", "n4"), num_nodes=4, ran_s=100, **fields)}
    for number in range(5, 9):
        jobs[f"n{number}"] = world.submit(on=(f"n{number}",), ran_s=1_000 + number)
    return jobs


def runs(world: World, job_id: str) -> int:
    return len(world.cluster.jobs[job_id].runs)


def test_one_job_makes_room_for_two_and_is_preempted_once(world: World) -> None:
    jobs = fill(world)
    urgent = [world.urgent(2, work_s=20.0), world.urgent(2, work_s=20.0)]
    submitted = world.clock.now()
    world.run_until(lambda: all(world.started(job_id) is not None for job_id in urgent), limit_s=60)
    for job_id in urgent:
        started = world.started(job_id)
        assert started is not None
        assert (started - submitted).total_seconds() <= 60

    second, first = world.store.evictions()
    assert [job.job_id for job in first.plan.preemptees] == [jobs["wide"]]
    assert second.plan.preemptees == ()
    assert (first.plan.together, second.plan.together) == ((urgent[1],), (urgent[0],))
    assert not set(first.plan.placement_nodes) & set(second.plan.placement_nodes)
    codes = {verdict.job_id: verdict.code for verdict in second.plan.verdicts}
    assert codes[jobs["wide"]] == "leaves_for_another"
    assert first.revision == second.revision == 0, "nobody took the shared job for a stranger"
    assert {job_id: runs(world, job_id) for name, job_id in jobs.items() if name != "wide"} == {
        jobs[f"n{number}"]: 1 for number in range(5, 9)
    }

    world.run_until(world.settled, limit_s=2_000, every_s=2.0)
    assert {e.state for e in world.store.evictions()} == {EvictionState.COMPLETED}
    assert runs(world, jobs["wide"]) == 2
    assert not world.leftovers()
    assert not world.observer.failures


def test_when_one_of_them_disappears_only_who_counted_on_it_is_planned_anew(world: World) -> None:
    jobs = fill(world, wide=Program(save_s=20.0), comment=f"{SAVES},took=20")
    urgent = [world.urgent(2, work_s=20.0), world.urgent(2, work_s=20.0), world.urgent(1, work_s=20.0)]
    submitted = world.clock.now()
    world.tick()
    evictions = {e.preemptor.job_id: e for e in world.store.evictions()}
    (owner,) = [job_id for job_id, e in evictions.items() if jobs["wide"] in {j.job_id for j in e.plan.preemptees}]
    counting = [
        job_id
        for job_id, e in evictions.items()
        if job_id != owner and set(e.plan.placement_nodes) & {"n1", "n2", "n3", "n4"}
    ]
    others = set(urgent) - {owner, *counting}
    assert counting
    assert others
    world.tick()
    world.cluster.withdraw(world.cluster.jobs[owner])
    world.run_until(lambda: all(world.started(job_id) is not None for job_id in urgent if job_id != owner), limit_s=60)

    after = {e.preemptor.job_id: e for e in world.store.evictions()}
    for job_id in others:
        assert after[job_id].revision == 0, "its plan stays"
        assert after[job_id].plan == evictions[job_id].plan
    for job_id in counting:
        assert after[job_id].revision == 1, "planned anew, once"
    for job_id in {*counting, *others}:
        started = world.started(job_id)
        assert started is not None
        assert (started - submitted).total_seconds() <= 60
    gone = [
        p.job_id
        for e in after.values()
        for p in e.preemptions
        if p.state not in (PreemptionState.SPARED, PreemptionState.PLANNED)
    ]
    assert len(gone) == len(set(gone)), "no job leaves for two of them"
    world.run_until(world.settled, limit_s=2_000, every_s=2.0)
    assert not world.leftovers()
    assert not world.observer.failures


def test_what_a_job_leaves_over_serves_an_urgent_job_that_comes_later(world: World) -> None:
    jobs = fill(world, wide=Program(save_s=10.0), comment=f"{SAVES},took=10")
    first = world.urgent(2, work_s=20.0)
    world.tick()
    world.tick()
    second = world.urgent(2, work_s=20.0)
    world.run_until(lambda: all(world.started(job_id) is not None for job_id in (first, second)), limit_s=60)
    assert all(runs(world, job_id) == 1 for name, job_id in jobs.items() if name != "wide")
    world.run_until(world.settled, limit_s=2_000, every_s=2.0)
    assert not world.leftovers()


def test_proposals_that_count_on_one_another_stay(make_world: Callable[..., World]) -> None:
    world = make_world(config=config("observe"))
    fill(world)
    for _ in range(2):
        world.urgent(2, work_s=20.0)
    for _ in range(10):
        world.tick()
    assert [e.state for e in world.store.evictions()] == [EvictionState.PROPOSED] * 2
    assert not world.leftovers()


@pytest.mark.fault(
    "A plan counted on nodes of another plan that was made with it and was put aside.", found_by="reading"
)
def test_an_approved_plan_does_not_count_on_one_that_nobody_approved(make_world: Callable[..., World]) -> None:
    world = make_world(config=config("approve", execution={"approval_time": "10s"}))
    jobs = fill(world)
    urgent = [world.urgent(2, work_s=20.0), world.urgent(2, work_s=20.0)]
    world.tick()
    second, first = world.store.evictions()
    assert second.plan.preemptees == ()
    world.store.add_request("cancel", first.eviction_id, "olga", world.clock.now())
    world.store.add_request("approve", second.eviction_id, "olga", world.clock.now())
    world.tick()
    assert world.store.eviction(second.eviction_id).state is EvictionState.SUPERSEDED
    assert world.store.eviction(first.eviction_id).state is EvictionState.CANCELLED
    assert world.state(jobs["wide"]) is JobState.RUNNING
    assert all(world.started(job_id) is None for job_id in urgent)


@pytest.mark.parametrize("nodes", [(5, 5), (3, 3, 3)])
def test_where_not_all_can_be_served_the_most_pressing_are(world: World, nodes: tuple[int, ...]) -> None:
    fill(world)
    urgent = []
    for count in nodes:
        urgent.append(world.urgent(count))
        world.clock.advance(1.0)
    report = world.tick()
    why = {waiting.preemptor.job.job_id: waiting for waiting in report.waiting}
    assert all(why[job_id].eviction_id is not None for job_id in urgent[:-1])
    assert why[urgent[-1]].eviction_id is None
    assert "not beside those of the urgent jobs before it" in why[urgent[-1]].why
    world.run_until(lambda: all(world.started(job_id) is not None for job_id in urgent[:-1]), limit_s=60)


def test_a_job_is_left_in_peace_for_longer_each_time_and_at_last_for_good(make_world: Callable[..., World]) -> None:
    rules = {"min_runtime": "20s", "max_preemptions": 3, "protected_users": ["vip"]}
    world = make_world(config=config(candidates=rules), node_count=2)
    world.submit(on=("n1",), ran_s=500, user="vip")
    prey = world.submit(Program(work_s=99_999), on=("n2",), ran_s=60)
    for _ in range(25):
        world.urgent(1, work_s=3.0)
        for _ in range(8):
            world.tick(3.0)
    gone = [
        (p.requeued_at - p.job.start_time).total_seconds()
        for e in reversed(world.store.evictions(limit=100))
        for p in e.preemptions
        if p.job_id == prey and p.requeued_at is not None and p.job.start_time is not None
    ]
    assert len(gone) == 3
    assert all(ran_s >= 20 * 2**count for count, ran_s in enumerate(gone)), gone
    assert not world.observer.failures
