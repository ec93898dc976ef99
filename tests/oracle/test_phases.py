"""Many urgent jobs on the same nodes: plans by phases are valid, and their bound is below what everything loses."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import pytest

from clearway.model.problem import Action, Candidate, EvictionProblem, Option
from clearway.planning.joint import several
from clearway.planning.joint.phases import by_phases
from clearway.planning.joint.requests import MOST_GROUPS, Request, as_one, groups_of
from clearway.planning.joint.several import plan_together
from tests.oracle.problems import TIMES
from tests.oracle.test_several import check, cost_of, endless, everything

CASES = 60 * TIMES


def bursts(seed: int) -> tuple[Request, ...]:
    """Three urgent jobs within two delays that can use all nodes, and up to four jobs on these."""
    rng = random.Random(seed)
    free = tuple(f"f{number}" for number in range(rng.randint(0, 1)))
    jobs = []
    for number in range(rng.randint(2, 4)):
        size = rng.randint(1, 4)
        options = [Option(Action.KILL, rng.choice((0, 0.5, 5, 30)))] if rng.random() < 0.8 else []
        options += [Option(Action.SYS_CHECKPOINT, rng.choice((0, 1)), rng.randint(1, 8), rng.choice((0, 2)))]
        if rng.random() < 0.3:
            options.append(Option(Action.END, 0, 0, rng.randint(0, 12)))
        names = tuple(f"n{number}{place}" for place in range(size))
        jobs.append(Candidate(str(number + 1), size, tuple(options), names))
    requests = []
    for number, delay_s in enumerate(rng.choices((rng.randint(0, 6), rng.randint(4, 12)), k=3)):
        nodes = rng.randint(1, 3)
        problem = EvictionProblem(max(0, nodes - len(free)), delay_s, 1, tuple(jobs), nodes)
        requests.append(Request(f"u{number}", nodes, problem, free))
    return tuple(requests)


def test_plans_by_phases_are_valid_and_their_bound_holds() -> None:
    planned = proven = 0
    for seed in range(CASES):
        requests = bursts(seed)
        least = everything(requests)
        found = by_phases(groups_of(requests, MOST_GROUPS), endless)
        if found is None or found.allocations is None:
            continue
        assert least is not None, seed
        assert {each.job_id for each in found.allocations} == {request.job_id for request in requests}
        check(requests, found.allocations)
        lost = cost_of(found.allocations)[0]
        assert found.least_node_s <= float(least[0]) + 1e-6, seed
        assert lost >= least[0]
        planned += 1
        proven += lost == least[0]
    assert planned >= CASES // 3
    assert proven >= planned // 2


def test_delays_that_are_nearly_the_same_are_one_phase_and_the_bound_holds() -> None:
    for seed in range(CASES // 2):
        requests = bursts(seed)
        groups = groups_of(requests, 1)
        found = by_phases(groups, endless)
        least = everything(requests)
        if found is not None and found.allocations is not None:
            check(requests, found.allocations)
            assert least is not None
            assert found.least_node_s <= float(least[0]) + 1e-6, seed


def test_requests_that_are_alike_are_one_of_as_many_nodes() -> None:
    first = bursts(1)[0]
    same = [replace(first, job_id=f"v{number}") for number in range(5)]
    [group] = groups_of(same)
    assert as_one(group).nodes == 5 * first.nodes
    other = replace(first, free_nodes=("elsewhere",))
    assert len(groups_of([*same, other])) == 2


def test_a_suspended_jobs_nodes_are_not_handed_out_to_two() -> None:
    first = bursts(1)[0]
    jobs = tuple(replace(job, options=(Option(Action.SUSPEND),)) for job in first.problem.candidates)
    same = [replace(first, job_id=f"v{n}", problem=replace(first.problem, candidates=jobs)) for n in range(3)]
    assert len(groups_of(same)) == 3


def test_many_candidates_take_this_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(several, "FEW_CANDIDATES", 0)
    for seed in range(CASES // 4):
        requests = bursts(seed)
        found = plan_together(requests, endless)
        assert found is not None
        check(requests, found.allocations)
        least = everything(requests)
        if least is not None and len(found.allocations) == len(requests):
            assert found.least_node_s <= least[0] + Fraction(1, 10**6)
            assert cost_of(found.allocations)[0] >= least[0]


def test_without_a_job_that_may_leave_in_time_there_is_no_plan() -> None:
    first = bursts(1)[0]
    jobs = tuple(replace(job, options=(Option(Action.SYS_CHECKPOINT, 0, 99),)) for job in first.problem.candidates)
    asks = replace(first, problem=replace(first.problem, candidates=jobs), nodes=2, free_nodes=())
    assert by_phases([[asks]], endless) is None
