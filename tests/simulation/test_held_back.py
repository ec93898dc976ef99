"""Urgent jobs that a limit would hold back: no job leaves for them whenever it comes, and the reason is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from clearway.model.cluster import JobState
from clearway.model.errors import SlurmRefusedError
from clearway.model.limits import Association, Cap, Caps, LimitKind, Limits, Partition, Qos
from clearway.model.operations import EvictionState
from clearway.simulation.jobs import Program
from tests.simulation.test_het_jobs import het_job
from tests.simulation.world import SAVES, World, config


def limits(caps: Caps, user: Caps | None = None) -> Limits:
    """On QoS urgent, and on ursula in it."""
    return Limits(
        enforced=True,
        qos={"urgent": Qos(name="urgent", caps=caps, users={7: user or {}})},
        associations=(Association(account="a", user="ursula", uid=7), Association(account="a")),
        users=frozenset({"ursula"}),
    )


NONE = limits({})
NO_ROOM = limits({(LimitKind.GROUP, "jobs"): Cap(0)})
ONE_JOB = limits({}, {(LimitKind.USER, "jobs"): Cap(1)})


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    """Eight busy nodes."""
    world = make_world()
    for number in range(1, 9):
        world.submit(Program(work_s=5_000.0, save_s=30.0), on=(f"n{number}",), ran_s=100 * number, comment=SAVES)
    world.cluster.limits = NONE
    world.tick()
    return world


OTHERS = Partition(name="urgent", allow_accounts=frozenset({"vip"}))


@pytest.mark.parametrize("partitions", [("batch", "urgent"), ("urgent", "batch")])
def test_one_that_its_urgent_partition_shuts_out_costs_nobody_anything(
    world: World, partitions: tuple[str, ...]
) -> None:
    world.cluster.limits = Limits(partitions={"urgent": OTHERS})
    job_id = world.urgent(1, partitions=partitions, account="a")
    for _ in range(20):
        assert "partition urgent does not allow account a" in told(world, job_id)
    assert world.store.evictions() == ()
    world.cluster.limits = Limits(partitions={"urgent": replace(OTHERS, deny_accounts=frozenset({"a"}))})
    assert "partition urgent does not allow account a" in told(world, job_id)


@pytest.mark.parametrize("partitions", [("batch", "urgent"), ("urgent", "batch")])
def test_one_that_its_urgent_partition_admits_starts_there(world: World, partitions: tuple[str, ...]) -> None:
    world.cluster.limits = Limits(partitions={"urgent": OTHERS})
    job_id = world.urgent(1, partitions=partitions, account="vip")
    world.run_until(lambda: world.state(job_id) is JobState.RUNNING, limit_s=120)
    assert world.cluster.jobs[job_id].ran_in == "urgent"
    world.run_until(world.settled)
    assert sum(len(entry.runs) - 1 for entry in world.cluster.jobs.values()) == 1


def test_a_partition_that_slurm_refuses_after_all_leaves_the_job_as_it_was(world: World) -> None:
    """It is left to Slurm for good: another plan would be refused again."""
    world.cluster.limits = Limits()
    calls: list[str] = []

    def refuse(call: str, _: float) -> None:
        calls.append(call)
        if call == "set_partitions" and calls.count(call) == 1:
            raise SlurmRefusedError("Requested partition configuration not available now")

    world.backend.before_change = refuse  # type: ignore[attr-defined]
    job_id = world.urgent(1, partitions=("batch", "urgent"))
    world.run_until(lambda: bool(world.store.evictions()) and world.settled(), limit_s=120)
    assert world.eviction().outcome.startswith("Slurm does not admit it to partition urgent")
    assert told(world, job_id) == f"left to Slurm: see eviction {world.eviction().eviction_id}"
    assert world.leftovers() == []
    assert not any(len(entry.runs) > 1 for entry in world.cluster.jobs.values())


@pytest.mark.fault(
    "A change of the partitions just before the urgent job was attached cost another job its run.", found_by="trial"
)
def test_an_owner_who_changes_the_partitions_at_the_last_moment_costs_nobody_anything(world: World) -> None:
    world.cluster.limits = Limits(partitions={"urgent": OTHERS})

    def change(call: str, _: float) -> None:
        entry = world.cluster.jobs[job_id]
        if call == "set_partitions" and entry.job.partitions == ("batch", "urgent"):
            entry.job = replace(entry.job, partitions=("batch",))

    world.backend.before_change = change  # type: ignore[attr-defined]
    job_id = world.urgent(1, partitions=("batch", "urgent"), account="vip")
    world.run_until(lambda: bool(world.store.evictions()) and world.settled(), limit_s=120)
    assert f"job {job_id} waits in batch by now" in world.eviction().outcome
    assert world.leftovers() == []
    assert not any(len(entry.runs) > 1 for entry in world.cluster.jobs.values())


@pytest.mark.fault(
    "An urgent job that was requeued after its start waited in one of its partitions alone.", found_by="random faults"
)
@pytest.mark.parametrize("later", [False, True])
def test_one_that_is_requeued_after_its_start_waits_in_all_its_partitions(world: World, later: bool) -> None:
    world.cluster.limits = Limits(partitions={"urgent": OTHERS})
    job_id = world.urgent(1, partitions=("batch", "urgent"), account="vip")
    world.run_until(lambda: world.state(job_id) is JobState.RUNNING, limit_s=120)
    entry = world.cluster.jobs[job_id]
    assert entry.job.partitions == ("urgent",)
    if later:
        world.run_until(world.settled, limit_s=900, every_s=5)
        assert all(e.state.terminal for e in world.store.evictions())
    world.cluster.end_run(entry, requeue=True)
    world.run_until(lambda: entry.job.partitions == ("batch", "urgent"), limit_s=30 if later else 1)
    assert world.state(job_id) is JobState.PENDING
    if later:  # from now on its owner may choose
        entry.job = replace(entry.job, partitions=("urgent",))
        for _ in range(8):
            world.tick(5)
        assert entry.job.partitions == ("urgent",)
    world.run_until(world.settled)
    assert world.leftovers() == []


def urgent(world: World, nodes: int = 2) -> str:
    return world.urgent(nodes, qos="urgent", account="a")


def told(world: World, job_id: str) -> str:
    return next(each.why for each in world.tick().waiting if each.preemptor.job.job_id == job_id)


def test_a_limit_from_the_start_and_until_it_is_lifted(world: World) -> None:
    world.cluster.limits = NO_ROOM
    job_id = urgent(world)
    for _ in range(20):
        assert "QoS urgent has the limit GrpJobs=0" in told(world, job_id)
    assert world.store.evictions() == ()
    world.cluster.limits = NONE
    world.run_until(lambda: world.state(job_id) is JobState.RUNNING, limit_s=120)


def test_limits_that_cannot_be_read(world: World) -> None:
    world.cluster.limits = Limits(unknown="scontrol did not answer within 15 s")
    job_id = urgent(world)
    assert "whether a limit holds it back is not known: scontrol did not answer" in told(world, job_id)
    assert world.store.evictions() == ()


def test_a_limit_that_comes_while_jobs_save_themselves(world: World) -> None:
    job_id = urgent(world)
    world.tick()
    world.run_until(lambda: world.eviction().state is EvictionState.PREEMPTING, limit_s=20)
    world.cluster.limits = NO_ROOM
    world.run_until(lambda: world.eviction().state.terminal, limit_s=300)
    assert world.eviction().why.startswith("no job leaves for it, as a limit would keep it waiting")
    assert not any(entry.lost_s or len(entry.runs) > 1 for entry in world.cluster.jobs.values())
    assert "GrpJobs=0" in told(world, job_id)
    assert world.leftovers() == []


def test_of_two_jobs_of_a_user_who_may_run_one_the_first_is_served(world: World) -> None:
    world.cluster.limits = ONE_JOB
    both = {urgent(world), urgent(world)}
    world.tick()
    first = world.eviction().preemptor.job_id
    (second,) = both - {first}
    assert "MaxJobsPerUser=1; others would have 1 in use" in told(world, second)
    world.run_until(lambda: world.state(first) is JobState.RUNNING, limit_s=120)
    world.cluster.limits = limits({}, {(LimitKind.USER, "jobs"): Cap(1, 1)})
    assert "MaxJobsPerUser=1" in told(world, second)
    assert len(world.store.evictions()) == 1


@pytest.mark.parametrize("mode", ["approve", "observe"])
def test_a_proposal_that_a_limit_has_made_vain(make_world: Callable[..., World], mode: str) -> None:
    world = make_world(config=config(mode))
    for number in range(1, 9):
        world.submit(Program(work_s=5_000.0), on=(f"n{number}",), ran_s=100 * number)
    world.cluster.limits = NONE
    job_id = urgent(world)
    world.tick()
    (proposal,) = world.store.evictions()
    world.cluster.limits = NO_ROOM
    if mode == "approve":
        world.store.add_request("approve", proposal.eviction_id, "olga", world.clock.now())
    world.tick(70)
    world.tick()
    assert all(e.state.terminal for e in world.store.evictions())
    assert "GrpJobs=0" in told(world, job_id)
    assert not any(len(entry.runs) > 1 for entry in world.cluster.jobs.values())


def test_a_dependency_and_a_later_start(world: World) -> None:
    """As Slurm shows them in the first seconds: they seem to wait for nodes."""
    for fields, why in (
        ({"dependency": "afterok:1(unfulfilled)"}, "it waits for other jobs"),
        ({"eligible_time": world.clock.now().replace(year=2027)}, "it is not to start before"),
    ):
        job_id = urgent(world)
        entry = world.cluster.jobs[job_id]
        entry.job = replace(entry.job, reason="Resources", **fields)  # type: ignore[arg-type]
        assert why in told(world, job_id)
    assert world.store.evictions() == ()


def test_as_many_tasks_of_an_array_as_the_limit_lets_run(world: World) -> None:
    world.cluster.limits = limits({(LimitKind.GROUP, "jobs"): Cap(3)})
    world.urgent(1, qos="urgent", account="a", pending_tasks=6)
    world.tick()
    assert world.eviction().plan.tasks == 3


@pytest.mark.parametrize(("limit", "evictions"), [(2, 2), (1, 0)])
def test_all_components_of_a_heterogeneous_job_count(world: World, limit: int, evictions: int) -> None:
    world.cluster.limits = limits({(LimitKind.GROUP, "jobs"): Cap(limit)})
    parts = het_job(world, {"qos": "urgent", "account": "a"}, {"nodes": 2, "qos": "urgent", "account": "a"})
    for _ in range(5):
        world.tick()
    assert len(world.store.evictions()) == evictions
    if not evictions:
        assert "GrpJobs=1" in told(world, parts[0])
