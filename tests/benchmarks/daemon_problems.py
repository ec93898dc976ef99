"""The daemon itself, in its default configuration, on simulated clusters: what it plans, and what happens.

64 nodes with a job on each, an urgent job of 32; 1,000 nodes with jobs of one to eight, an urgent job of 250. Every job
can be saved in 20 to 100 s, and there are fifteen minutes: time for some of them. The clock is a manual one. Lost work
as planned is that of the plan that was carried out; as happened is the work that jobs have to do again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from clearway.model.cluster import Node
from clearway.model.problem import EvictionProblem
from clearway.simulation.jobs import Program
from tests.benchmarks.best_known import Best, best
from tests.simulation.world import World, config

MAX_DELAY_S, KILL_ALLOWANCE_S, EVERY_S = 900, 10, 2.0
SMALL, LARGE = (64, 1, 32), (1_000, 8, 250)  # nodes, nodes of the widest job, nodes asked
IDLE_CYCLES = 5


@dataclass(frozen=True, slots=True)
class Happened:
    """``best``: of the problem that the daemon planned for, to the second.

    ``planning_s``: what the cycle that plans takes longer than an idle one, of processor time.
    """

    planned_node_s: float
    lost_node_s: float
    best: Best
    exact: bool
    waited_s: float
    evictions: int
    planning_s: float


def happened(folder: Path, seed: int, size: tuple[int, int, int]) -> Happened:
    world, urgent_nodes = _world(folder, seed, *size), size[2]
    idle_s = min(_cycle_s(world) for _ in range(IDLE_CYCLES))
    urgent = world.urgent(urgent_nodes, work_s=60.0)
    submitted = world.clock.now()
    planning_s = 0.0
    while not world.store.evictions():
        planning_s += _cycle_s(world) - idle_s
    world.run_until(lambda: world.started(urgent) is not None, MAX_DELAY_S + 60, EVERY_S)
    started = world.started(urgent)
    assert started is not None
    assert not world.observer.failures
    evictions = world.store.evictions()
    plan = evictions[-1].plan
    lost_node_s = sum(each.lost_s * each.job.num_nodes for each in world.cluster.jobs.values())
    limit_s = int((plan.deadline - plan.made_at).total_seconds() - KILL_ALLOWANCE_S)
    found = Happened(
        plan.chosen.lost_work_node_s or 0.0,
        lost_node_s,
        best(replace(_unnamed(plan.problem), max_delay_s=limit_s, step_s=1)),
        plan.curve.exact,
        (started - submitted).total_seconds(),
        len(evictions),
        planning_s,
    )
    world.store.close()
    return found


def _unnamed(problem: EvictionProblem) -> EvictionProblem:
    """No node is shared, so that names do not matter."""
    assert problem.needs is None
    return replace(problem, candidates=tuple(replace(each, node_names=()) for each in problem.candidates))


def _cycle_s(world: World) -> float:
    begin = time.process_time()
    world.tick(EVERY_S)
    return time.process_time() - begin


def _world(folder: Path, seed: int, nodes: int, widest: int, _asked: int) -> World:
    settings = config(
        preemptors=[{"partition": ["urgent"], "max_delay": f"{MAX_DELAY_S}s"}],
        execution={"kill_allowance": f"{KILL_ALLOWANCE_S}s"},
    )
    made = World(f"sqlite:///{folder}/{nodes}-{seed}.sqlite", settings, node_count=0)
    names = [f"n{number:04d}" for number in range(nodes)]
    made.cluster.add_nodes(
        Node(name=name, available=True, raw_state="IDLE", cpus=4, memory_mib=4_000, partitions=("batch", "urgent"))
        for name in names
    )
    rng = Random(f"daemon-{nodes}-{seed}")
    while names:
        wide = min(rng.randint(1, widest), len(names))
        saves_s = rng.randint(20, 100)
        made.cluster.submit(
            Program(work_s=1e6, save_s=float(saves_s)),
            on=names[:wide],
            num_nodes=wide,
            ran_s=rng.uniform(300, 6 * 3_600),
            time_limit_s=86_400,
            comment=f"clearway:checkpoint=signal,took={saves_s}",
            user=f"user{len(names) % 9}",
        )
        del names[:wide]
    made.tick()
    return made
