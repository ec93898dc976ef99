"""Each rule on small cases that its source's definition decides."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import pytest

from clearway.config import plugins
from clearway.model.plan import CurvePoint
from clearway.model.problem import Action, Candidate, EvictionProblem, Option
from clearway.planning.base import Planner
from clearway.planning.rules import LOSS_PER_NODE_PRUNE, SLURM_DEFAULT, UJFB, YOUNGEST_FIRST, YOUNGEST_PRUNE
from clearway_lab.baselines import WeightedCost, estimated_slowdown

HOUR_S = 3_600
SUSPEND = Option(Action.SUSPEND, checkpoint_s=60)


def job(
    job_id: str,
    nodes: int,
    *more: Option,
    ran_s: float = HOUR_S,
    remaining_s: float | None = HOUR_S,
    waited_s: float = 0,
    priority: int = 0,
    lost_s: float | None = None,
    job_nodes: int = 0,
) -> Candidate:
    """Killing it loses its run so far, unless ``lost_s`` says how long ago it saved itself."""
    kill = Option(Action.KILL, nodes * (ran_s if lost_s is None else lost_s))
    past = {"ran_s": ran_s, "remaining_s": remaining_s, "waited_s": waited_s}
    return Candidate(job_id, nodes, (kill, *more), **past, preempt_priority=priority, job_nodes=job_nodes)


def last_point(planner: Planner, needed: int, jobs: Sequence[Candidate], max_delay_s: int = 600) -> CurvePoint:
    return planner.solve(EvictionProblem(needed, max_delay_s, 60, tuple(jobs))).points[-1]


def gone(planner: Planner, needed: int, *jobs: Candidate, max_delay_s: int = 600) -> dict[str, Action]:
    point = last_point(planner, needed, jobs, max_delay_s)
    return {planned.job_id: planned.action for planned in point.actions}


# -- UJFB --------------------------------------------------------------------------------------------------------


def test_ujfb_suspends_the_job_with_the_longest_remaining_run_time() -> None:
    jobs = (
        job("1", 4, SUSPEND, remaining_s=100, lost_s=0),
        job("2", 4, SUSPEND, remaining_s=9_000),
        job("3", 4, SUSPEND, remaining_s=500),
    )
    assert gone(UJFB, 4, *jobs) == {"2": Action.SUSPEND}
    assert gone(UJFB, 5, *jobs) == {"2": Action.SUSPEND, "3": Action.SUSPEND}


def test_ujfb_takes_a_job_without_a_time_limit_first_and_ties_by_job_id() -> None:
    assert gone(UJFB, 1, job("1", 1, remaining_s=10**9), job("2", 1, remaining_s=None)) == {"2": Action.KILL}
    assert gone(UJFB, 1, job("9", 1), job("10", 1)) == {"10": Action.KILL}  # as text


def test_ujfb_takes_the_cheapest_option_where_suspending_is_not_offered_or_takes_too_long() -> None:
    saves = Option(Action.SYS_CHECKPOINT, checkpoint_s=120)
    assert gone(UJFB, 4, job("1", 4, saves)) == {"1": Action.SYS_CHECKPOINT}
    assert gone(UJFB, 4, job("1", 4, SUSPEND, saves), max_delay_s=0) == {"1": Action.KILL}
    # the first suspension leaves no time for the second
    assert gone(UJFB, 8, job("1", 4, SUSPEND), job("2", 4, SUSPEND), max_delay_s=60) == {
        "1": Action.SUSPEND,
        "2": Action.KILL,
    }


def test_ujfb_does_not_prune() -> None:
    assert set(gone(UJFB, 8, job("1", 1, remaining_s=9_000), job("2", 8))) == {"1", "2"}


# -- Slurm -------------------------------------------------------------------------------------------------------


def test_slurm_goes_by_priority_before_nodes() -> None:
    jobs = (job("1", 2, priority=20), job("2", 8, priority=10), job("3", 4, priority=10))
    assert set(gone(SLURM_DEFAULT, 4, *jobs)) == {"3"}
    assert set(gone(SLURM_DEFAULT, 9, *jobs)) == {"2", "3"}
    assert set(gone(SLURM_DEFAULT, 13, *jobs)) == {"1", "2", "3"}


def test_slurm_requeues_what_could_be_saved() -> None:
    saves = Option(Action.APP_CHECKPOINT, checkpoint_s=60)
    jobs = (job("1", 1, saves), job("2", 2, saves), job("3", 8, saves))
    assert gone(SLURM_DEFAULT, 11, *jobs) == {"1": Action.KILL, "2": Action.KILL, "3": Action.KILL}


# What Slurm 22.05.8 preempted of five jobs of the partitions mid (tier 20) and low (tier 10), started in this order.
SEEN = (("mid", 1), ("low", 2), ("low", 1), ("mid", 3), ("low", 1))


@pytest.mark.parametrize(
    ("planner", "needed", "preempted"),
    [
        (SLURM_DEFAULT, 2, {2, 4}),
        (SLURM_DEFAULT, 3, {1, 2}),
        (SLURM_DEFAULT, 5, {0, 1, 2, 4}),
        (YOUNGEST_FIRST, 2, {3}),
        (YOUNGEST_FIRST, 3, {3}),
        (YOUNGEST_FIRST, 5, {2, 3, 4}),
    ],
)
def test_slurm_preempts_as_a_real_one_did(planner: Planner, needed: int, preempted: set[int]) -> None:
    jobs = [
        job(str(place), nodes, priority={"mid": 20, "low": 10}[partition], ran_s=60 - place)
        for place, (partition, nodes) in enumerate(SEEN)
    ]
    assert set(gone(planner, needed, *jobs)) == set(map(str, preempted))


def test_slurm_begins_again_with_the_job_that_made_room() -> None:
    jobs = (job("1", 1), job("2", 2), job("3", 3), job("4", 4))
    assert set(gone(SLURM_DEFAULT, 4, *jobs)) == {"2", "3"}  # not 1, with which the search began


def test_slurm_counts_the_nodes_a_job_holds_not_those_it_frees() -> None:
    assert set(gone(SLURM_DEFAULT, 1, job("1", 1, job_nodes=9), job("2", 2))) == {"2"}


def test_the_youngest_goes_first_and_only_pbs_spares_it_when_it_was_not_needed() -> None:
    jobs = (job("1", 1, ran_s=10), job("2", 2, ran_s=20), job("3", 8, ran_s=90), job("4", 8, ran_s=80_000))
    assert set(gone(YOUNGEST_FIRST, 9, *jobs)) == {"2", "3"}
    assert set(gone(YOUNGEST_PRUNE, 9, *jobs)) == {"1", "3"}
    assert set(gone(YOUNGEST_PRUNE, 8, *jobs)) == {"3"}
    assert set(gone(YOUNGEST_PRUNE, 9, *jobs)) == {"1", "3"}  # the pass goes backward: 2 is spared before 1


def test_pbs_suspends_before_it_checkpoints_before_it_requeues() -> None:
    saves = Option(Action.SYS_CHECKPOINT, checkpoint_s=300)
    assert gone(YOUNGEST_PRUNE, 1, job("1", 1, saves, SUSPEND)) == {"1": Action.SUSPEND}
    assert gone(YOUNGEST_PRUNE, 1, job("1", 1, saves)) == {"1": Action.SYS_CHECKPOINT}
    assert gone(YOUNGEST_PRUNE, 1, job("1", 1, saves), max_delay_s=60) == {"1": Action.KILL}


# -- loss per node -----------------------------------------------------------------------------------------------


def test_the_price_is_what_the_cheapest_option_in_time_loses_per_node() -> None:
    jobs = (job("1", 8, lost_s=100), job("2", 1, lost_s=90), job("3", 8, SUSPEND, lost_s=5_000))
    assert set(gone(LOSS_PER_NODE_PRUNE, 8, *jobs, max_delay_s=0)) == {"1"}  # 2 is cheaper, and then not needed
    assert gone(LOSS_PER_NODE_PRUNE, 8, *jobs) == {"3": Action.SUSPEND}


# -- weighted cost -----------------------------------------------------------------------------------------------


def test_the_estimated_slowdown_is_that_of_equation_57() -> None:
    assert estimated_slowdown(job("1", 1, ran_s=600, remaining_s=HOUR_S - 600, waited_s=HOUR_S / 2)) == 1.5
    assert estimated_slowdown(job("1", 1, remaining_s=None, waited_s=HOUR_S)) == 1


def test_the_score_is_nodes_times_three_factors() -> None:
    scored = job("1", 10, ran_s=HOUR_S, remaining_s=3 * HOUR_S, waited_s=2 * HOUR_S, lost_s=HOUR_S / 2)
    assert WeightedCost().score(scored) == pytest.approx(10 * 1.5 * 1.5 * 1.25)
    assert WeightedCost(slowdown_weight=0, checkpoint_weight=0, done_weight=0).score(scored) == 10


@pytest.mark.parametrize(
    "spared",
    [
        job("2", 4, ran_s=100, remaining_s=7_100, lost_s=50, waited_s=5_000),
        job("2", 4, ran_s=3_600, remaining_s=3_600, lost_s=100),
        job("2", 4, ran_s=7_000, remaining_s=200, lost_s=50),
    ],
    ids=["waited long", "saved itself long ago", "almost done"],
)
def test_each_factor_alone_spares_a_job(spared: Candidate) -> None:
    other = job("3", 4, ran_s=100, remaining_s=7_100, lost_s=50)
    assert set(gone(WeightedCost(), 4, spared, other)) == {"3"}


def test_the_set_with_the_least_sum_goes_not_the_first_in_an_order() -> None:
    jobs = (job("1", 3, lost_s=0), job("2", 4, lost_s=10), job("3", 5, lost_s=900))
    assert set(gone(WeightedCost(), 4, *jobs)) == {"2"}
    assert set(gone(WeightedCost(), 7, *jobs)) == {"1", "2"}


def test_bigger_jobs_are_not_eligible() -> None:
    assert gone(WeightedCost(), 4, job("1", 5)) == {}
    assert gone(WeightedCost(), 4, job("1", 4, job_nodes=5)) == {}
    assert set(gone(WeightedCost(), 4, job("1", 4))) == {"1"}
    # the urgent job's size counts, not what is still missing
    problem = EvictionProblem(4, 0, 60, (job("1", 5),), preemptor_nodes=5)
    assert WeightedCost().solve(problem).points[0].feasible


@pytest.mark.parametrize(("nodes", "limit_s"), [(4_096, 7_200), (4_096, 7_201), (4_097, 7_200), (4_097, 7_201)])
def test_jobs_above_the_slowdown_threshold_of_their_category_are_not_eligible(nodes: int, limit_s: int) -> None:
    category = (nodes > 4_096, limit_s > 7_200)
    none = dict.fromkeys([(False, False), (False, True), (True, False), (True, True)], inf)
    strict = WeightedCost(thresholds=none | {category: 1.99})
    exact = WeightedCost(thresholds=dict.fromkeys(none, 0.0) | {category: 2.0})
    waited = job("1", nodes, ran_s=0, remaining_s=limit_s, waited_s=limit_s)
    assert not last_point(strict, nodes, [waited]).feasible
    assert last_point(exact, nodes, [waited]).feasible


def test_the_scored_set_leaves_by_what_loses_least_in_time() -> None:
    saves = Option(Action.SYS_CHECKPOINT, checkpoint_s=60)
    jobs = (job("1", 4, saves, lost_s=10), job("2", 4, saves, lost_s=900))
    assert gone(WeightedCost(), 8, *jobs, max_delay_s=0) == {"1": Action.KILL, "2": Action.KILL}
    assert gone(WeightedCost(), 8, *jobs, max_delay_s=60) == {"1": Action.KILL, "2": Action.SYS_CHECKPOINT}
    assert gone(WeightedCost(), 8, *jobs, max_delay_s=120) == dict.fromkeys("12", Action.SYS_CHECKPOINT)


# -- HiGHS -------------------------------------------------------------------------------------------------------


def test_every_planner_is_registered_under_its_name() -> None:
    names = plugins.names(plugins.PLANNERS)
    assert "eviction-dp" in names
    assert [plugins.load(plugins.PLANNERS, name)().name for name in names] == list(names)
