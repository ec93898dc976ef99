"""Plans for urgent arrays and heterogeneous jobs, from snapshots, beside a search over all sets of jobs.

An array gets room for as many tasks as can be had, and no more than may start, at the least loss. A heterogeneous job
gets room for all its components, at the least loss of all together, or no job leaves.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import pytest

from clearway.model.cluster import Job, JobState
from clearway.model.plan import NoPlan, Plan
from clearway.planning.dp.eviction_dp import EvictionDP
from clearway.preemption.batch import decide_batch
from clearway.preemption.detection import preemptors
from tests.oracle.test_live_needs import CONFIG, World, decided, lost, serves, urgent_with_needs, world
from tests.oracle.test_turns import considers

WORLDS = 600


def subsets(made: World) -> Iterator[tuple[float, set[str]]]:
    """Every set of jobs that may leave, and what it would lose."""
    may_leave = [each for each in made.jobs.values() if each.user != "vip" and each.state is JobState.RUNNING]
    for size in range(len(may_leave) + 1):
        for gone in itertools.combinations(may_leave, size):
            yield sum(lost(each) for each in gone), {each.job_id for each in gone}


def tasks_that_fit(made: World, task: Job, gone: Collection[str], most: int) -> int:
    """The most tasks that fit at once: by trying how many, each node giving room to each task once at most."""
    slots = [min(most, room(made, task, name, gone)) for name in made.nodes]
    return max(k for k in range(most + 1) if sum(min(k, each) for each in slots) >= k * task.num_nodes)


def room(made: World, task: Job, name: str, gone: Collection[str]) -> int:
    """How many tasks a node can hold: one after another is put there, as a job of its own."""
    if task.exclusive:
        return int(serves(made, task, name, gone))
    here = replace(made, holds=dict(made.holds))
    count = 0
    while serves(here, task, name, gone):
        count += 1
        held = Counter({"cpus": task.even_cpus, "memory": task.memory_mib})
        for kind, gpus in task.gpus or ():
            free = here.free(name, gone)
            for gpu_type in [kind] if kind else [each for each in free if each not in ("cpus", "memory")]:
                held[gpu_type] += min(free[gpu_type], gpus - sum(held[t] for t in held if t not in ("cpus", "memory")))
        here.holds[f"task{count}"] = {name: held}
    return count


def a_task(rng: random.Random, made: World, *, plain: bool) -> Job:
    task = urgent_with_needs(rng, made, plain=plain)
    task = replace(task, required_nodes=(), contiguous=False, switches=0, num_nodes=rng.choice((1, 1, 1, 2)))
    return replace(task, cpus=task.even_cpus * task.num_nodes)


@pytest.mark.parametrize("plain", [False, True], ids=["with GPUs", "processors and memory alone"])
def test_an_array_gets_room_for_as_many_tasks_as_can_be_had_at_the_least_loss(plain: bool) -> None:
    several = packed = fewer = 0
    for seed in range(WORLDS):
        rng = random.Random(seed)
        made = world(rng, odd=False, plain=plain)
        if not made.jobs:  # then it cannot be seen whether Slurm shares out memory
            continue
        task = a_task(rng, made, plain=plain)
        most = rng.randint(2, 5)
        array = replace(task, pending_tasks=most, array_job_id=task.job_id)
        best: dict[int, float] = {}
        for cost, gone in subsets(made):
            fit = tasks_that_fit(made, task, gone, most)
            best[fit] = min(cost, best.get(fit, cost))
        tasks = max(best)
        plan = decided(made, array, tasks=most)
        if isinstance(plan, NoPlan):
            assert not tasks, (seed, plan.why)
            continue
        gone = {planned.job_id for planned in plan.chosen.actions}
        assert plan.tasks == tasks, (seed, plan.tasks, tasks)
        assert plan.chosen.lost_work_node_s == best[tasks], seed
        chosen = replace(made, nodes={name: made.nodes[name] for name in plan.placement_nodes})
        assert tasks_that_fit(chosen, task, gone, most) >= tasks, seed
        several += tasks > 1
        fewer += tasks < most
        packed += len(plan.placement_nodes) < tasks * task.num_nodes
    assert several > WORLDS / 10
    assert fewer > WORLDS / 50
    assert packed > WORLDS / 100


def assigned(
    made: World, components: Sequence[Job], gone: Collection[str], taken: frozenset[str] = frozenset()
) -> bool:
    """Whether each component can have nodes of its own."""
    if not components:
        return True
    able = [name for name in made.nodes if name not in taken and serves(made, components[0], name, gone)]
    return any(
        assigned(made, components[1:], gone, taken | set(chosen))
        for chosen in itertools.combinations(able, components[0].num_nodes)
    )


@pytest.mark.parametrize("plain", [False, True], ids=["with GPUs", "processors and memory alone"])
def test_a_heterogeneous_job_is_served_whole_at_the_least_loss_or_not_at_all(plain: bool) -> None:
    served = none = 0
    for seed in range(WORLDS):
        rng = random.Random(20_000 + seed)
        made = world(rng, odd=False, plain=plain)
        components = [
            replace(a_task(rng, made, plain=plain), job_id=str(900 + n), het_job_id="900", het_job_offset=n)
            for n in range(rng.randint(2, 3))
        ]
        seen = replace(made.snapshot(components[0]), jobs=(*made.jobs.values(), *components))
        found = preemptors(seen, CONFIG.preemptors)
        assert [each.components for each in found] == [tuple(each.job_id for each in components)] * len(components)
        best = min((cost for cost, gone in subsets(made) if assigned(made, components, gone)), default=None)
        decided_all = decide_batch(found, considers(seen, ()), EvictionDP(), lambda: 60.0)
        assert not decided_all.later
        plans = [plan for _, plan in decided_all.plans if isinstance(plan, Plan)]
        if best is None:
            assert not plans, seed
            none += 1
            continue
        assert len(plans) == len(components), seed
        names = [name for plan in plans for name in plan.placement_nodes]
        assert len(names) == len(set(names)) == sum(each.num_nodes for each in components)
        gone = {planned.job_id for plan in plans for planned in plan.chosen.actions}
        for plan in plans:
            assert all(serves(made, plan.preemptor, name, gone) for name in plan.placement_nodes)
            assert set(plan.together) == set(plan.components) - {plan.preemptor.job_id}
        lost_all = sum(plan.chosen.lost_work_node_s or 0.0 for plan in plans)
        assert lost_all == best, seed
        served += bool(gone)
    assert served > WORLDS / 20
    assert none > WORLDS / 20
