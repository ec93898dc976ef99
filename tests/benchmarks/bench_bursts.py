"""How long a hundred urgent jobs at once take to plan on 10,000 nodes, beside planning one of them alone.

Run with ``pytest tests/benchmarks/bench_bursts.py -s``. Times are processor time of the same run, what scipy takes to
be imported left out. The yardstick is a curve for one of these urgent jobs: a hundred alone would take a hundred of it.
What is too slow is measured again, twice at most.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from clearway.planning.dp.eviction_dp import EvictionDP
from clearway.planning.joint.requests import JointPlan, Request
from clearway.planning.joint.several import plan_together
from tests.benchmarks.large import large_problem
from tests.benchmarks.yardstick import Pace

NODES, JOBS, URGENT = 10_000, 1_000, 100
STEP_S, DEADLINES = 15, 60
DELAYS_S = (60, 300, 600, 885)
PROGRAMS_S = 1.0  # as in a cycle
ALLOWED_S = 1.0  # on a quiet machine
MOST_RATIO = 50  # to the curve for one of them
LARGEST_GAP = 0.05  # where lost work is not next to nothing, of which any share may be needless
TRIES = 3


def burst(seed: int, nodes: int, delays_s: tuple[int, ...] = DELAYS_S) -> list[Request]:
    """Urgent jobs of up to twice as many nodes, all of which any of them can use."""
    rng = Random(seed)
    problem = large_problem(NODES, JOBS, nodes, DEADLINES, STEP_S)
    names = iter(range(NODES))
    jobs = tuple(
        [replace(job, node_names=tuple(f"n{next(names):05d}" for _ in range(job.nodes))) for job in problem.candidates]
    )
    requests = []
    for number in range(URGENT):
        asked = rng.randint(1, 2 * nodes)
        own = replace(problem, nodes_needed=asked, max_delay_s=rng.choice(delays_s), candidates=jobs)
        requests.append(Request(f"u{number:03d}", asked, own, ()))
    return requests


def limited() -> Callable[[], float]:
    begin = time.process_time()
    return lambda: PROGRAMS_S - (time.process_time() - begin)


def measured(requests: list[Request]) -> tuple[float, float, JointPlan]:
    """Seconds of one of them alone, and of all; and the plan."""
    begin = time.process_time()
    EvictionDP().solve(requests[0].problem)
    alone = time.process_time()
    plan = plan_together(requests, EvictionDP(), limited())
    return alone - begin, time.process_time() - alone, plan


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("nodes", "delays_s", "largest_gap"),
    [(8, (600,), 1.0), (30, DELAYS_S, LARGEST_GAP)],
    ids=["one delay", "four delays"],
)
def test_a_hundred_urgent_jobs_are_planned_in_a_second(
    nodes: int, delays_s: tuple[int, ...], largest_gap: float
) -> None:
    import scipy.optimize  # noqa: F401 - once, before what is measured

    requests = burst(1, nodes, delays_s)
    for _ in range(TRIES):  # on a machine that others share whole runs are slow
        pace = Pace(time.process_time, arrays=True)
        pace.take()
        alone_s, all_s, plan = measured(requests)
        pace.take()
        print(
            f"{URGENT} urgent jobs, {delays_s} s: {all_s:.2f} s, one alone {alone_s:.3f} s, x{all_s / alone_s:.1f}; "
            f"gap {100 * plan.gap:.2f} %; the machine x{pace.slower:.1f}"
        )
        assert len(plan.allocations) == URGENT
        assert plan.gap <= largest_gap
        if all_s < ALLOWED_S * pace.slower and all_s < MOST_RATIO * alone_s:
            return
    pytest.fail(f"too slow in {TRIES} runs; the last: {all_s:.2f} s, one alone {alone_s:.3f} s, x{pace.slower:.1f}")
