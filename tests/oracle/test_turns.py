"""Urgent jobs of one cycle, of which some take parts of nodes: never served worse than by turns, and all plans true."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import pytest

from clearway.eligibility.context import PlanningContext
from clearway.eligibility.under_way import UnderWay
from clearway.model.cluster import ClusterSnapshot
from clearway.model.plan import NoPlan, Plan, Preemptor
from clearway.model.problem import Action
from clearway.planning.dp.eviction_dp import EvictionDP
from clearway.preemption import batch
from clearway.preemption.batch import SolveAlone, decide_batch, under_way_beside
from clearway.preemption.plan import Solution, solve_alone
from tests.builders import NOW, after
from tests.oracle.problems import TIMES
from tests.oracle.test_live_needs import CONFIG, World, lie_as_asked, serves, urgent_with_needs, world

WORLDS = 250 * TIMES
Cost = tuple[float, int]  # lost work, preemptees


def endless() -> float:
    return 60.0


def urgent_jobs(rng: random.Random, made: World, *, plain: bool) -> tuple[Preemptor, ...]:
    found = []
    for number in range(rng.choice((2, 2, 3))):
        job = replace(urgent_with_needs(rng, made, plain=plain), job_id=str(901 + number))
        delay_s = rng.choice((300, 600, 600))
        found.append(Preemptor(job, "rule 1", delay_s, after(delay_s)))
    return tuple(sorted(found, key=lambda each: (each.deadline, each.job.job_id)))


def seen_with(made: World, found: Sequence[Preemptor]) -> ClusterSnapshot:
    seen = made.snapshot(found[0].job)
    return replace(seen, jobs=(*made.jobs.values(), *(each.job for each in found)))


def considers(seen: ClusterSnapshot, claimed: Sequence[Plan]) -> SolveAlone:
    """As ``making_room`` has it."""

    def solve_one(preemptor: Preemptor, beside: Sequence[Plan] = (), *, whole: bool = False) -> Solution | NoPlan:
        under_way = under_way_beside(UnderWay(), (*claimed, *beside), preemptor.deadline)
        context = PlanningContext(snapshot=seen, config=CONFIG, now=NOW, preempted={}, under_way=under_way)
        return solve_alone(preemptor, context, EvictionDP(), whole=whole)

    return solve_one


def played(seen: ClusterSnapshot, found: Sequence[Preemptor], seconds_left: Callable[[], float]) -> list[Plan]:
    """The plans of all cycles, were nothing carried out meanwhile."""
    plans: list[Plan] = []
    left = tuple(found)
    while left:
        decided = decide_batch(left, considers(seen, tuple(plans)), EvictionDP(), seconds_left)
        plans += [plan for _, plan in decided.plans if isinstance(plan, Plan)]
        assert len(decided.later) < len(left)
        left = decided.later
    return plans


def cost_of(plans: Sequence[Plan]) -> Cost:
    gone = [each for plan in plans for each in plan.chosen.actions if each.action is not Action.END]
    return sum(each.lost_work_node_s for each in gone), len(gone)


def unserved(plans: Sequence[Plan], found: Sequence[Preemptor]) -> list[bool]:
    served = {plan.preemptor.job_id for plan in plans}
    return [each.job.job_id not in served for each in found]


def check_true(made: World, plans: Sequence[Plan]) -> None:
    preempted = Counter(job.job_id for plan in plans for job in plan.preemptees)
    assert set(preempted.values()) <= {1}, "no job leaves for two"
    taken = Counter(name for plan in plans for name in plan.placement_nodes)
    assert set(taken.values()) <= {1}, "no node is given to two"
    for plan in plans:
        mine = (plan.deadline, plan.preemptor.job_id)
        sooner = [other for other in plans if (other.deadline, other.preemptor.job_id) <= mine]
        gone = {each.job_id for other in sooner for each in other.chosen.actions} - set(plan.staying)
        fits(made, plan, gone)


def fits(made: World, plan: Plan, gone: Collection[str]) -> None:
    urgent, placed = plan.preemptor, plan.placement_nodes
    assert len(placed) == urgent.num_nodes
    assert all(serves(made, urgent, name, gone) for name in placed)
    assert set(urgent.required_nodes) <= set(placed)
    assert lie_as_asked(made, urgent, placed)


def test_nobody_is_served_worse_than_by_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    more = less = at_once = 0
    for seed in range(WORLDS):
        rng = random.Random(seed)
        plain = seed % 2 == 0
        made = world(rng, odd=False, plain=plain)
        found = urgent_jobs(rng, made, plain=plain)
        seen = seen_with(made, found)
        before = repr(seen)
        plans = played(seen, found, endless)
        with monkeypatch.context() as patched:
            patched.setattr(batch, "plan_together", lambda *_: None)
            turns = played(seen, found, endless)
        check_true(made, turns)
        assert repr(seen) == before
        check_true(made, plans)
        mine, theirs = (unserved(plans, found), cost_of(plans)), (unserved(turns, found), cost_of(turns))
        assert mine <= theirs, seed
        more += mine[0] < theirs[0]
        less += mine[0] == theirs[0] and mine[1] < theirs[1]
        at_once += any(plan.together for plan in plans)
    assert more >= WORLDS / 100, "turns leave somebody out"
    assert less >= WORLDS / 100, "turns lose more"
    assert at_once >= more + less
