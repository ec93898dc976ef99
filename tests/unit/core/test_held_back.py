"""Limits before and after planning: what no plan can change, what a plan changes, and reservations to come."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clearway.config.configuration import Config, PreemptorRule
from clearway.eligibility.context import PlanningContext
from clearway.model.cluster import Job, Reservation
from clearway.model.limits import Association, Cap, LimitKind, Limits, Partition, Qos
from clearway.model.plan import NoPlan, Plan, Preemptor
from clearway.planning.dp.eviction_dp import EvictionDP
from clearway.preemption.detection import preemptors
from clearway.preemption.plan import decide
from clearway.preemption.validation import after_planning
from tests.builders import NOW, after, job, snapshot, urgent_job

GROUP_CPU = (LimitKind.GROUP, "cpu")
URGENT = urgent_job(account="physics", time_limit_s=3600, reason="Priority")


def limits(limit: int, used: int) -> Limits:
    return Limits(
        enforced=True,
        partitions={"batch": Partition(name="batch")},
        qos={"urgent": Qos(name="urgent", caps={GROUP_CPU: Cap(limit, used)})},
        associations=(
            Association(account="physics", user="bob", uid=7),
            Association(account="physics", parent="root"),
            Association(account="root"),
        ),
        parents={"physics": "root"},
        users=frozenset({"bob"}),
    )


def context(running: list[Job], of: Job = URGENT, **fields: object) -> PlanningContext:
    config = Config.model_validate({"candidates": {"min_runtime": 0}})
    return PlanningContext(snapshot=snapshot([*running, of]), config=config, now=NOW, **fields)  # type: ignore[arg-type]


def decided(planning: PlanningContext) -> Plan | NoPlan:
    rule = PreemptorRule.model_validate({"user": ["bob"], "max_delay": "5m"})
    found: tuple[Preemptor, ...] = preemptors(planning.snapshot, [rule])
    return decide(found[0], planning, EvictionDP())


def why(planning: PlanningContext) -> str:
    found = decided(planning)
    if isinstance(found, NoPlan):
        return found.why
    return after_planning(found, (), planning)


OTHERS = [job(at, qos="normal") for at in (101, 102)]
SAME = [job(at, qos="urgent") for at in (101, 102)]


def test_a_plan_that_no_limit_holds_back() -> None:
    assert isinstance(decided(context(OTHERS)), Plan)
    assert why(context(OTHERS, limits=limits(128, 0))) == ""


def test_before_planning_where_no_plan_can_help() -> None:
    told = why(context(OTHERS, limits=limits(127, 0)))
    assert told.startswith(
        "no job leaves for it, as a limit would keep it waiting: QoS urgent has the limit GrpTRES=cpu"
    )


def test_the_jobs_of_the_plan_make_the_limit_bind_no_more() -> None:
    assert why(context(SAME, limits=limits(128, 128))) == ""
    assert "GrpTRES=cpu=127" in why(context(SAME, limits=limits(127, 128)))


def test_after_planning_where_other_jobs_leave_than_those_that_count() -> None:
    """The plan takes the jobs that lose least, and those are of another QoS."""
    dear = [job(at, qos="urgent", start_time=after(-80_000)) for at in (103, 104)]
    planning = context([*OTHERS, *dear], limits=limits(128, 128))
    assert isinstance(decided(planning), Plan)
    assert "others would have 128 in use" in why(planning)


@pytest.mark.parametrize("reason", ["QOSGrpCpuLimit", "AssocGrpCpuLimit"])
def test_slurm_names_a_limit(reason: str) -> None:
    of = replace(URGENT, reason=reason)
    assert why(context(SAME, of, limits=limits(128, 128))) == ""
    assert reason in why(context(OTHERS, of, limits=limits(128, 0)))  # nothing is seen that would bind: left to Slurm
    assert reason in why(context(SAME, of))  # and where limits are not read


def reservation(start_s: float, nodes: tuple[str, ...] = ("n101-0",)) -> Reservation:
    return Reservation(name="maintenance", nodes=nodes, start_time=after(start_s), end_time=after(start_s + 60))


@pytest.mark.parametrize(("start_s", "free"), [(600, False), (3_800, False), (4_000, True)])
def test_a_reservation_before_the_job_would_have_ended(start_s: float, *, free: bool) -> None:
    """It starts by its deadline, four minutes from now, and has a time limit of an hour."""
    told = why(context(OTHERS, reservations=(reservation(start_s),)))
    assert told == "" if free else "1 are reserved (maintenance) before the job would have ended" in told


def test_nodes_without_a_reservation_serve_instead() -> None:
    three = [*OTHERS, job(103, qos="normal")]
    found = decided(context(three, reservations=(reservation(600),)))
    assert isinstance(found, Plan)
    assert set(found.placement_nodes) == {"n102-0", "n103-0"}
    came_later = context(three, reservations=(reservation(600, ("n102-0",)),))
    assert "reservation maintenance takes node n102-0" in after_planning(found, (), replace(came_later, limits=None))


def test_a_job_without_an_end_has_no_room_before_any_reservation() -> None:
    endless = replace(URGENT, time_limit_s=None)
    assert "are reserved" in why(context(OTHERS, endless, reservations=(reservation(10**8),)))


@pytest.mark.parametrize(
    ("resource", "limit", "tasks"), [("cpu", 64, 1), ("cpu", 128, 2), ("node", 1, 1), ("node", 2, 2)]
)
def test_as_many_tasks_of_an_array_as_the_limits_allow(resource: str, limit: int, tasks: int) -> None:
    array = replace(URGENT, num_nodes=1, cpus=64, array_job_id=URGENT.job_id, pending_tasks=5)
    allowed = replace(
        limits(limit, 0), qos={"urgent": Qos(name="urgent", caps={(LimitKind.GROUP, resource): Cap(limit, 0)})}
    )
    planning = context(OTHERS, of=array, limits=allowed)
    plan = decided(planning)
    assert isinstance(plan, Plan)
    assert plan.tasks == tasks
    assert why(planning) == ""


@pytest.mark.parametrize(("limit", "held_back"), [(127, True), (128, False)])
def test_a_limit_counts_all_components_of_a_heterogeneous_job(limit: int, *, held_back: bool) -> None:
    parts = [
        replace(URGENT, job_id=str(900 + n), num_nodes=1, cpus=64, het_job_id="900", het_job_offset=n) for n in range(2)
    ]
    planning = context([*OTHERS, parts[1]], of=parts[0], limits=limits(limit, 0))
    found = decided(planning)
    assert isinstance(found, NoPlan) is held_back
