"""Which ordinary jobs eternal jobs make room for, and that Slurm's order is kept."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearway.config.configuration import CandidatesConfig, Config, EternalConfig, PreemptorRule
from clearway.eligibility.context import PlanningContext
from clearway.eligibility.under_way import UnderWay
from clearway.eligibility.urgent import is_eternal
from clearway.model.cluster import ClusterSnapshot, Job, JobState
from clearway.model.plan import Preemptor
from clearway.model.problem import Action
from clearway.preemption.detection import OthersThatWait, ordinary_preemptors
from clearway.preemption.problem import prepare_problem
from tests.builders import NOW, after, job, node

SETTINGS = EternalConfig(partitions=("eternal",), patience=15.0, max_delay=300.0, at_once=4)
RULES = (PreemptorRule(qos=("urgent",)),)
EVERYWHERE = ("batch", "eternal")


def runs(job_id: int, *nodes: str, **fields: Any) -> Job:
    return job(job_id, nodes, **({"partitions": ("eternal",)} | fields))


def waits(job_id: int, nodes: int = 1, **fields: Any) -> Job:
    return job(job_id, nodes, JobState.PENDING, **fields)


def cluster(*jobs: Job, nodes: int = 4, partitions: tuple[str, ...] = EVERYWHERE) -> ClusterSnapshot:
    return ClusterSnapshot(NOW, jobs, tuple(node(f"n{i}", partitions=partitions) for i in range(1, nodes + 1)))


def found(snapshot: ClusterSnapshot, settings: EternalConfig = SETTINGS, **how: Any) -> list[str]:
    return [each.job.job_id for each in ordinary_preemptors(snapshot, settings, RULES, NOW, OthersThatWait(**how))]


def test_the_first_in_line_becomes_a_preemptor_of_eternal_jobs_alone() -> None:
    snapshot = cluster(runs(1, "n1"), waits(10, priority=50), waits(11, priority=90))
    (only,) = ordinary_preemptors(snapshot, SETTINGS, RULES, NOW, OthersThatWait())
    assert only.job.job_id == "11"
    assert (only.ordinary, only.only_opportunistic, only.takes_free) == (True, True, True)
    assert (only.deadline - NOW).total_seconds() == 300


@pytest.mark.parametrize(
    "fields",
    [
        {"reason": "Dependency"},
        {"reason": "BeginTime"},
        {"reason": "QOSMaxJobsPerUserLimit"},
        {"reason": "ReqNodeNotAvail, UnavailableNodes:n3"},
        {"priority": 0},
        {"eligible_time": after(60)},
        {"submit_time": after(-10), "eligible_time": after(-10)},  # Slurm has its turn
        {"partitions": ("eternal",)},
        {"qos": "urgent"},
        {"pending_tasks": 5},
        {"licenses": "matlab:1|abaqus:1"},
    ],
)
def test_no_room_is_made(fields: dict[str, Any]) -> None:
    assert found(cluster(runs(1, "n1"), waits(10))) == ["10"]
    assert not found(cluster(runs(1, "n1"), waits(10, **fields)))


def test_nothing_happens_without_eternal_jobs_that_hold_its_nodes() -> None:
    assert not found(cluster(runs(1, "n1", partitions=("batch",)), waits(10)))
    assert not found(cluster(runs(1, "n1"), waits(10, partitions=("elsewhere",))))
    assert not found(cluster(runs(1, "n1"), waits(10)), EternalConfig())


def test_nobody_overtakes_unless_the_first_starts_no_later() -> None:
    """The first needs both nodes; the ordinary job on n2 has 23 hours left."""
    blocking = runs(2, "n2", partitions=("batch",))
    first = waits(10, 2, priority=90, partitions=("batch",))
    for limit_s, may in ((3_600, True), (22 * 3_600, True), (24 * 3_600, False), (None, False)):
        behind = waits(11, priority=50, time_limit_s=limit_s)
        assert found(cluster(runs(1, "n1"), blocking, first, behind, nodes=2)) == (["10", "11"] if may else ["10"])


def test_one_that_is_served_makes_way_for_the_next_within_bounds() -> None:
    jobs = [runs(1, "n1", "n2", "n3", "n4"), *(waits(i, priority=100 - i) for i in range(10, 20))]
    assert found(cluster(*jobs)) == ["10"]
    assert found(cluster(*jobs), served={"10"}) == ["10", "11"]
    assert found(cluster(*jobs), served={"10", "11", "12", "13"}) == ["10", "11", "12", "13"]
    attached = [waits(10, reason="Reservation", reservation="clearway_1"), *jobs[2:], jobs[0]]
    few = SETTINGS.model_copy(update={"at_once": 1})
    assert found(cluster(*attached), few, served={"10"}, placements=frozenset({"clearway_1"})) == ["10"]


def test_urgent_jobs_come_first() -> None:
    snapshot = cluster(runs(1, "n1"), waits(10))
    urgent = Preemptor(waits(20, qos="urgent"), "rule 1", 60.0, after(60))
    assert not found(snapshot, urgent=[urgent])
    elsewhere = Preemptor(waits(20, qos="urgent", partitions=("gpu",)), "rule 1", 60.0, after(60))
    assert found(snapshot, urgent=[elsewhere]) == ["10"]


@pytest.mark.parametrize("passed", [{"pending_tasks": 3}, {}])
def test_who_passes_over_another_takes_no_idle_node(passed: dict[str, Any]) -> None:
    snapshot = cluster(runs(1, "n1"), waits(10, priority=90, **passed), waits(11, priority=50))
    (only,) = ordinary_preemptors(
        snapshot, SETTINGS, RULES, NOW, OthersThatWait(suppressed=lambda each: each.job_id == "10")
    )
    assert only.job.job_id == "11"
    assert not only.takes_free


def test_a_job_of_several_partitions_is_eternal_only_when_all_of_them_are() -> None:
    assert is_eternal(waits(1, partitions=("eternal",)), SETTINGS)
    assert not is_eternal(waits(1, partitions=EVERYWHERE), SETTINGS)
    assert not is_eternal(waits(1, partitions=()), SETTINGS)


@st.composite
def queues(draw: st.DrawFn) -> list[Job]:
    return [
        waits(
            100 + index,
            draw(st.integers(1, 5)),
            priority=draw(st.integers(1, 3)),
            time_limit_s=draw(st.sampled_from([60, 3_600, 86_400, None])),
            partitions=draw(st.sampled_from([("batch",), ("eternal",), EVERYWHERE])),
        )
        for index in range(draw(st.integers(0, 8)))
    ]


@given(queues(), st.integers(1, 3), st.sets(st.integers(100, 107)))
def test_an_unlimited_job_is_never_served_before_another_on_its_nodes(
    queue: list[Job], at_once: int, served_ids: set[int]
) -> None:
    served = {str(each) for each in served_ids}
    settings = SETTINGS.model_copy(update={"at_once": at_once})
    snapshot = cluster(runs(1, "n1"), runs(2, "n2", partitions=("batch",), time_limit_s=7_200), *queue)
    chosen = found(snapshot, settings, served=served)
    fresh = [each for each in chosen if each not in served]
    line = [
        each for each in sorted(queue, key=lambda j: (-j.priority, int(j.job_id))) if not is_eternal(each, settings)
    ]
    assert len(fresh) <= max(0, at_once - sum(each.job_id in served for each in line))
    assert not set(fresh) & {each.job_id for each in queue if is_eternal(each, settings)}
    unserved = [each.job_id for each in line if each.job_id not in served]
    if fresh:
        assert fresh[0] == unserved[0]
    for each in line:
        if each.time_limit_s is None and each.job_id in fresh:
            assert unserved.index(each.job_id) == 0


def verdict_on(eternal: Job, preempted: int = 0, **candidates: Any) -> tuple[str, set[Action]]:
    """The verdict's code and the options of an eternal job on the only node, for an ordinary job."""
    config = Config(eternal=SETTINGS, candidates=CandidatesConfig.model_validate(candidates))
    snapshot = cluster(eternal, waits(10), nodes=1)
    (who,) = ordinary_preemptors(snapshot, SETTINGS, (), NOW, OthersThatWait())
    context = PlanningContext(
        snapshot=snapshot, config=config, now=NOW, preempted={"1": preempted}, under_way=UnderWay()
    )
    situation = prepare_problem(who, "batch", context)
    codes = {verdict.job_id: verdict.code for verdict in situation.verdicts}
    ways = {option.action for candidate in situation.problem.candidates for option in candidate.options}
    return codes.get("1", ""), ways


