"""What the joint planner is asked for each urgent job, as though it were alone; and what its plans say of each job."""

from __future__ import annotations

from dataclasses import replace

from clearway.config.configuration import Config
from clearway.eligibility.context import PlanningContext
from clearway.model.plan import Curve, CurvePoint, Plan, Preemptor
from clearway.model.problem import Action, Option
from clearway.planning.formulation.shared_bandwidth import after_others, one_after_another, with_options
from clearway.planning.joint.requests import Allocation
from clearway.preemption.batch import plans_of, requests_of
from clearway.preemption.candidates import Survey
from clearway.preemption.plan import Solution
from clearway.preemption.problem import horizon, prepare_problem
from tests.builders import NOW, after, job, node, snapshot, urgent_job

SAVES = "clearway:checkpoint=signal,took=10"
CONFIG = Config.model_validate({"preemptors": [{"qos": ["urgent"]}], "candidates": {"protected_qos": ["keep"]}})
BUSY_S = 90


def solutions(delays_s: tuple[float, ...]) -> dict[str, Solution]:
    """On candidates that they share, while another checkpoint is being written."""
    jobs = [job(str(100 + number), nodes=(f"n{number}",), comment=SAVES) for number in range(1, 6)]
    jobs.append(job("106", nodes=("n6",), time_limit_s=4_000))
    jobs.append(job("107", nodes=("n8",), qos="keep"))
    seen = PlanningContext(
        snapshot=snapshot(jobs, [node(f"n{number}") for number in range(1, 9)]), config=CONFIG, now=NOW
    )
    urgent = [
        Preemptor(urgent_job(str(number)), "rule 1", delay_s, after(delay_s)) for number, delay_s in enumerate(delays_s)
    ]
    survey = Survey(max(horizon(each, seen) for each in urgent))
    found: dict[str, Solution] = {}
    for each in urgent:
        prepared = prepare_problem(each, "batch", seen, survey=survey)
        point = CurvePoint(0, feasible=True)
        found[each.job.job_id] = Solution(prepared, Curve("none", (point,), exact=False), point)
    shared = next(iter(found.values())).prepared.problem

    def beside(option: Option) -> Option:
        return replace(option, file_system_s=5.0) if option.checkpoint_s else option

    candidates = with_options(shared, beside).candidates
    for job_id, one in found.items():
        problem = replace(one.prepared.problem, candidates=candidates, busy_s=BUSY_S)
        found[job_id] = replace(one, prepared=replace(one.prepared, problem=problem))
    return found


def test_each_is_asked_for_as_though_it_were_alone() -> None:
    found = solutions((120, 600, 120, 900, 600))
    for request in requests_of(found):
        own = found[request.job_id].prepared.problem
        assert own.busy_s == BUSY_S
        assert request.problem == after_others(one_after_another(own), BUSY_S)
        assert request.problem.max_delay_s < own.max_delay_s
        assert all(option.file_system_s is None for each in request.problem.candidates for option in each.options)


def test_those_within_one_delay_share_their_candidates() -> None:
    requests = requests_of(solutions((120, 600, 120, 900, 600)))
    assert len({id(each.problem.candidates) for each in requests}) == 3
    assert requests[0].problem.candidates is requests[2].problem.candidates


def test_a_plan_has_one_verdict_on_each_job_also_where_a_job_leaves_that_only_others_may_preempt() -> None:
    """Job 107 is protected from the first urgent job, and leaves all the same: for whole nodes all jobs have to."""
    kill = Option(Action.KILL, lost_work_node_s=60.0)
    leaving = (("101", kill), ("107", kill))
    found = solutions((600, 600))
    allocations = [Allocation("0", leaving, (), ("n1", "n8"), 0), Allocation("1", (("102", kill),), (), ("n2",), 0)]
    plans = plans_of(found, allocations)
    for plan in plans.values():
        assert isinstance(plan, Plan)
        assert [each.job_id for each in plan.verdicts] == [str(number) for number in range(101, 108)]
    codes = {job_id: {each.job_id: each.code for each in plan.verdicts} for job_id, plan in plans.items()}
    assert codes["0"] == codes["0"] | {"101": "kill", "102": "leaves_for_another", "103": "not_needed"}
    assert codes["1"] == codes["1"] | {"101": "leaves_for_another", "102": "kill", "103": "not_needed"}
