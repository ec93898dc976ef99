"""A busy cluster: 1,000 running and 1,000 pending jobs of all sorts on 2,000 nodes; for load tests and benchmarks."""

from __future__ import annotations

from random import Random

from clearway.simulation.cluster import Program, SimulatedCluster
from tests.builders import NOW

NODES = 2_000
RUNNING = 1_000
PENDING = 1_000
SHARED_PAIRS = 100  # jobs that share their two nodes with another one, two by two
URGENT_NODES = 64
_SIZES = (1, 4, 2, 1, 3, 1, 2, 4)  # nodes of the others, over and over: 1,800 in all
_SEED = 5


def fill(cluster: SimulatedCluster) -> None:
    """Every node is busy. Three of four jobs claim that they can save themselves, and when they last did."""
    draw = Random(_SEED)
    names = iter(cluster.nodes)
    for _ in range(SHARED_PAIRS):
        pair = (next(names), next(names))
        for _ in range(2):
            cluster.submit(_program(draw), on=pair, num_nodes=2, cpus_per_node=2, **_about(draw))
    for index in range(RUNNING - 2 * SHARED_PAIRS):
        size = _SIZES[index % len(_SIZES)]
        on = tuple(next(names) for _ in range(size))
        cluster.submit(_program(draw), on=on, num_nodes=size, **_about(draw))
    for _ in range(PENDING):
        cluster.submit(Program(), num_nodes=draw.randint(1, 64), time_limit_s=86_400, **_who(draw))


def _program(draw: Random) -> Program:
    return Program(work_s=1e6, save_s=draw.uniform(2, 20))


def _about(draw: Random) -> dict[str, object]:
    ran_s = draw.uniform(100, 80_000)
    last = int(NOW.timestamp() - draw.uniform(0, ran_s))
    comment = draw.choice(
        [
            "",
            f"clearway:checkpoint=signal,size_mib={draw.randint(100, 99_999)}",
            f"clearway:checkpoint=signal,last={last},state=saved,asked={last - 9},took={draw.randint(2, 60)}",
            f"nightly clearway:checkpoint=interval,interval={draw.randint(5, 90)}m,last={last}",
        ]
    )
    return {"ran_s": ran_s, "time_limit_s": 86_400, "comment": comment, **_who(draw)}


def _who(draw: Random) -> dict[str, object]:
    return {"user": f"user{draw.randint(1, 99)}", "account": f"account{draw.randint(1, 20)}", "name": "solver"}
