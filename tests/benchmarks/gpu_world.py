"""A daemon on 1,000 simulated GPU nodes that 3,000 jobs share, and a crowd of urgent jobs of many kinds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

from clearway.model.cluster import Node
from clearway.simulation.jobs import Program
from tests.benchmarks.shared import CORES_PER_GPU, GPUS_PER_NODE
from tests.builders import NOW, ManualClock
from tests.simulation.world import World, config

NODES, JOBS = 1_000, 3_000
ENDS = 0.01  # of the running jobs end within the longest delay
DELAYS_S = (60, 300, 600, 885)
SAVES_S = 15  # for each GPU: half of the jobs can be checkpointed
# What an urgent job asks of each node: GPUs, and processors for each of them.
KINDS = tuple((gpus, cores) for gpus in (1, 2, 4, 8) for cores in (4, 8, 12, 16))


class Spent(ManualClock):
    """What the process computes takes time, but for the simulated scheduler; the cluster's clock moves by hand."""

    not_counted_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + time.process_time() - self.not_counted_s

    def steady(self) -> float:
        return super().monotonic()


def shared_gpus(
    folder: Path, seed: int, *, time_per_cycle: float = 60.0, nodes: int = NODES, jobs: int = JOBS
) -> World:
    """Jobs of 1, 2, 4 or 8 GPUs of each of up to four nodes, with 8 to 16 processors a GPU, fill the machine."""
    settings = config(
        preemptors=[{"partition": ["urgent"], "max_delay": "10m"}], planning={"time_per_cycle": time_per_cycle}
    )
    made = World(f"sqlite:///{folder}/gpus.sqlite", settings, node_count=0, clock=(clock := Spent(NOW)))
    schedule = made.cluster.schedule

    def not_counted() -> None:
        begin = time.process_time()
        schedule()
        clock.not_counted_s += time.process_time() - begin

    made.cluster.schedule = not_counted  # type: ignore[method-assign]
    made.cluster.add_nodes(
        Node(
            name=f"n{number:04d}",
            available=True,
            raw_state="IDLE",
            cpus=GPUS_PER_NODE * CORES_PER_GPU,
            memory_mib=1_000_000,
            partitions=("batch", "urgent"),
            gpus=(("", GPUS_PER_NODE),),
        )
        for number in range(nodes)
    )
    rng = Random(seed)
    for number, (gpus, names) in enumerate(_placed(rng, nodes, jobs)):
        ran_s = rng.uniform(600, 6 * 3_600)
        made.cluster.submit(
            Program(work_s=1e6, save_s=10),
            on=names,
            num_nodes=len(names),
            cpus_per_node=gpus * rng.choice((8, 12, CORES_PER_GPU)),
            gpus=(("", gpus),),
            memory_mib=gpus * 100_000,
            ran_s=ran_s,
            time_limit_s=round(ran_s + rng.uniform(60, 900)) if rng.random() < ENDS else 86_400,
            comment=f"clearway:checkpoint=signal,took={SAVES_S * gpus * len(names)}" if number % 2 else "",
            user=f"user{number % 99}",
        )
    made.tick()
    return made


def _placed(rng: Random, nodes: int, jobs: int) -> Sequence[tuple[int, tuple[str, ...]]]:
    """Of each job: GPUs of each node, and the nodes; as many jobs as there shall be, and no GPU is left."""
    free = {f"n{number:04d}": GPUS_PER_NODE for number in range(nodes)}
    left, found = nodes * GPUS_PER_NODE, list[tuple[int, tuple[str, ...]]]()
    while left:
        jobs_left = max(1, jobs - len(found))
        gpus = rng.choice((1, 1, 1, 1, 2, 2, 4, 8)) if left > jobs_left else 1
        wide = rng.choice((1, 1, 1, 1, 2, 3, 4)) if gpus >= 4 else 1
        if left - gpus * wide < jobs_left - 1:
            gpus = wide = 1
        if jobs_left == 1 and len(found) >= jobs - 1:
            gpus, wide = max(free.values()), 1
        able = sorted(((each, name) for name, each in free.items() if each >= gpus))[: 20 * wide]
        if len(able) < wide:
            continue
        names = tuple(sorted(name for _, name in rng.sample(able, wide)))
        for name in names:
            free[name] -= gpus
            left -= gpus
            if not free[name]:
                del free[name]
        found.append((gpus, names))
    return found


def urgent_gpu_jobs(made: World, count: int, seed: int, kinds: Sequence[tuple[int, int]] = KINDS) -> list[str]:
    """Urgent jobs of one or two nodes, of all these kinds, within four delays; their ids."""
    rng = Random(seed)
    found = []
    for number in range(count):
        gpus, cores = kinds[number % len(kinds)]
        found.append(
            made.urgent(
                rng.choice((1, 2)),
                cpus_per_node=gpus * cores,
                gpus=(("", gpus),),
                user=f"urgent{number % 20}",
                comment=f"clearway:max_delay={rng.choice(DELAYS_S)}s",
            )
        )
    return found
