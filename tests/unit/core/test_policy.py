"""Who may be preempted, and which nodes count."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from clearway.config.configuration import Config
from clearway.eligibility.context import PlanningContext
from clearway.eligibility.under_way import UnderWay
from clearway.estimates.costs import NO_HISTORY
from clearway.estimates.learning import History
from clearway.model.cluster import Job, JobState, Node, PreemptPriorities
from clearway.model.plan import PlannedAction, Preemptor
from clearway.model.problem import Action, Option
from clearway.preemption.plan import why_chosen
from clearway.preemption.problem import PreparedProblem, horizon, prepare_problem
from clearway.walltime.remaining import RunTimes
from tests.builders import NODE_CPUS, NODE_MEMORY_MIB, NOW, after, job, node, snapshot, urgent_job

SAVES = "clearway:checkpoint=signal,took=10"


def preemptor(of: Job | None = None, delay_s: float = 600) -> Preemptor:
    return Preemptor(of or urgent_job(), "rule 1", delay_s, after(delay_s))


def config(**sections: Any) -> Config:
    return Config.model_validate({"preemptors": [{"qos": ["urgent"]}]} | sections)


def situation(
    jobs: Sequence[Job],
    nodes: Sequence[Node] | None = None,
    *,
    of: Job | None = None,
    preempted: dict[str, int] | None = None,
    under_way: UnderWay | None = None,
    delay_s: float = 600,
    idle: int = 0,
    history: History = NO_HISTORY,
    priorities: PreemptPriorities | None = None,
    **sections: Any,
) -> PreparedProblem:
    seen = snapshot(jobs, nodes, idle=idle, preempt_priorities=priorities or PreemptPriorities())
    before = copy.deepcopy(seen)
    context = PlanningContext(
        snapshot=seen,
        config=config(**sections),
        now=NOW,
        preempted=preempted or {},
        under_way=under_way or UnderWay(),
        history=history,
    )
    found = prepare_problem(preemptor(of, delay_s), "batch", context)
    assert (seen.jobs, seen.nodes, seen.skipped) == (before.jobs, before.nodes, before.skipped), "was changed"
    return found


def codes(found: PreparedProblem) -> dict[str, str]:
    return {verdict.job_id: verdict.code for verdict in found.verdicts}


def candidates(found: PreparedProblem) -> dict[str, tuple[str, ...]]:
    return {candidate.job_id: candidate.node_names for candidate in found.problem.candidates}


@pytest.mark.parametrize(("of_qos", "expected"), [(False, {"101": 20, "102": 10}), (True, {"101": 0, "102": 3})])
def test_candidates_hold_what_slurm_would_preempt_by(of_qos: bool, expected: dict[str, int]) -> None:
    by_name = {"batch": 20, "low": 10, "scavenger": 3}
    jobs = [job("101", nodes=("n1",)), job("102", nodes=("n2",), partitions=("low",), qos="scavenger")]
    found = situation(jobs, priorities=PreemptPriorities(by_name, of_qos))
    assert {candidate.job_id: candidate.preempt_priority for candidate in found.problem.candidates} == expected


# -- exemptions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "sections", "code"),
    [
        pytest.param({}, {}, None, id="an ordinary job"),
        pytest.param({"state": JobState.SUSPENDED}, {}, "state", id="suspended"),
        pytest.param({"state": JobState.CONFIGURING}, {}, "state", id="configuring"),
        pytest.param({"state": JobState.UNKNOWN}, {}, "state", id="unknown"),
        pytest.param({"qos": "urgent"}, {}, "preemptor", id="an urgent job itself"),
        pytest.param({}, {"protected_partitions": ["batch"]}, "protected_partition", id="partition"),
        pytest.param({}, {"protected_qos": ["normal"]}, "protected_qos", id="qos"),
        pytest.param({}, {"protected_accounts": ["physics"]}, "protected_account", id="account"),
        pytest.param({}, {"protected_users": ["alice"]}, "protected_user", id="user"),
        pytest.param({}, {"partitions": ["scavenge"]}, "partition", id="not in the partitions that may"),
        pytest.param({}, {"partitions": ["scavenge", "batch"]}, None, id="in the partitions that may"),
        pytest.param({"het_job_id": "100"}, {}, "heterogeneous", id="heterogeneous"),
        pytest.param({"requeueable": False}, {}, "not_requeueable", id="not requeueable"),
        pytest.param({"batch": False}, {}, "not_requeueable", id="interactive"),
        pytest.param({"requeueable": False}, {"allow_cancel": True}, None, id="may be cancelled"),
        pytest.param(
            {"requeueable": False},
            {"allow_cancel": True, "allow_kill": False},
            "not_requeueable",
            id="not without kill",
        ),
        pytest.param({"start_time": after(-59)}, {}, "too_young", id="59 s old"),
        pytest.param({"start_time": after(-60)}, {}, None, id="60 s old"),
        pytest.param({"start_time": None}, {}, "too_young", id="start unknown"),
        pytest.param({"time_limit_s": 4_200}, {"spare_before_end": "10m"}, "near_end", id="ends within 10 minutes"),
        pytest.param({"time_limit_s": 4_201}, {"spare_before_end": "10m"}, None, id="ends just after"),
        pytest.param({"time_limit_s": None}, {"spare_before_end": "10m"}, None, id="never ends"),
        pytest.param({"job_id": "303"}, {}, "preempted_before", id="preempted three times"),
        pytest.param({"job_id": "302"}, {}, None, id="preempted twice"),
        pytest.param({}, {"max_preemptions": 0}, "preempted_before", id="never any"),
        pytest.param({}, {"allow_kill": False}, "no_option", id="cannot save itself"),
        pytest.param({"comment": SAVES}, {"allow_kill": False}, None, id="can save itself"),
        pytest.param({"comment": SAVES + ",x=1"}, {"allow_kill": False}, "no_option", id="unreadable claims"),
    ],
)
def test_exemptions(fields: dict[str, Any], sections: dict[str, Any], code: str | None) -> None:
    subject = job(**({"job_id": "101"} | fields))
    found = situation([subject], preempted={"303": 3, "302": 2}, candidates=sections)
    if code is None:
        assert set(candidates(found)) == {subject.job_id}
        assert codes(found) == {}
    else:
        assert candidates(found) == {}
        assert codes(found) == {subject.job_id: code}
        assert found.verdicts[0].reason


@pytest.mark.parametrize(
    ("under_way", "code"),
    [(UnderWay(jobs=frozenset({"101"})), "under_way"), (UnderWay(avoid=frozenset({"101"})), "did_not_leave")],
)
def test_jobs_of_other_evictions_are_not_touched(under_way: UnderWay, code: str) -> None:
    assert codes(situation([job("101")], under_way=under_way)) == {"101": code}


def test_an_exempt_job_may_still_end_by_itself() -> None:
    ending = job("101", time_limit_s=3_660, user="vip")
    found = situation([ending], candidates={"protected_users": ["vip"]})
    (candidate,) = found.problem.candidates
    assert [option.action for option in candidate.options] == [Action.END]
    assert candidate.options[0].ready_s == 90  # a minute left, and Slurm looks twice a minute
    assert codes(found) == {}
    assert codes(situation([ending], candidates={"protected_users": ["vip"]}, delay_s=99)) == {"101": "protected_user"}


def test_a_job_that_will_likely_have_ended_counts_where_the_site_wants_it() -> None:
    """The job has run for an hour; a hundred earlier ones of its user and name took 62 minutes, two 90."""
    known = History(run_times=lambda user, _: RunTimes((3_720.0,) * 100 + (5_400.0,) * 2 if user == "alice" else ()))
    jobs = [job("101", user="alice"), job("102", user="bob")]
    (option,) = ends(situation(jobs, history=known, planning={"end_confidence": 0.9}))["101"]
    assert option.ready_s == 120
    assert ends(situation(jobs, history=known, planning={"end_confidence": 0.9})).keys() == {"101"}
    assert "earlier jobs" in why_it_ends(situation(jobs, history=known, planning={"end_confidence": 0.9}))
    assert not ends(situation(jobs, history=known))
    assert not ends(situation(jobs, history=known, planning={"end_confidence": 0.99}))
    assert not ends(situation(jobs, history=known, planning={"end_confidence": 0.9}, delay_s=120))  # 10 s are for Slurm


def test_the_surer_of_a_likely_end_and_a_limit_is_the_sooner() -> None:
    known = History(run_times=lambda *_: RunTimes((3_720.0,) * 100))
    limited = job("101", time_limit_s=3_660)
    found = situation([limited], history=known, planning={"end_confidence": 0.9})
    assert [option.ready_s for option in ends(found)["101"]] == [90]
    assert "its own time limit" in why_it_ends(found)


def why_it_ends(found: PreparedProblem) -> str:
    return why_chosen(PlannedAction("101", Action.END, 0.0, 0, int(ends(found)["101"][0].ready_s)), found).reason


def ends(found: PreparedProblem) -> dict[str, list[Option]]:
    options = {each.job_id: [o for o in each.options if o.action is Action.END] for each in found.problem.candidates}
    return {job_id: those for job_id, those in options.items() if those}


@pytest.mark.parametrize("state", [JobState.SUSPENDED, JobState.UNKNOWN])
def test_what_does_not_run_does_not_end_by_itself(state: JobState) -> None:
    assert codes(situation([job("101", state=state, time_limit_s=3_660)])) == {"101": "state"}


# -- nodes -------------------------------------------------------------------------------------------------------


def test_jobs_side_by_side_free_a_node_together() -> None:
    found = situation([job("1", ["a", "b"]), job("2", ["b"])])
    assert candidates(found) == {"1": ("a", "b"), "2": ("b",)}


def test_a_candidate_says_what_rules_of_schedulers_look_at() -> None:
    waited = job("1", 2, start_time=after(-600), submit_time=after(-1_500), time_limit_s=3_600)
    unlimited = job("2", 1, start_time=after(-900), submit_time=after(-900), time_limit_s=None)
    problem = situation([waited, unlimited], of=urgent_job(nodes=3), idle=1).problem
    first, second = problem.candidates
    assert (first.ran_s, first.remaining_s, first.waited_s, first.job_nodes) == (600, 3_000, 900, 2)
    assert (second.ran_s, second.remaining_s, second.waited_s, second.job_nodes) == (900, None, 0, 1)
    assert (problem.nodes_needed, problem.preemptor_nodes) == (2, 3)


def test_a_node_shared_with_an_exempt_job_is_not_freed() -> None:
    found = situation(
        [job("1", ["a", "b"]), job("2", ["b"], user="vip"), job("3", ["b"])], candidates={"protected_users": ["vip"]}
    )
    assert candidates(found) == {"1": ("a",)}
    assert codes(found) == {"2": "protected_user", "3": "shared_with_exempt"}


def test_a_node_shared_with_one_that_leaves_is_freed() -> None:
    found = situation([job("1", ["a"]), job("2", ["a"], JobState.COMPLETING)])
    assert candidates(found) == {"1": ("a",)}


@pytest.mark.parametrize(
    ("jobs", "fields", "free"),
    [
        pytest.param([], {}, True, id="idle"),
        pytest.param([], {"alloc_cpus": 1}, False, id="Slurm counts processors that no job accounts for"),
        pytest.param([job("1", ["n"], JobState.COMPLETING)], {"alloc_cpus": NODE_CPUS}, True, id="completing"),
        pytest.param([job("1", ["n"])], {"alloc_cpus": NODE_CPUS}, False, id="busy"),
        pytest.param(
            [job("1", ["n"]), job("2", ["n"], JobState.COMPLETING)], {}, False, id="busy with one, one completing"
        ),
        pytest.param([job("1", ["n"], JobState.CONFIGURING)], {}, False, id="configuring"),
        pytest.param([job("1", ["n"], JobState.UNKNOWN)], {}, False, id="unknown"),
        pytest.param([], {"available": False}, False, id="drained"),
        pytest.param([], {"partitions": ("other",)}, False, id="another partition"),
        pytest.param([], {"reservation": "maintenance"}, False, id="reserved"),
        pytest.param([], {"reservation": ""}, False, id="reserved by who knows whom"),
        pytest.param([], {"cpus": NODE_CPUS - 1}, False, id="too few processors"),
        pytest.param([], {"memory_mib": NODE_MEMORY_MIB - 1}, False, id="too little memory"),
        pytest.param([], {"features": ("big",)}, False, id="a feature is missing"),
        pytest.param([], {"name": "out"}, False, id="excluded by the job"),
        pytest.param([], {"name": "taken"}, False, id="another eviction's placement"),
    ],
)
def test_free_nodes(jobs: list[Job], fields: dict[str, Any], free: bool) -> None:
    wanted = urgent_job(
        nodes=2, cpus_per_node=NODE_CPUS, memory_mib=NODE_MEMORY_MIB, features="big&fast", excluded_nodes=("out",)
    )
    subject = node(**({"name": "n", "features": ("big", "fast", "new")} | fields))
    found = situation(jobs, [subject], of=wanted, under_way=UnderWay(nodes=frozenset({"taken"})))
    assert found.free_nodes == ((subject.name,) if free else ())
    assert found.problem.nodes_needed == 2 - free


def test_a_busy_node_that_cannot_serve_is_no_gain() -> None:
    found = situation([job("1", ["n"])], [node("n", available=False, alloc_cpus=NODE_CPUS)])
    assert codes(found) == {"1": "elsewhere"}


def test_the_eviction_that_is_planned_anew_may_use_its_own_placement() -> None:
    reserved = [node("a", reservation="clearway_1"), node("b", reservation="clearway_1", alloc_cpus=NODE_CPUS)]
    leaving = job("1", ["b"])
    found = situation(
        [leaving], reserved, under_way=UnderWay(own_nodes=frozenset({"a", "b"}), leaving=frozenset({"1"}))
    )
    assert found.free_nodes == ("a", "b")
    assert found.problem.nodes_needed == 0
    assert situation([leaving], reserved).free_nodes == ()


def test_more_free_nodes_than_needed() -> None:
    found = situation([], idle=5)
    assert len(found.free_nodes) == 5
    assert found.problem.nodes_needed == 0


# -- time --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("deadline_s", "horizon_s"),
    [(600, 590), (15, 5), (10, 0), (4, 0), (0, 590), (-3_600, 590)],
    ids=["in time", "soon", "just", "too soon to do anything", "passed now", "passed long ago"],
)
def test_horizon(deadline_s: float, horizon_s: float) -> None:
    waiting = Preemptor(urgent_job(), "rule 1", 600, after(deadline_s))
    context = PlanningContext(snapshot=snapshot([]), config=Config(), now=NOW)
    assert horizon(waiting, context) == horizon_s
    assert horizon(waiting, replace(context, begins_in_s=4.0)) == max(0, horizon_s - 4)


@pytest.mark.parametrize(
    ("delay_s", "steps", "step_s", "max_delay_s"),
    [(610, 60, 10, 600), (70, 60, 1, 60), (611, 60, 11, 594), (10, 60, 1, 0), (110, 1, 100, 100)],
)
def test_steps_of_the_curve(delay_s: float, steps: int, step_s: int, max_delay_s: int) -> None:
    problem = situation([job()], delay_s=delay_s, planning={"steps": steps}).problem
    assert (problem.step_s, problem.max_delay_s) == (step_s, max_delay_s)


# -- earlier preemptions, and other evictions --------------------------------------------------------------------


@pytest.mark.parametrize(("times", "ran_s", "goes"), [(0, 61, True), (1, 119, False), (1, 121, True), (2, 239, False)])
def test_a_job_preempted_before_may_run_undisturbed_for_longer(times: int, ran_s: float, goes: bool) -> None:
    found = situation([job("101", start_time=after(-ran_s))], preempted={"101": times})
    assert (codes(found) == {}) is goes
    if not goes:
        (verdict,) = found.verdicts
        assert verdict.code == "too_young"
        again = f"as it was preempted {times} time{'s' * (times != 1)} before"
        assert verdict.reason.endswith(again)


def test_what_leaves_for_another_eviction_counts_as_free_after_what_is_free_already() -> None:
    jobs = [job("1", ["a", "b"]), job("2", ["c"]), job("3", ["b"])]
    nodes = [node(name) for name in ("a", "b", "c", "z")]
    found = situation(jobs, nodes, under_way=UnderWay(jobs=frozenset({"1"}), promised=frozenset({"1"})))
    assert found.free_nodes == ("z", "a")  # b is still held by job 3
    assert candidates(found) == {"2": ("c",), "3": ("b",)}
