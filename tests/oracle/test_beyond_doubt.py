"""Plans that are beyond doubt, beside exact curves."""

from __future__ import annotations

import pytest

from clearway.planning.dp.eviction_dp import EvictionDP
from clearway.planning.formulation.beyond_doubt import any_plan
from clearway.planning.formulation.partial_nodes import serving
from tests.oracle.many import seeds
from tests.oracle.problems import TIMES
from tests.oracle.test_several_needs import SHAPES, requests_of

BLOCKS, IN_A_TEST = TIMES, 40


@pytest.mark.parametrize("block", range(BLOCKS))
@pytest.mark.parametrize("shape", SHAPES)
def test_where_a_plan_is_beyond_doubt_every_deadline_has_one(shape: str, block: int) -> None:
    for seed in seeds(SHAPES, shape, block, IN_A_TEST):
        for request in requests_of(seed):
            problem = request.problem
            found = any_plan(problem)
            if found is None:
                continue
            [point] = found.points
            exact = EvictionDP().solve(problem)
            assert all(each.feasible and each.cost <= point.cost for each in exact.points), seed
            gone = {planned.job_id for planned in point.actions}
            assert len(serving(problem, gone)) >= problem.nodes_needed
            options = {(each.job_id, way.action): way for each in problem.candidates for way in each.options}
            used = [options[planned.job_id, planned.action] for planned in point.actions]
            assert not any(way.checkpoint_s or way.ready_s for way in used)


def test_most_plans_that_need_no_checkpoint_are_beyond_doubt() -> None:
    known = at_once = 0
    for seed in range(200):
        for request in requests_of(seed):
            needs = request.problem.needs
            if needs is None or needs.together or needs.required_nodes or request.problem.pools:
                assert any_plan(request.problem) is None
                continue
            first = EvictionDP().solve(request.problem).points[0]
            at_once += first.feasible
            known += any_plan(request.problem) is not None
    assert at_once >= known >= 0.95 * at_once > 20, "those that need a job to be suspended are not among them"
