"""A public set of eviction problems, each made from a name and a seed: what the planners are judged by.

Every problem is given in true seconds, as whoever uses the product would have it; how coarsely it is planned is the
planner's own affair, and what that costs shows. See ``best_known`` for the best that can be done, and
``bench_problem_set`` for what is asked of the planners.

a   The CoSim paper's nine cells (section IV-D): each of its three scenarios with K = 512, 1,024 and 2,048 nodes.
b   Whole nodes, 24 to 3,000 jobs: sizes, ages and the time to save drawn over two orders of magnitude.
c   GPU nodes that jobs share: six rows of growing difficulty, and urgent jobs of one node.
d   The daemon itself: ``daemon_worlds``.
e   Moments of recorded workloads: ``trace_problems``.
f   Crowds of urgent jobs: ``crowds``.
g   Machines of 9,408 nodes with 1,000 jobs, and 10,000 small jobs: for time alone.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from clearway.model.problem import Action, Candidate, EvictionProblem, Option
from clearway_lab.studies.scenarios import scenario
from tests.benchmarks.large import large_problem
from tests.benchmarks.shared import shared_problem
from tests.benchmarks.shared_gpus import gpu_problem
from tests.benchmarks.trace_problems import SHARES, Machine, draw, read

SCENARIOS, KS, COSIM_DELAYS_S, COSIM_SEEDS = (1, 2, 3), (512, 1_024, 2_048), (300, 900), 30

DRAWN_JOBS, DRAWN_SEEDS = (24, 50, 100, 200, 1_000, 3_000), 20
DRAWN_DELAYS_S, DRAWN_SHARES = (300, 900), (0.1, 0.25, 0.5)

SHARED_SEEDS = 5
SHARED_ROWS = (  # GPU nodes, nodes asked, GPUs of each, seconds; about three jobs to a node
    (250, 16, 4, 590),
    (250, 64, 4, 870),
    (250, 16, 8, 290),
    (1_000, 16, 4, 590),
    (1_000, 64, 8, 870),
    (1_000, 128, 4, 590),
    (250, 1, 4, 20),
    (250, 1, 8, 60),
    (1_000, 1, 4, 290),
    (1_000, 1, 8, 870),
)
OTHER_ROWS = ((250, 750, 64, 4, 870), (250, 750, 16, 8, 290))  # nodes, jobs ...: of ``shared``, most of them small

MOMENT_DELAYS_S = (60, 300, 900)  # each with every share of the machine
MOMENTS = {  # of each recorded workload
    Machine("KTH-SP2-1996-2.1-cln.swf.xz", 100): 100,
    Machine("SDSC-DS-2004-2.1-cln.swf.xz", 208, processors_per_node=8): 100,
    Machine("LANL-CM5-1994-4.1-cln.swf.xz", 1_024): 100,
    Machine("mira-2018-wk1.swf.xz", 49_152): 50,
    Machine("mira-2018-wk2.swf.xz", 49_152): 50,
}


@dataclass(frozen=True, slots=True)
class Posed:
    """A problem in steps of one second; ``row`` is what it is told of with others."""

    family: str
    row: str
    seed: int
    problem: EvictionProblem

    @property
    def name(self) -> str:
        return f"{self.row} #{self.seed}"

    @property
    def key(self) -> str:
        return key_of(self.problem)


def family_a(seeds: int = COSIM_SEEDS) -> Iterator[Posed]:
    for number in SCENARIOS:
        for nodes in KS:
            for delay_s in COSIM_DELAYS_S:
                for seed in range(seeds):
                    drawn = replace(scenario(number, seed).problem(), nodes_needed=nodes)
                    yield Posed("a", f"scenario {number}, K {nodes}, {delay_s} s", seed, _to_the_second(drawn, delay_s))


def family_b(seeds: int = DRAWN_SEEDS) -> Iterator[Posed]:
    for jobs in DRAWN_JOBS:
        for seed in range(seeds):
            yield Posed("b", f"{jobs} jobs", seed, whole_nodes(jobs, seed))


def family_c(seeds: int = SHARED_SEEDS) -> Iterator[Posed]:
    for nodes, needed, gpus, delay_s in SHARED_ROWS:
        for seed in range(1, seeds + 1):
            problem = gpu_problem(seed, nodes, needed, gpus, delay_s)
            yield Posed("c", f"{nodes} GPU nodes, {needed} x {gpus}, {delay_s} s", seed, problem)
    for nodes, jobs, needed, gpus, delay_s in OTHER_ROWS:
        for seed in range(1, seeds + 1):
            problem = shared_problem(
                seed, machine_nodes=nodes, jobs=jobs, needed=needed, gpus=gpus, deadlines=delay_s + 1, step_s=1
            )
            yield Posed("c", f"{nodes} nodes of small jobs, {needed} x {gpus}, {delay_s} s", seed, problem)


def family_e(moments: int | None = None) -> Iterator[Posed]:
    """Where a trace is not there it yields none of its moments."""
    for machine, count in MOMENTS.items():
        if machine.path.exists():
            trace = read(machine)
            for number in range(count if moments is None else min(count, moments)):
                delay_s = MOMENT_DELAYS_S[number // len(SHARES) % len(MOMENT_DELAYS_S)]
                yield Posed("e", machine.name, number, _to_the_second(draw(trace, number).known, delay_s))


def family_g(seeds: int = 1) -> Iterator[Posed]:
    """Not judged, but planned as fast as before: every deadline of large machines, and very many small jobs."""
    for seed in range(1, seeds + 1):
        for needed, ends in ((940, 0), (4_704, 0), (4_704, 20)):
            problem = large_problem(9_408, 1_000, needed, 900, 1, seed=seed, ends=ends)
            yield Posed("g", f"9408 nodes, {needed} asked, {ends} end", seed, problem)
        rng = Random(f"small-{seed}")
        jobs = tuple(drawn_job(rng, str(10_001 + number), 300, most_nodes=2) for number in range(10_000))
        yield Posed("g", "10000 small jobs", seed, EvictionProblem(1_000, 300, 1, jobs))


def whole_nodes(jobs: int, seed: int) -> EvictionProblem:
    rng = Random(f"whole-{jobs}-{seed}")
    delay_s = rng.choice(DRAWN_DELAYS_S)
    candidates = tuple(drawn_job(rng, str(1_001 + number), delay_s) for number in range(jobs))
    needed = math.ceil(rng.choice(DRAWN_SHARES) * sum(each.nodes for each in candidates))
    return EvictionProblem(needed, delay_s, 1, candidates)


def drawn_job(rng: Random, job_id: str, delay_s: int, *, most_nodes: int = 64) -> Candidate:
    """Small jobs are many and large ones few; two in three can be saved, one in a hundred ends within the delay."""
    nodes, age_s, saves_s = _drawn(rng, 1, most_nodes), _drawn(rng, 60, 24 * 3_600), _drawn(rng, 10, 1_000)
    options = [Option(Action.KILL, nodes * age_s)]
    if rng.random() < 1 / 2:
        options.append(Option(Action.SYS_CHECKPOINT, checkpoint_s=saves_s))
    if rng.random() < 1 / 3:
        waits_s = rng.randrange(3_600)
        options.append(Option(Action.APP_CHECKPOINT, checkpoint_s=waits_s + math.ceil(saves_s / 3)))
    remaining_s = rng.uniform(0, 100 * delay_s)
    if remaining_s <= delay_s:
        options.append(Option(Action.END, ready_s=remaining_s))
    return Candidate(
        job_id,
        nodes,
        tuple(options),
        ran_s=float(age_s),
        remaining_s=remaining_s,
        preempt_priority=rng.randrange(3),
        job_nodes=nodes,
    )


def _drawn(rng: Random, least: int, most: int) -> int:
    """Its logarithm is uniform."""
    return round(math.exp(rng.uniform(math.log(least), math.log(most))))


def _to_the_second(problem: EvictionProblem, delay_s: int) -> EvictionProblem:
    return replace(problem, max_delay_s=delay_s, step_s=1)


def key_of(problem: EvictionProblem) -> str:
    """A name for all that a problem's best plan depends on, which no other problem has."""
    needs = None if problem.needs is None else problem.needs.per_node
    parts: list[object] = [problem.nodes_needed, problem.max_delay_s, problem.busy_s, _amounts(needs)]
    for each in sorted(problem.candidates, key=lambda each: each.job_id):
        ways = sorted(
            (option.action.value, option.lost_work_node_s, option.checkpoint_s, option.ready_s, option.file_system_s)
            for option in each.options
        )
        parts.append((each.job_id, each.nodes, each.node_names, [_amounts(holds) for holds in each.holds], ways))
    parts += [(node.name, _amounts(node.has), _amounts(node.held)) for node in problem.nodes]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


def _amounts(amounts: object) -> object:
    return amounts and (amounts.cores, amounts.memory_mib, amounts.gpus)  # type: ignore[attr-defined]
