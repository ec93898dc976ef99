"""Plans for urgent jobs with needs, from snapshots: beside a search over all sets of jobs, in a world that is known.

A world knows what each job really holds on each node; a snapshot tells only what Slurm tells. Where that is enough
the plan is the cheapest there is. Where it is not (uneven jobs, requests that do not tell the type, suspended jobs)
the plan may be dearer, or there is none; but whatever is planned is true: the urgent job fits where it is placed.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field, replace

import pytest

from clearway.config.configuration import Config
from clearway.eligibility.context import PlanningContext
from clearway.eligibility.under_way import UnderWay
from clearway.model.cluster import ClusterSnapshot, Job, JobState, Node
from clearway.model.plan import NoPlan, Plan, Preemptor
from clearway.model.site import Topology
from clearway.planning.dp.eviction_dp import EvictionDP
from clearway.preemption.plan import decide
from clearway.preemption.validation import plan_misfit
from tests.builders import NOW, after, job, node, urgent_job

Held = Counter[str]  # cpus, memory and GPU types
CONFIG = Config.model_validate(
    {"preemptors": [{"qos": ["urgent"]}], "candidates": {"min_runtime": 0, "protected_users": ["vip"]}}
)
WORLDS = 1_000
GPU_TYPES: tuple[dict[str, int], ...] = ({"a100": 4}, {"a100": 4}, {"v100": 2}, {"a100": 2, "v100": 2}, {})


@dataclass
class World:
    nodes: dict[str, Held] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    holds: dict[str, dict[str, Held]] = field(default_factory=dict)  # job -> node -> what it really holds
    shares_memory: bool = True
    switch_of: dict[str, str] = field(default_factory=dict)

    def free(self, name: str, gone: Collection[str] = ()) -> Held:
        left = self.nodes[name].copy()
        for job_id, held in self.holds.items():
            if job_id not in gone:
                left.subtract(held.get(name, {}))
        return left

    def on(self, name: str, gone: Collection[str] = ()) -> set[str]:
        return {job_id for job_id, held in self.holds.items() if name in held and job_id not in gone}

    def snapshot(self, urgent: Job) -> ClusterSnapshot:
        nodes = tuple(self._node(name) for name in self.nodes)
        topology = Topology(self.switch_of, unknown="")
        return ClusterSnapshot(NOW, (*self.jobs.values(), urgent), nodes, topology=topology)

    def _node(self, name: str) -> Node:
        has, taken = self.nodes[name], self.nodes[name] - self.free(name)
        for job_id in self.on(name):
            if self.jobs[job_id].state is JobState.SUSPENDED:
                taken["cpus"] -= self.holds[job_id][name]["cpus"]  # Slurm gives them to others
        return node(
            name,
            cpus=has["cpus"],
            memory_mib=has["memory"],
            gpus=_gpus(has),
            alloc_cpus=taken["cpus"],
            alloc_memory_mib=taken["memory"] if self.shares_memory else 0,
            alloc_gpus=_gpus(taken),
        )


def _gpus(held: Held) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((name, count) for name, count in held.items() if name not in ("cpus", "memory") and count))


def world(rng: random.Random, *, odd: bool, plain: bool = False) -> World:
    """``odd``: with jobs of which Slurm does not tell what they hold; ``plain``: without GPUs."""
    made = World(shares_memory=rng.random() < 0.7)
    for index in range(rng.randint(1, 6)):
        types = {} if plain else rng.choice(GPU_TYPES)
        made.nodes[f"n{index}"] = Counter({"cpus": rng.choice((4, 8)), "memory": 1_000} | types)
        if switch := rng.choice(("s1", "s1", "s2", "s2", "s3", "")):
            made.switch_of[f"n{index}"] = switch
    for number in range(rng.randint(1, 7)):
        _place(made, rng, str(101 + number), odd=odd)
    return made


def _place(made: World, rng: random.Random, job_id: str, *, odd: bool) -> None:
    names = rng.sample(sorted(made.nodes), rng.randint(1, min(2, len(made.nodes))))
    exclusive = rng.random() < 0.15
    plain = not any(_gpus(has) for has in made.nodes.values())
    ways = ("none",) if plain else ("typed", "typed", "any", "none")
    way = rng.choice(ways + (("uneven", "untold", "suspended") if odd else ()))
    one_type = all(len(_gpus(made.nodes[name])) == 1 for name in names)
    if way == "any" and not (odd or one_type):
        way = "typed"
    kind = rng.choice(("a100", "v100")) if way == "typed" else ""
    count = 0 if way == "none" or plain else rng.randint(1, 3)
    cpus, memory = rng.randint(1, 3), rng.choice((100, 300, 600) if plain else (100, 300))
    held: dict[str, Held] = {}
    for name in names:
        if exclusive:
            held[name] = made.nodes[name].copy() + Counter()
            continue
        mine = Counter({"cpus": cpus, "memory": memory})
        free = made.free(name)
        left = count
        for gpu_type, _ in _gpus(made.nodes[name]):
            if kind in ("", gpu_type):
                taken = min(left, max(0, free[gpu_type]))
                mine[gpu_type] += taken
                left -= taken
        if left:
            return
        held[name] = mine
    if way == "uneven" and len(names) > 1 and not exclusive:
        held[names[0]]["cpus"] += 2  # and the sum divides evenly
    if any(made.free(name)[what] < amount for name, mine in held.items() for what, amount in mine.items()):
        return
    if exclusive and any(made.on(name) for name in names):
        return
    asked = ((kind, count),) if count else ()
    state = JobState.SUSPENDED if way == "suspended" else JobState.RUNNING
    made.holds[job_id] = held
    made.jobs[job_id] = job(
        job_id,
        names,
        state,
        cpus=sum(each["cpus"] for each in held.values()),
        memory_mib=max(each["memory"] for each in held.values()),
        gpus=None if way == "untold" else asked,
        exclusive=exclusive,
        user="vip" if rng.random() < 0.15 else "alice",
        start_time=after(-rng.randint(1, 9) * 100),
    )


def urgent_with_needs(rng: random.Random, made: World, *, plain: bool = False) -> Job:
    names = sorted(made.nodes)
    nodes = rng.randint(1, min(3, len(names)))
    whole = rng.random() < 0.4
    with_gpus = not plain and rng.random() < 0.75
    gpus = ((rng.choice(("a100", "a100", "v100", "")), rng.randint(1, 4)),) if with_gpus else ()
    even_cpus = rng.randint(1, 4)
    required = tuple(rng.sample(names, rng.randint(0, nodes))) if rng.random() < 0.4 else ()
    excluded = tuple(name for name in rng.sample(names, 1) if rng.random() < 0.3 and name not in required)
    return urgent_job(
        nodes=nodes,
        gres="gres:gpu" if gpus else "",
        gpus=gpus,
        exclusive=whole,
        even_cpus=even_cpus,
        cpus=even_cpus * nodes,
        memory_mib=rng.choice((100, 500)),
        required_nodes=required,
        excluded_nodes=excluded,
        contiguous=rng.random() < 0.3,
        switches=int(rng.random() < 0.4),
    )


def serves(made: World, urgent: Job, name: str, gone: Collection[str]) -> bool:
    has, free = made.nodes[name], made.free(name, gone)
    wants = [(urgent.memory_mib, lambda held: held["memory"])]
    for kind, count in urgent.gpus or ():
        wants.append((count, lambda held, kind=kind: sum(n for t, n in _gpus(held) if kind in ("", t))))
    if name in urgent.excluded_nodes or any(of(has) < count for count, of in wants):
        return False
    if urgent.exclusive:
        return not made.on(name, gone)
    if not made.shares_memory:
        wants = wants[1:]
    return free["cpus"] >= urgent.even_cpus and all(of(+free) >= count for count, of in wants)


def enough(made: World, urgent: Job, gone: Collection[str]) -> bool:
    names, able = list(made.nodes), {name for name in made.nodes if serves(made, urgent, name, gone)}
    required = set(urgent.required_nodes)
    return any(
        required <= set(chosen) <= able and lie_as_asked(made, urgent, chosen)
        for chosen in itertools.combinations(names, urgent.num_nodes)
    )


def lie_as_asked(made: World, urgent: Job, chosen: Collection[str]) -> bool:
    at = sorted(list(made.nodes).index(name) for name in chosen)
    switches = {made.switch_of.get(name) for name in chosen}
    in_a_row = at[-1] - at[0] + 1 == len(at)
    return (in_a_row or not urgent.contiguous) and (
        not urgent.switches or (len(switches) == 1 and None not in switches)
    )


def least(made: World, urgent: Job) -> float | None:
    """The least work lost by letting jobs go so that the urgent job fits; None where it cannot."""
    may_leave = [each for each in made.jobs.values() if each.user != "vip" and each.state is JobState.RUNNING]
    costs = [
        sum(lost(each) for each in gone)
        for size in range(len(may_leave) + 1)
        for gone in itertools.combinations(may_leave, size)
        if enough(made, urgent, {each.job_id for each in gone})
    ]
    return min(costs, default=None)


def lost(each: Job) -> float:
    assert each.start_time is not None
    return (NOW - each.start_time).total_seconds() * each.num_nodes


def decided(made: World, urgent: Job, *, tasks: int = 1) -> Plan | NoPlan:
    preemptor = Preemptor(urgent, "rule 1", 600, after(600), tasks=tasks)
    seen = made.snapshot(urgent)
    context = PlanningContext(snapshot=seen, config=CONFIG, now=NOW, preempted={}, under_way=UnderWay())
    return decide(preemptor, context, EvictionDP())


def check_true(made: World, urgent: Job, plan: Plan) -> None:
    gone = {planned.job_id for planned in plan.chosen.actions}
    placed = plan.placement_nodes
    assert len(placed) == len(set(placed)) == urgent.num_nodes
    assert all(serves(made, urgent, name, gone) for name in placed)
    assert set(urgent.required_nodes) <= set(placed)
    assert lie_as_asked(made, urgent, placed)
    assert plan.switch == (made.switch_of[placed[0]] if urgent.switches else "")
    if not urgent.exclusive:
        assert set(plan.staying) == {each for name in placed for each in made.on(name, gone)}
    assert not plan_misfit(plan, made.snapshot(urgent))


@pytest.mark.parametrize("plain", [False, True], ids=["with GPUs", "processors and memory alone"])
@pytest.mark.parametrize("odd", [False, True], ids=["all is told", "not all is told"])
def test_the_plan_is_true_and_the_cheapest_where_all_is_told(odd: bool, plain: bool) -> None:
    planned = shared = dearer = 0
    for seed in range(WORLDS):
        rng = random.Random(seed)
        made = world(rng, odd=odd, plain=plain)
        urgent = urgent_with_needs(rng, made, plain=plain)
        best, plan = least(made, urgent), decided(made, urgent)
        if isinstance(plan, NoPlan):
            assert odd or best is None, (seed, plan.why)
            dearer += best is not None
            continue
        check_true(made, urgent, plan)
        assert best is not None
        assert plan.chosen.lost_work_node_s is not None
        if odd:
            assert plan.chosen.lost_work_node_s >= best
            dearer += plan.chosen.lost_work_node_s > best
        else:
            assert plan.chosen.lost_work_node_s == best, seed
        planned += bool(plan.chosen.actions)
        shared += bool(plan.staying and plan.chosen.actions)
    assert planned > WORLDS / 10
    assert shared > WORLDS / 100
    assert bool(dearer) is odd


def test_under_one_switch_the_plan_is_the_cheapest_where_nodes_of_several_would_cost_less() -> None:
    """Whole and shared nodes; every set of jobs and every set of nodes is tried, with the switches and without."""
    dearer = parted = impossible = 0
    for seed in range(WORLDS):
        rng = random.Random(10_000 + seed)
        made = world(rng, odd=False)
        urgent = replace(urgent_with_needs(rng, made), num_nodes=min(2, len(made.nodes)), required_nodes=(), switches=1)
        urgent = replace(urgent, cpus=urgent.even_cpus * urgent.num_nodes)
        best, anywhere, plan = least(made, urgent), least(made, replace(urgent, switches=0)), decided(made, urgent)
        if isinstance(plan, NoPlan):
            assert best is None, (seed, plan.why)
            impossible += anywhere is not None
            assert "under one leaf switch" in plan.why
            continue
        check_true(made, urgent, plan)
        assert plan.chosen.lost_work_node_s == best, seed
        assert best is not None
        assert anywhere is not None
        dearer += best > anywhere
        parted += bool(best > anywhere and plan.staying)
    assert dearer > WORLDS / 50
    assert parted > 0
    assert impossible > WORLDS / 50
