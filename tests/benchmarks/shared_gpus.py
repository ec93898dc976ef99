"""GPU nodes that jobs fill to the last GPU, half of which can save themselves: what an urgent job may have of them."""

from __future__ import annotations

import math
from random import Random

from clearway.model.problem import Action, Amounts, Candidate, EvictionProblem, Needs, NodeResources, Option

GPUS, CORES_PER_GPU, MEMORY_PER_GPU_MIB = 8, 16, 100_000
SIZES = (1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 4, 8)  # GPUs of each node
WIDTHS = (1, 1, 1, 1, 2, 3, 4)  # nodes, of a job with four GPUs of each or more
SAVES_S = (10.0, 30.0)  # for each GPU
END_WITHIN = 0.01  # of the jobs


def amounts(gpus: int, cores: int | None = None) -> Amounts:
    return Amounts(cores or gpus * CORES_PER_GPU, gpus * MEMORY_PER_GPU_MIB, (("", gpus),))


def gpu_nodes(count: int) -> tuple[NodeResources, ...]:
    return tuple(NodeResources(f"n{number:05d}", amounts(GPUS)) for number in range(count))


def gpu_jobs(rng: Random, nodes: int, delay_s: int) -> tuple[Candidate, ...]:
    """About three jobs for each node; ages from a quarter of an hour to a day."""
    free = dict.fromkeys(range(nodes), GPUS)
    found: list[Candidate] = []
    while free:
        gpus = rng.choice(SIZES)
        wide = rng.choice(WIDTHS) if gpus >= 4 else 1
        able = [node for node, left in free.items() if left >= gpus]
        if len(able) < wide:
            gpus, wide, able = 1, 1, list(free)
        chosen = sorted(rng.sample(able, wide))
        for node in chosen:
            free[node] -= gpus
            if not free[node]:
                del free[node]
        found.append(_job(rng, 10_001 + len(found), chosen, gpus, delay_s))
    rng.shuffle(found)
    return tuple(found)


def _job(rng: Random, number: int, nodes: list[int], gpus: int, delay_s: int) -> Candidate:
    age_s = round(math.exp(rng.uniform(math.log(900), math.log(24 * 3_600))))
    options = [Option(Action.KILL, float(age_s * len(nodes)))]
    if rng.random() < 1 / 2:
        saves_s = math.ceil(rng.uniform(*SAVES_S) * gpus * len(nodes))
        options.append(Option(Action.APP_CHECKPOINT, checkpoint_s=saves_s))
    remaining_s = rng.uniform(0, delay_s / END_WITHIN)
    if remaining_s <= delay_s:
        options.append(Option(Action.END, ready_s=remaining_s))
    holds = amounts(gpus, gpus * rng.choice((8, 12, CORES_PER_GPU)))
    return Candidate(
        str(number),
        len(nodes),
        tuple(options),
        tuple(f"n{node:05d}" for node in nodes),
        (holds,) * len(nodes),
        ran_s=float(age_s),
        remaining_s=remaining_s,
        preempt_priority=rng.randrange(3),
        job_nodes=len(nodes),
    )


def gpu_problem(seed: int, nodes: int, needed: int, gpus: int, delay_s: int) -> EvictionProblem:
    rng = Random(f"gpus-{nodes}-{needed}-{gpus}-{delay_s}-{seed}")
    jobs = gpu_jobs(rng, nodes, delay_s)
    asked = Needs(per_node=amounts(gpus, gpus * 8))
    return EvictionProblem(needed, delay_s, 1, jobs, needs=asked, nodes=gpu_nodes(nodes))
