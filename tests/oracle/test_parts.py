"""Programs in parts for several urgent jobs that share nodes, beside the exact program and beside trying everything."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from clearway.planning.joint import parts
from clearway.planning.joint.parts import SPARE, PhaseProgram, Priced, by_parts
from clearway.planning.joint.requests import Allocation, Request
from clearway.planning.joint.several import by_program, plan_together
from tests.benchmarks.shared import shared_problem
from tests.oracle.many import seeds
from tests.oracle.problems import TIMES
from tests.oracle.test_several_needs import SHAPES, check, cost_of, endless, everything, requests_of

ANYWHERE = tuple(shape for shape in SHAPES if shape not in ("in a row", "one switch", "everything", "suspends"))
BLOCKS, IN_A_TEST = TIMES, 40


def lost(plan: tuple[Allocation, ...]) -> float:
    return float(cost_of(plan)[0])


def several_alike(seed: int) -> list[Request]:
    """Each urgent job of a small problem once more or twice, some within other delays."""
    rng = random.Random(seed)
    found = []
    for request in requests_of(seed):
        for number in range(rng.randint(1, 3)):
            delay_s = rng.choice((request.problem.max_delay_s, rng.randint(0, 12)))
            problem = replace(request.problem, max_delay_s=delay_s)
            found.append(replace(request, job_id=f"{request.job_id}{number}", problem=problem))
    return found


@pytest.mark.parametrize("block", range(BLOCKS))
@pytest.mark.parametrize("shape", ANYWHERE)
def test_no_plan_loses_less_than_the_bound(shape: str, block: int) -> None:
    compared = best_ones = 0
    for seed in seeds(SHAPES, shape, block, IN_A_TEST):
        requests = requests_of(seed)
        found = by_parts(requests, endless)
        if found is None:
            continue
        every = everything(requests)
        if found.allocations is not None:
            check(requests, found.allocations)
        if found.allocations is None or len(found.allocations) < len(requests):
            continue
        assert every is not None, seed
        compared += 1
        assert cost_of(found.allocations)[0] >= every[0]
        assert found.least_node_s <= float(every[0])
        best_ones += cost_of(found.allocations)[0] == every[0]
    assert compared >= IN_A_TEST / 10
    assert best_ones >= 0.7 * compared


@pytest.mark.parametrize("block", range(BLOCKS))
@pytest.mark.parametrize("shape", ANYWHERE)
def test_many_that_are_alike(shape: str, block: int) -> None:
    """More than there is room for: what is served is served, and the bound is that of the jobs of the plan."""
    served = left_out = 0
    for seed in seeds(SHAPES, shape, block, IN_A_TEST):
        requests = several_alike(seed)
        found = by_parts(requests, endless)
        if found is None or found.allocations is None:
            continue
        check(requests, found.allocations)
        ids = {each.job_id for each in found.allocations}
        mine = [request for request in requests if request.job_id in ids]
        exact = by_program(mine, endless)
        assert exact is not None
        assert exact.proven
        assert lost(exact.allocations) <= lost(found.allocations)
        assert found.least_node_s <= lost(exact.allocations)
        served += 1
        left_out += len(mine) < len(requests)
    assert served >= IN_A_TEST / 4
    assert left_out > 0


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape not in ANYWHERE])
def test_nodes_that_must_lie_together_are_none_of_it(shape: str) -> None:
    for seed in seeds(SHAPES, shape, 0, 20):
        requests = requests_of(seed)
        found = by_parts(requests, endless)
        if found is not None and found.allocations is not None:
            check(requests, found.allocations)


def test_a_kind_beyond_the_room_leaves_the_others_theirs() -> None:
    """The last ones of a kind are left out, and nobody else is."""
    for seed in range(60):
        requests = requests_of(seed)
        first = requests[0]
        if first.problem.needs is None:
            continue
        crowd = [replace(first, job_id=f"crowd{number:02d}") for number in range(20)]
        found = by_parts(crowd, endless)
        if found is None or found.allocations is None:
            continue
        served = [each.job_id for each in found.allocations]
        assert served == [each.job_id for each in crowd[: len(served)]]
        assert len(served) < len(crowd)


def test_the_first_is_not_left_out_for_a_crowd_of_another_kind() -> None:
    """Though it is the only one of its kind, and the crowd lacks just as many nodes."""
    compared = 0
    for seed in range(60):
        first, second = requests_of(seed)[:2]
        alone = by_parts([first], endless)
        if first.problem.needs == second.problem.needs or alone is None or alone.allocations is None:
            continue
        crowd = [replace(second, job_id=f"crowd{number:02d}") for number in range(20)]
        found = by_parts([first, *crowd], endless)
        if found is None or found.allocations is None:
            continue
        served = {each.job_id for each in found.allocations}
        compared += 1
        assert first.job_id in served or not served & {each.job_id for each in crowd}, seed
        assert len(served) <= len(crowd)
    assert compared >= 5


def test_without_time_there_is_none() -> None:
    assert all(by_parts(requests_of(seed), lambda: 0.0) is None for seed in range(40))


def test_large_clusters_have_a_bound() -> None:
    problem = shared_problem(1, machine_nodes=100, jobs=300, needed=1, gpus=4)
    requests = [Request(f"u{number:02d}", 1, problem, ()) for number in range(15)]
    found = plan_together(requests, endless)
    assert found is not None
    check(requests, found.allocations)
    assert len(found.allocations) == len(requests)
    assert 0 < found.least_node_s <= lost(found.allocations)


def test_without_prices_there_are_nodes_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where time was up before there were any: more are asked in a phase than nodes are to spare."""
    problem = shared_problem(1, machine_nodes=100, jobs=300, needed=1, gpus=4)
    crowd = [Request(f"u{number:02d}", 1, problem, ()) for number in range(SPARE + 6)]
    monkeypatch.setattr(PhaseProgram, "priced", lambda *_: Priced(0.0, 0.0, frozenset()))
    found = by_parts(crowd, endless)
    assert found is not None
    assert found.allocations is not None
    check(crowd, found.allocations)
    assert len(found.allocations) == len(crowd)


def test_the_most_pressing_have_a_plan_where_time_is_up_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of them waits for another cycle; on so few nodes the least time that a phase has would do for all."""
    monkeypatch.setattr(parts, "LATER_S", 0.0)
    problem = shared_problem(1, machine_nodes=100, jobs=300, needed=1, gpus=4)
    delays_s = (100, 300, 500)
    crowd = [
        Request(f"u{number:02d}", 1, replace(problem, max_delay_s=delays_s[number % 3], step_s=1), ())
        for number in range(15)
    ]
    complete = by_parts(crowd, endless)
    assert complete is not None
    assert not complete.later
    seen = set()
    for calls in range(40):  # the clock is read a few times for each phase
        left_s = iter([60.0] * calls)
        found = by_parts(crowd, lambda left_s=left_s: next(left_s, 0.0))  # type: ignore[misc]
        if found is None or found.allocations is None:
            continue
        check(crowd, found.allocations)
        served = {each.job_id for each in found.allocations}
        assert found.later == {each.job_id for each in crowd} - served
        reached_s = delays_s[len(served) // 5 - 1]
        assert found.later == {each.job_id for each in crowd if each.problem.max_delay_s > reached_s}
        assert not (found.later and found.least_node_s)
        seen.add(len(served))
    assert seen == {5, 10, 15}
