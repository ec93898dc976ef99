"""From a snapshot to a plan: which nodes, and a reason for every job."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest

from clearway.config.configuration import Config
from clearway.eligibility.context import PlanningContext
from clearway.eligibility.under_way import UnderWay
from clearway.model.cluster import ClusterSnapshot, Job, JobState, Skipped
from clearway.model.plan import Choice, NoPlan, Obstacle, ObstacleCode, Plan, Preemptor, Verdict
from clearway.model.problem import Action
from clearway.planning.dp.eviction_dp import EvictionDP
from clearway.preemption.plan import decide
from tests.builders import NODE_CPUS, NOW, after, job, node, snapshot, urgent_job

SAVES = "clearway:checkpoint=signal,took={}"


def decided(
    seen: ClusterSnapshot, of: Job | None = None, *, obstacle: Obstacle | None = None, **sections: Any
) -> Plan | NoPlan:
    before = copy.deepcopy((seen.jobs, seen.nodes, seen.skipped))
    config = Config.model_validate({"preemptors": [{"qos": ["urgent"]}]} | sections)
    found = decide(
        Preemptor(of or urgent_job(), "rule 1", 600, after(600), obstacle),
        PlanningContext(snapshot=seen, config=config, now=NOW, preempted={}, under_way=UnderWay()),
        EvictionDP(),
    )
    assert (seen.jobs, seen.nodes, seen.skipped) == before, "was changed"
    return found


def planned(jobs: Sequence[Job], of: Job | None = None, *, idle: int = 0, **sections: Any) -> Plan:
    found = decided(snapshot(jobs, idle=idle), of, **sections)
    assert isinstance(found, Plan), found
    return found


def actions(plan: Plan) -> dict[str, Action]:
    return {action.job_id: action.action for action in plan.chosen.actions}


def verdicts(plan: Plan) -> dict[str, Verdict]:
    found = {verdict.job_id: verdict for verdict in plan.verdicts}
    assert len(found) == len(plan.verdicts), "one for each job"
    return found


def ran(job_id: str, nodes: Sequence[str] | int, seconds: float, **fields: Any) -> Job:
    return job(job_id, nodes, start_time=after(-seconds), **fields)


def test_every_job_that_holds_nodes_has_a_verdict_and_no_other() -> None:
    jobs = [
        ran("1", ["a"], 100),
        ran("2", ["b"], 200, comment=SAVES.format(30)),
        ran("3", ["c", "d"], 9_000),
        ran("4", ["e"], 400, user="vip"),
        ran("5", ["f"], 3_000, time_limit_s=3_200),
        ran("6", ["g"], 20),
        job("7", ["h"], JobState.SUSPENDED),
        job("8", ["i"], JobState.CONFIGURING),
        ran("9", ["j", "k"], 50, qos="urgent"),
        job("10", ["l"], JobState.COMPLETING),
        urgent_job("11", 3),
        job("12", 5, JobState.PENDING),
        job("13", 5, JobState.ENDED),
    ]
    plan = planned(jobs, jobs[10], candidates={"protected_users": ["vip"]})
    found = verdicts(plan)
    assert {job_id: (verdict.choice, verdict.code) for job_id, verdict in found.items()} == {
        "1": (Choice.SPARED, "not_needed"),
        "2": (Choice.CHOSEN, "app_checkpoint"),
        "3": (Choice.SPARED, "not_needed"),
        "4": (Choice.EXEMPT, "protected_user"),
        "5": (Choice.CHOSEN, "ends_in_time"),
        "6": (Choice.EXEMPT, "too_young"),
        "7": (Choice.EXEMPT, "state"),
        "8": (Choice.EXEMPT, "state"),
        "9": (Choice.EXEMPT, "preemptor"),
    }  # 10 is on its way out: its node counts as free
    assert all(verdict.reason for verdict in found.values())
    assert plan.free_nodes == ("l",)
    assert plan.placement_nodes == ("b", "f", "l")
    assert list(found) == sorted(found)


def test_a_job_that_could_not_leave_in_time_is_not_called_needless() -> None:
    jobs = [ran("1", 1, 900, comment=SAVES.format(30)), ran("2", 1, 900, comment=SAVES.format(90_000))]
    reason = verdicts(planned(jobs, urgent_job(nodes=1), candidates={"allow_kill": False}))["2"].reason
    assert reason.startswith("not possible in time: saving it would take 1d01h")


@pytest.mark.parametrize(
    ("jobs", "of", "job_id", "reason"),
    [
        pytest.param(
            [ran("1", 2, 100), ran("2", 2, 4_000)],
            urgent_job(nodes=2),
            "1",
            "requeued without a checkpoint, losing 200 node-seconds; without it 2.2 node-hours more would be lost",
            id="another one would lose more",
        ),
        pytest.param(
            [ran("1", 2, 100), ran("2", 2, 4_000)],
            urgent_job(nodes=2),
            "2",
            "not needed: requeueing it would lose 2.2 node-hours, and the chosen set costs less without it",
            id="why it stays",
        ),
        pytest.param(
            [ran("1", 2, 100)],
            urgent_job(nodes=2),
            "1",
            "without it the nodes cannot be freed in time",
            id="the only one",
        ),
        pytest.param(
            [ran("1", 1, 900, comment=SAVES.format(30)), ran("2", 1, 900, comment=SAVES.format(90))],
            urgent_job(nodes=1),
            "1",
            "saves itself within 32s, to go on from there; without it coming back would cost 60 node-seconds more",
            id="another one would be back later",
        ),
        pytest.param(
            [ran("1", 1, 900, comment=SAVES.format(30)), ran("2", 1, 900, comment=SAVES.format(90))],
            urgent_job(nodes=1),
            "2",
            "not needed: saving it would take 1m32s, and the chosen set costs less without it",
            id="why it is not asked to save itself",
        ),
        pytest.param(
            [ran("1", 1, 100), ran("2", 1, 4_000, comment=SAVES.format(90_000))],
            urgent_job(nodes=1),
            "2",
            "not needed: requeueing it would lose 1.1 node-hours, and the chosen set costs less without it",
            id="what would be cheaper but takes too long is no reason",
        ),
        pytest.param(
            [ran("1", 2, 100), ran("2", 1, 100), ran("3", 1, 100)],
            urgent_job(nodes=2),
            "1",
            "losing 200 node-seconds; without it 1 more job(s) would have to go",
            id="others would be more",
        ),
        pytest.param(
            [ran("1", 1, 100), ran("2", 1, 100)],
            urgent_job(nodes=1),
            "1",
            "others would do as well; ties go to the smaller job id",
            id="a tie",
        ),
        pytest.param(
            [ran("1", 1, 3_000, time_limit_s=3_060)],
            urgent_job(nodes=1),
            "1",
            "its own time limit empties its nodes within 1m30s",
            id="it ends by itself",
        ),
    ],
)
def test_reasons(jobs: list[Job], of: Job, job_id: str, reason: str) -> None:
    assert reason in verdicts(planned(jobs, of))[job_id].reason


def test_where_coming_back_does_not_count_the_time_of_checkpoints_is_the_reason() -> None:
    jobs = [ran("1", 1, 900, comment=SAVES.format(30)), ran("2", 1, 900, comment=SAVES.format(90))]
    plan = planned(jobs, urgent_job(nodes=1), costs={"restart_weight": 0})
    assert "without it checkpoints would take 1m00s longer" in verdicts(plan)["1"].reason


def test_nothing_is_done_where_enough_nodes_are_free() -> None:
    plan = planned([ran("1", 4, 100)], urgent_job(nodes=2), idle=3)
    assert plan.chosen.actions == ()
    assert plan.leaving == ()
    assert plan.placement_nodes == ("idle-0", "idle-1")
    assert verdicts(plan)["1"].reason == "not needed: enough nodes are free already"


@pytest.mark.parametrize("nodes", [1, 3, 4, 5, 8])
def test_the_placement_has_exactly_as_many_nodes_as_asked(nodes: int) -> None:
    plan = planned([ran("1", 4, 100), ran("2", 3, 200)], urgent_job(nodes=nodes), idle=1)
    freed = {name for leaving in plan.leaving for name in leaving.nodes} | set(plan.free_nodes)
    assert len(plan.placement_nodes) == len(set(plan.placement_nodes)) == nodes
    assert set(plan.placement_nodes) <= freed
    assert "idle-0" in plan.placement_nodes, "free ones first"
    assert list(plan.placement_nodes) == sorted(plan.placement_nodes)


def test_of_more_freed_nodes_than_needed_the_surest_are_taken() -> None:
    jobs = [
        ran("1", ["z1", "z2"], 100),  # killed: soonest
        ran("2", ["m1", "m2"], 90_000, time_limit_s=None, comment=SAVES.format(30)),
        ran("3", ["a1", "a2", "a3"], 3_000, time_limit_s=3_060),  # ends by itself, later
    ]
    plan = planned(jobs, urgent_job(nodes=6), candidates={"min_runtime": 0})
    assert actions(plan) == {"1": Action.KILL, "2": Action.APP_CHECKPOINT, "3": Action.END}
    assert plan.placement_nodes == ("a1", "a2", "m1", "m2", "z1", "z2")


def test_a_node_shared_with_a_job_that_stays_is_not_in_the_placement() -> None:
    jobs = [ran("1", ["a", "b"], 100), ran("2", ["b"], 50_000), ran("3", ["c", "d"], 40_000)]
    plan = planned(jobs, urgent_job(nodes=1))
    assert actions(plan) == {"1": Action.KILL}
    assert plan.placement_nodes == ("a",)


def test_ties_do_not_depend_on_the_order_of_records() -> None:
    jobs = [ran(str(number), 1, 100) for number in range(1, 10)]
    forward, backward = planned(jobs, urgent_job(nodes=4)), planned(jobs[::-1], urgent_job(nodes=4))
    assert actions(forward) == actions(backward) == dict.fromkeys("1234", Action.KILL)
    assert forward.placement_nodes == backward.placement_nodes
    assert forward.verdicts == backward.verdicts


# -- partitions --------------------------------------------------------------------------------------------------


def two_partitions(cheap: str) -> ClusterSnapshot:
    jobs = [ran("1", ["x"], 100 if cheap == "x" else 200), ran("2", ["y"], 100 if cheap == "y" else 200)]
    nodes = [node(name, partitions=(name,), alloc_cpus=NODE_CPUS) for name in ("x", "y")]
    return snapshot(jobs, nodes)


@pytest.mark.parametrize("cheap", ["x", "y"])
def test_the_cheapest_partition_is_taken(cheap: str) -> None:
    plan = decided(two_partitions(cheap), urgent_job(nodes=1, partitions=("x", "y")))
    assert isinstance(plan, Plan)
    assert plan.placement_nodes == (cheap,)


@pytest.mark.parametrize("first", ["x", "y"])
def test_of_equally_cheap_partitions_the_first_that_the_job_names(first: str) -> None:
    order = ("x", "y") if first == "x" else ("y", "x")
    plan = decided(snapshot([], [node("nx", partitions=("x",)), node("ny", partitions=("y",))]),
                   urgent_job(nodes=1, partitions=order))  # fmt: skip
    assert isinstance(plan, Plan)
    assert plan.placement_nodes == (f"n{first}",)


def test_jobs_that_end_by_themselves_are_no_preemptees_of_a_partition() -> None:
    ends = {"time_limit_s": 3_060}
    jobs = [
        ran("1", ["x1", "x2", "x3"], 3_000, **ends),
        ran("2", ["x4"], 200),
        ran("3", ["x5"], 200),
        *(ran(str(4 + index), [f"y{index}"], 3_000, **ends) for index in range(3)),
        ran("7", ["y3", "y4"], 200),
    ]
    names = [name for job in jobs for name in job.nodes]
    seen = snapshot(jobs, [node(name, partitions=(name[0],), alloc_cpus=NODE_CPUS) for name in names])
    plan = decided(seen, urgent_job(nodes=5, partitions=("x", "y")))
    assert isinstance(plan, Plan)
    assert [job.job_id for job in plan.preemptees] == ["7"], "2 and 3 would lose as much, but they are two jobs"


def test_nodes_of_two_partitions_are_not_mixed() -> None:
    plan = decided(two_partitions("x"), urgent_job(nodes=2, partitions=("x", "y")))
    assert isinstance(plan, NoPlan)
    assert plan.why == "2 nodes asked, 0 free, and at most 1 more could be freed; not enough within 9m50s"


def test_a_partition_where_it_is_not_possible_does_not_matter() -> None:
    plan = decided(two_partitions("x"), urgent_job(nodes=1, partitions=("none", "y")))
    assert isinstance(plan, Plan)
    assert plan.placement_nodes == ("y",)


# -- no plan -----------------------------------------------------------------------------------------------------


def test_an_obstacle_is_the_answer() -> None:
    assert decided(snapshot([ran("1", 4, 100)]), obstacle=Obstacle(ObstacleCode.HELD, "it is held")) == NoPlan(
        "it is held"
    )


def test_no_partition() -> None:
    assert decided(snapshot([ran("1", 4, 100)]), urgent_job(partitions=())) == NoPlan("it names no partition")


@pytest.mark.parametrize(
    ("skipped", "readable"),
    [
        pytest.param(Skipped("job", "77", "NodeList"), False, id="a job that may hold nodes"),
        pytest.param(Skipped("job", "", "no id", holds_nodes=True), False, id="a job without a name"),
        pytest.param(Skipped("job", "77", "TimeLimit", holds_nodes=False), True, id="a pending job"),
        pytest.param(Skipped("job", "77", "TimeLimit", nodes=("n4",)), True, id="a job whose nodes are known"),
        pytest.param(Skipped("node", "n7", "CPUTot"), True, id="a node"),
        pytest.param(Skipped("reservation", "r", "EndTime"), True, id="a reservation"),
    ],
)
def test_no_plan_while_a_job_that_may_hold_nodes_cannot_be_read(skipped: Skipped, readable: bool) -> None:
    found = decided(snapshot([ran("1", 4, 100)], skipped=(skipped,)))
    assert isinstance(found, Plan) == readable
    if isinstance(found, NoPlan):
        assert found.why == "a job record could not be read, so no node is known to be free"


def test_no_plan_says_what_could_be_freed_and_keeps_the_curve() -> None:
    found = decided(snapshot([ran("1", 4, 100), ran("2", 4, 10)], idle=1), urgent_job(nodes=9))
    assert isinstance(found, NoPlan)
    assert found.why == "9 nodes asked, 1 free, and at most 4 more could be freed; not enough within 9m50s"
    assert found.curve is not None
    assert not any(point.feasible for point in found.curve.points)


def test_many_candidates_are_not_explained_one_by_one() -> None:
    jobs = [ran(str(number), 1, 100 + number) for number in range(1, 120)]
    plan = planned(jobs, urgent_job(nodes=2))
    assert len(plan.verdicts) == 119
    chosen = [verdict for verdict in plan.verdicts if verdict.choice is Choice.CHOSEN]
    assert [verdict.reason for verdict in chosen] == [
        "requeued without a checkpoint, losing 101 node-seconds",
        "requeued without a checkpoint, losing 102 node-seconds",
    ]
