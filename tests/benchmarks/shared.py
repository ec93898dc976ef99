"""A machine of GPU nodes that jobs share, and an urgent job that needs whole or half nodes of it."""

from __future__ import annotations

import math
from random import Random

from clearway.model.problem import Action, Amounts, Candidate, EvictionProblem, Needs, NodeResources, Option

GPUS_PER_NODE = 8
CORES_PER_GPU = 16
MEMORY_PER_GPU_MIB = 128 * 1024
LARGEST_JOB_GPUS = 64
CHECKPOINT_INTERVAL_S = 3_600
GPU_GIB_S = 0.5  # what one GPU's share of a job writes in a second, alone
FILE_SYSTEM_GIB_S = 50.0
SCATTERED_NODES, SCATTERED_CORES = 300, 64


def shared_problem(
    seed: int,
    *,
    machine_nodes: int = 1_000,
    jobs: int = 3_000,
    needed: int = 16,
    gpus: int = GPUS_PER_NODE,
    deadlines: int = 16,
    step_s: int = 60,
) -> EvictionProblem:
    """``jobs`` jobs of 1 to 64 GPUs fill the machine; every third of the larger ones takes 4 GPUs of each node.

    Small jobs are many and large ones few (their number falls with the square of their size), as much as fits.
    """
    rng = Random(seed)
    free = dict.fromkeys(range(machine_nodes), GPUS_PER_NODE)
    sizes = _sizes(rng, machine_nodes * GPUS_PER_NODE, jobs)
    rng.shuffle(sizes)
    candidates = []
    for index, size in enumerate(sizes):
        parts = _placed(rng, free, size)
        order = sorted(parts)
        candidates.append(
            Candidate(
                str(10_001 + index),
                len(parts),
                _options(rng, size),
                tuple(f"n{node:04d}" for node in order),
                tuple(_amounts(parts[node]) for node in order),
            )
        )
    rng.shuffle(candidates)
    nodes = tuple(NodeResources(f"n{node:04d}", _amounts(GPUS_PER_NODE)) for node in range(machine_nodes))
    needs = Needs(per_node=_amounts(gpus))
    return EvictionProblem(needed, (deadlines - 1) * step_s, step_s, tuple(candidates), needs=needs, nodes=nodes)


def scattered_problem(seed: int, *, ends: float, deadlines: int = 16, step_s: int = 60) -> EvictionProblem:
    """Jobs of 8 to 32 processors on one to four nodes each, drawn at random from 300 of 64; 60 whole nodes are needed.

    The nodes are full, some 550 jobs of a thousand that are drawn find room, and each node's jobs tie it to others.
    ``ends``: the share of the jobs that end by themselves within the time.
    """
    rng = Random(seed)
    free = dict.fromkeys(range(SCATTERED_NODES), SCATTERED_CORES)
    candidates = []
    for index in range(1_000):
        wide, cores = rng.choice((1, 1, 1, 2, 3, 4)), rng.choice((8, 16, 16, 32))
        able = [node for node, left in free.items() if left >= cores]
        if len(able) < wide:
            continue
        chosen = sorted(rng.sample(able, wide))
        for node in chosen:
            free[node] -= cores
        age_s = round(math.exp(rng.uniform(math.log(300), math.log(48 * 3_600))))
        options = [Option(Action.KILL, lost_work_node_s=age_s * cores / SCATTERED_CORES * wide)]
        if rng.random() < 0.5:
            options.append(Option(Action.APP_CHECKPOINT, checkpoint_s=rng.randint(10, 400)))
        if rng.random() < ends:
            options.insert(0, Option(Action.END, ready_s=rng.uniform(0, deadlines * step_s)))
        names, holds = tuple(f"n{node:04d}" for node in chosen), tuple(Amounts(cores=cores) for _ in chosen)
        candidates.append(Candidate(str(10_001 + index), wide, tuple(options), names, holds))
    whole = Amounts(cores=SCATTERED_CORES)
    nodes = tuple(NodeResources(f"n{node:04d}", whole, held=Amounts()) for node in free)
    needs = Needs(per_node=whole)
    return EvictionProblem(60, (deadlines - 1) * step_s, step_s, tuple(candidates), needs=needs, nodes=nodes)


def _amounts(gpus: int) -> Amounts:
    return Amounts(cores=gpus * CORES_PER_GPU, memory_mib=gpus * MEMORY_PER_GPU_MIB, gpus=(("", gpus),))


def _sizes(rng: Random, gpus: int, jobs: int) -> list[int]:
    """Sizes of 1 to 64 GPUs that fill the machine to the last but a few."""
    weights = [1 / size**2 for size in range(1, LARGEST_JOB_GPUS + 1)]
    sizes = rng.choices(range(1, LARGEST_JOB_GPUS + 1), weights, k=jobs)
    while sum(sizes) > gpus:
        largest = max(range(jobs), key=sizes.__getitem__)
        sizes[largest] = rng.randint(1, 4)
    while sum(sizes) < gpus:
        sizes[rng.randrange(jobs)] += 1
    return [min(size, LARGEST_JOB_GPUS) for size in sizes]


def _placed(rng: Random, free: dict[int, int], size: int) -> dict[int, int]:
    """GPUs by node: whole nodes and a rest, or four of each node."""
    share = 4 if size > GPUS_PER_NODE and rng.random() < 1 / 3 else GPUS_PER_NODE
    parts: dict[int, int] = {}
    left = size
    while left:
        wanted = min(left, share)
        fitting = [node for node, gpus in free.items() if gpus >= wanted and node not in parts]
        if not fitting:
            wanted, fitting = 1, list(free)
        tightest = min(free[node] for node in fitting)
        node = rng.choice([node for node in fitting if free[node] == tightest or rng.random() < 0.02])
        parts[node] = parts.get(node, 0) + wanted
        free[node] -= wanted
        left -= wanted
        if not free[node]:
            del free[node]
    return parts


def _options(rng: Random, gpus: int) -> tuple[Option, ...]:
    """Lost work in node-seconds of the job's share of its nodes; half of the jobs can be checkpointed."""
    if rng.random() < 0.5:
        age_s = round(math.exp(rng.uniform(math.log(300), math.log(48 * 3_600))))
        return (Option(Action.KILL, lost_work_node_s=age_s * gpus / GPUS_PER_NODE),)
    age_s = rng.randrange(CHECKPOINT_INTERVAL_S)
    memory_gib = MEMORY_PER_GPU_MIB / 1024 * rng.uniform(0.4, 0.9)
    writes_s = max(gpus * memory_gib / FILE_SYSTEM_GIB_S, memory_gib / GPU_GIB_S)
    waits_s = CHECKPOINT_INTERVAL_S - age_s
    return (
        Option(Action.KILL, lost_work_node_s=age_s * gpus / GPUS_PER_NODE),
        Option(Action.APP_CHECKPOINT, checkpoint_s=math.ceil(waits_s + writes_s * rng.uniform(0.2, 0.6))),
        Option(Action.SYS_CHECKPOINT, checkpoint_s=math.ceil(writes_s)),
    )
