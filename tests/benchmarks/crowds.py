"""Crowds: many urgent jobs at once, on nodes that jobs share or on whole nodes; and the least that any plan loses.

Model of the bound and of the best that is known: jobs leave for one of the distinct delays, by one option. What is
written for a delay and all shorter ones fits into it. Whole nodes: by each delay at least as many nodes are free as are
asked within it. Nodes that jobs share: a binary variable for each node and each kind of request (what it asks of a
node, and its delay); a node is given to one of them at most, and what has left it by then suffices. HiGHS has a minute,
in which it proves few of them: what it has not proven has a gap.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil, inf
from random import Random

import numpy as np

from clearway.model.problem import Amounts, Candidate, EvictionProblem, Needs, NodeResources
from tests.benchmarks.best_known import LIMIT_S, AskedNode, Best, Program, asked_of, in_time
from tests.benchmarks.problem_set import drawn_job, key_of
from tests.benchmarks.shared_gpus import amounts, gpu_jobs, gpu_nodes

DELAYS_S = (60, 300, 600, 885)
GPU_KINDS = (1, 2, 4, 8)  # GPUs of each node, with eight processors for each
SHARED_NODES, WHOLE_NODES = 1_000, 10_000
SIZES, SEEDS = (20, 100), 3
WHOLE_SHARE = 0.3  # of the nodes that all of a crowd ask for together


@dataclass(frozen=True, slots=True)
class Ask:
    """One urgent job: so many nodes, whole ones or so much of each, within so many seconds."""

    job_id: str
    nodes: int
    delay_s: int
    per_node: Amounts | None = None


@dataclass(frozen=True, slots=True)
class Crowd:
    row: str
    seed: int
    asks: tuple[Ask, ...]
    candidates: tuple[Candidate, ...]
    nodes: tuple[NodeResources, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.row} #{self.seed}"

    @property
    def last_s(self) -> int:
        return max(ask.delay_s for ask in self.asks)

    def problem(self, ask: Ask) -> EvictionProblem:
        """Of one of them alone, in true seconds."""
        needs = None if ask.per_node is None else Needs(per_node=ask.per_node)
        return EvictionProblem(ask.nodes, ask.delay_s, 1, self.candidates, ask.nodes, needs, self.nodes)

    @property
    def key(self) -> str:
        asks = [(ask.job_id, ask.nodes, ask.delay_s, ask.per_node and ask.per_node.gpus) for ask in self.asks]
        return hashlib.sha256(f"{asks} {key_of(self.problem(self.asks[0]))}".encode()).hexdigest()[:12]


def family_f(seeds: int = SEEDS) -> Iterator[Crowd]:
    for size in SIZES:
        for seed in range(seeds):
            yield shared_crowd(size, seed)
            yield whole_crowd(size, seed)


def shared_crowd(size: int, seed: int, nodes: int = SHARED_NODES) -> Crowd:
    rng = Random(f"shared-crowd-{size}-{seed}")
    jobs = gpu_jobs(rng, nodes, max(DELAYS_S))
    asks = []
    for number in range(size):
        gpus = rng.choice(GPU_KINDS)
        asks.append(Ask(f"u{number:03d}", rng.choice((1, 2)), rng.choice(DELAYS_S), amounts(gpus, gpus * 8)))
    return Crowd(f"{size} on {nodes} shared nodes", seed, tuple(asks), jobs, gpu_nodes(nodes))


def whole_crowd(size: int, seed: int, nodes: int = WHOLE_NODES) -> Crowd:
    rng = Random(f"whole-crowd-{size}-{seed}")
    jobs: list[Candidate] = []
    begin = 0
    while begin < nodes:
        job = drawn_job(rng, str(10_001 + len(jobs)), max(DELAYS_S), most_nodes=min(64, nodes - begin))
        names = tuple(f"n{number:05d}" for number in range(begin, begin + job.nodes))
        jobs.append(Candidate(job.job_id, job.nodes, job.options, names, (), job.ran_s, job.remaining_s))
        begin += job.nodes
    mean = WHOLE_SHARE * nodes / size
    asks = [
        Ask(f"u{number:03d}", rng.randint(ceil(mean / 2), ceil(mean * 3 / 2)), rng.choice(DELAYS_S))
        for number in range(size)
    ]
    return Crowd(f"{size} on {nodes} whole nodes", seed, tuple(asks), tuple(jobs))


def best_of_crowd(crowd: Crowd, limit_s: float = LIMIT_S) -> Best:
    """Of plans that serve all of them."""
    program = Program()
    delays = sorted({ask.delay_s for ask in crowd.asks})
    leaves: dict[str, dict[int, list[int]]] = {}  # by job and delay: the columns of its options
    written: dict[int, dict[int, float]] = defaultdict(dict)
    for job in crowd.candidates:
        leaves[job.job_id] = {}
        for delay_s in delays:
            leaves[job.job_id][delay_s] = []
            for option in in_time(job, delay_s):
                soonest_s = min(each for each in delays if each >= option.ready_s)
                if not option.checkpoint_s and delay_s > soonest_s:
                    continue  # the sooner it leaves the more it serves
                column = program.column(option.lost_work_node_s)
                leaves[job.job_id][delay_s].append(column)
                for later_s in delays:
                    if later_s >= delay_s and option.checkpoint_s:
                        written[later_s][column] = float(ceil(option.checkpoint_s))
        program.row({column: 1.0 for some in leaves[job.job_id].values() for column in some}, most=1.0)
    for delay_s, cells in written.items():
        program.row(cells, most=float(delay_s))
    if crowd.asks[0].per_node is None:
        _whole(program, crowd, delays, leaves)
    else:
        _shared(program, crowd, delays, leaves)
    values, least = program.solved_in_stages(limit_s) if crowd.nodes else program.solved(limit_s)
    lost = inf if values is None else round(float(np.array(program.cost) @ values), 3)
    return Best(lost, min(lost, round(least, 3)) if least < lost - 1e-6 * max(1.0, lost) else lost)


Leaves = Mapping[str, Mapping[int, list[int]]]


def _gone(leaves: Leaves, job_id: str, delay_s: int) -> list[int]:
    """The columns of which one is taken if the job has left by then."""
    return [column for within_s, some in leaves[job_id].items() if within_s <= delay_s for column in some]


def _whole(program: Program, crowd: Crowd, delays: list[int], leaves: Leaves) -> None:
    for delay_s in delays:
        asked = sum(ask.nodes for ask in crowd.asks if ask.delay_s <= delay_s)
        cells = {column: float(job.nodes) for job in crowd.candidates for column in _gone(leaves, job.job_id, delay_s)}
        program.row(cells, least=float(asked))


def _shared(program: Program, crowd: Crowd, delays: list[int], leaves: Leaves) -> None:
    kinds: dict[tuple[Amounts, int], int] = Counter()
    for ask in crowd.asks:
        assert ask.per_node is not None
        kinds[ask.per_node, ask.delay_s] += ask.nodes
    given_of: dict[str, list[int]] = defaultdict(list)
    for (per_node, delay_s), count in sorted(kinds.items(), key=lambda each: (each[0][1], each[0][0].gpus)):
        assert delay_s in delays
        problem = crowd.problem(Ask("", 1, delay_s, per_node))
        nodes = asked_of(problem)
        served = []
        for node in nodes:
            given = program.column()
            served.append(given)
            given_of[node.name].append(given)
            for shares in _deciding(node):
                row = {given: -1.0}
                for job_id, share in shares.items():
                    row |= dict.fromkeys(_gone(leaves, job_id, delay_s), share)
                program.row(row, least=0.0)
        program.row(dict.fromkeys(served, 1.0), least=float(count), most=float(count))
    for columns in given_of.values():
        program.row(dict.fromkeys(columns, 1.0), most=1.0)


def _deciding(node: AskedNode) -> list[dict[str, float]]:
    """Of each resource that is short, the share of what is missing that each job gives back.

    Without those of which every job gives back at least as large a share as of another.
    """
    found: list[dict[str, float]] = []
    for place, asked in enumerate(node.asked):
        short = asked - node.free[place]
        if short > 0:
            mine = {job_id: min(short, own[place]) / short for job_id, own in node.held.items()}
            if not any(all(mine[job_id] >= share for job_id, share in other.items()) for other in found):
                found = [other for other in found if not all(other[job_id] >= mine[job_id] for job_id in mine)]
                found.append(mine)
    return found
