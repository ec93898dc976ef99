"""What urgent jobs of one cycle have in common: each has the problem that it would have alone."""

from __future__ import annotations

from dataclasses import replace

from clearway.config.configuration import Config
from clearway.eligibility.context import PlanningContext
from clearway.model.plan import Preemptor
from clearway.preemption.candidates import Survey
from clearway.preemption.plan import too_late
from clearway.preemption.problem import PreparedProblem, horizon, prepare_problem
from tests.builders import NOW, after, job, node, snapshot, urgent_job

SAVES = "clearway:checkpoint=signal,took=10"
CONFIG = Config.model_validate({"preemptors": [{"qos": ["urgent"]}], "candidates": {"protected_qos": ["keep"]}})


def context() -> PlanningContext:
    jobs = [
        job("101", nodes=("n1", "n2"), comment=SAVES),
        job("102", nodes=("n3",), time_limit_s=4_000),
        job("103", nodes=("n4",), qos="keep", time_limit_s=4_000),
        job("104", nodes=("n5", "n6"), qos="keep"),
    ]
    nodes = [node(f"n{number}", features=("big",) if number % 2 else ()) for number in range(1, 9)]
    return PlanningContext(snapshot=snapshot(jobs, nodes), config=CONFIG, now=NOW)


def urgent(job_id: str, delay_s: float, nodes: int, **fields: object) -> Preemptor:
    return Preemptor(replace(urgent_job(job_id), num_nodes=nodes, **fields), "rule 1", delay_s, after(delay_s))  # type: ignore[arg-type]


def both(some: list[Preemptor]) -> list[tuple[PreparedProblem, PreparedProblem]]:
    """Each with what was found for it alone, and beside the others."""
    seen = context()
    survey = Survey(max(horizon(each, context()) for each in some))
    return [
        (prepare_problem(each, "batch", seen), prepare_problem(each, "batch", seen, survey=survey)) for each in some
    ]


def test_urgent_jobs_of_one_kind_share_their_candidates() -> None:
    found = both([urgent("1", 600, 1), urgent("2", 600, 3), urgent("3", 600, 2)])
    for alone, beside in found:
        assert beside.problem == alone.problem
        assert (beside.free_nodes, beside.verdicts) == (alone.free_nodes, alone.verdicts)
    assert len({id(beside.problem.candidates) for _, beside in found}) == 1


def test_urgent_jobs_that_ask_for_other_nodes_have_their_own() -> None:
    (alone, beside), (big_alone, big) = both([urgent("1", 600, 1), urgent("2", 600, 1, features="big")])
    assert beside.problem == alone.problem
    assert big.problem == big_alone.problem
    assert big.problem.candidates != beside.problem.candidates


def test_an_end_that_comes_too_late_for_one_of_them_is_no_option_in_its_time() -> None:
    (_, soon), (_, late) = both([urgent("1", 120, 1), urgent("2", 600, 1)])
    assert soon.problem.candidates is late.problem.candidates
    by_id = {each.job_id: each for each in soon.problem.candidates}
    assert not soon.problem.in_time(by_id["103"].options)
    assert late.problem.in_time(by_id["103"].options)
    kept = too_late(by_id["103"], soon)
    assert kept is not None
    assert kept.code == "protected_qos"
    assert too_late(by_id["103"], late) is None
    assert too_late(by_id["102"], soon) is None
