"""What the joint planner is asked: for each urgent job what it would be asked for that one alone."""

from __future__ import annotations

from dataclasses import replace

from clearway.config.configuration import Config
from clearway.eligibility.context import PlanningContext
from clearway.model.plan import Curve, Preemptor
from clearway.model.problem import Option
from clearway.planning.formulation.narrowed import with_options
from clearway.planning.formulation.shared_bandwidth import after_others, one_after_another
from clearway.preemption.joint_plans import requests_of
from clearway.preemption.plan import Solution
from clearway.preemption.problem import horizon, prepare_problem
from clearway.preemption.survey import Survey
from tests.builders import NOW, after, job, node, snapshot, urgent_job

SAVES = "clearway:checkpoint=signal,took=10"
CONFIG = Config.model_validate({"preemptors": [{"qos": ["urgent"]}]})
BUSY_S = 90


def solutions(delays_s: tuple[float, ...]) -> dict[str, Solution]:
    """On candidates that they share, while another checkpoint is being written."""
    jobs = [job(str(100 + number), nodes=(f"n{number}",), comment=SAVES) for number in range(1, 6)]
    jobs.append(job("106", nodes=("n6",), time_limit_s=4_000))
    seen = PlanningContext(
        snapshot=snapshot(jobs, [node(f"n{number}") for number in range(1, 8)]), config=CONFIG, now=NOW
    )
    urgent = [
        Preemptor(urgent_job(str(number)), "rule 1", delay_s, after(delay_s)) for number, delay_s in enumerate(delays_s)
    ]
    survey = Survey(max(horizon(each, CONFIG, NOW) for each in urgent))
    found: dict[str, Solution] = {}
    for each in urgent:
        prepared = prepare_problem(each, "batch", seen, survey=survey)
        curve = Curve("none", (), exact=False)
        found[each.job.job_id] = Solution(prepared, curve, None)  # type: ignore[arg-type]
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