SAVES = "clearway:checkpoint=signal"


def test_guards_against_repeated_preemption_are_not_for_eternal_jobs() -> None:
    saves = runs(1, "n1", comment=SAVES)
    for preempted in (0, 3, 1_000):
        assert verdict_on(saves, preempted, max_preemptions=2, partitions=["batch"]) == ("", {Action.APP_CHECKPOINT})
    young = runs(1, "n1", comment=SAVES, start_time=after(-59))
    assert verdict_on(young) == ("too_young", set())
    assert verdict_on(runs(1, "n1", comment=SAVES, start_time=after(-61)), 10) == ("", {Action.APP_CHECKPOINT})


@pytest.mark.parametrize(
    ("fields", "candidates", "code"),
    [
        ({"comment": ""}, {"allow_kill": True}, "no_option"),
        ({"requeueable": False}, {"allow_cancel": True}, "not_requeueable"),
        ({}, {"protected_users": ["alice"]}, "protected_user"),
        ({"partitions": ("batch",)}, {}, "not_eternal"),
        ({"comment": f"{SAVES},state=saved,asked={int(after(-4_000).timestamp())}"}, {}, "restarting"),
    ],
)
def test_an_eternal_job_is_saved_or_it_stays(fields: dict[str, Any], candidates: dict[str, Any], code: str) -> None:
    other = runs(2, "n2", comment=SAVES)  # so that there is somebody to leave at all
    snapshot = cluster(runs(1, "n1", **({"comment": SAVES} | fields)), other, waits(10), nodes=2)
    config = Config(eternal=SETTINGS, candidates=CandidatesConfig.model_validate(candidates))
    (who,) = ordinary_preemptors(snapshot, SETTINGS, (), NOW, OthersThatWait())
    context = PlanningContext(snapshot=snapshot, config=config, now=NOW, preempted={}, under_way=UnderWay())
    situation = prepare_problem(who, "batch", context)
    assert [verdict.code for verdict in situation.verdicts if verdict.job_id == "1"] == [code]
    assert "1" not in {candidate.job_id for candidate in situation.problem.candidates}


def test_a_claim_of_this_run_counts() -> None:
    said = runs(1, "n1", comment=f"{SAVES},state=saved,asked={int(after(-3_500).timestamp())}")
    assert verdict_on(said) == ("", {Action.APP_CHECKPOINT})
