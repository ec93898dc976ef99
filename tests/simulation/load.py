"""A busy cluster: 1,000 running and 1,000 pending jobs of all sorts on 2,000 nodes; for load tests and benchmarks.

``python -m tests.simulation.load DATABASE`` runs a whole daemon (loop, store, REST API) on it until it is told to end;
its first line is the address of the API. With a file of tokens behind the database it waits for approvals.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any

from clearway import bootstrap
from clearway.api.logins import Tokens
from clearway.config.configuration import Config
from clearway.model.clock import SystemClock
from clearway.model.cluster import Node
from clearway.service import server
from clearway.simulation.backend import SimulatedBackend
from clearway.simulation.cluster import SimulatedCluster
from clearway.simulation.jobs import Program
from clearway.telemetry.log import configure_logging

NODES = 2_000
RUNNING = 1_000
PENDING = 1_000
URGENT_NODES = 64
_SHARED_PAIRS = 100  # each two jobs side by side on two nodes
_SIZES = (1, 4, 2, 1, 3, 1, 2, 4)  # nodes of the others, over and over: 1,800 in all
_SEED = 5


def nodes() -> Iterable[Node]:
    for number in range(1, NODES + 1):
        yield Node(
            name=f"n{number}",
            available=True,
            raw_state="IDLE",
            cpus=4,
            memory_mib=4_000,
            partitions=("batch", "urgent"),
        )


def fill(cluster: SimulatedCluster) -> None:
    """Every node is busy. Three of four jobs say that they can save themselves, half when they last did."""
    draw = Random(_SEED)
    names = iter(cluster.nodes)
    for _ in range(_SHARED_PAIRS):
        pair = (next(names), next(names))
        for _ in range(2):
            cluster.submit(on=pair, num_nodes=2, cpus_per_node=2, **_run(draw, cluster.now))
    for index in range(RUNNING - 2 * _SHARED_PAIRS):
        on = tuple(next(names) for _ in range(_SIZES[index % len(_SIZES)]))
        cluster.submit(on=on, num_nodes=len(on), **_run(draw, cluster.now))
    for _ in range(PENDING):
        cluster.submit(Program(), num_nodes=draw.randint(1, URGENT_NODES), time_limit_s=86_400, **_who(draw))


def urgent(cluster: SimulatedCluster) -> str:
    return cluster.submit(Program(), num_nodes=URGENT_NODES, partitions=("urgent",), priority=1_000, user="ursula")


def _run(draw: Random, now: datetime) -> dict[str, Any]:
    """A running job: what it does, since when, and what it says of itself."""
    ran_s = draw.uniform(100, 80_000)
    program = Program(work_s=1e6, save_s=draw.uniform(2, 20))
    last = int(now.timestamp() - draw.uniform(0, ran_s))
    match draw.randrange(4):
        case 0:
            program, comment = Program(work_s=1e6), ""
        case 1:
            comment = f"clearway:checkpoint=signal,size_mib={draw.randint(100, 99_999)}"
        case 2:
            comment = f"clearway:checkpoint=signal,last={last},state=saved,asked={last - 9},took={draw.randint(2, 60)}"
        case _:
            interval_s = 60 * draw.randint(5, 90)
            last = int(now.timestamp() - ran_s % interval_s)
            program = Program(work_s=1e6, interval_s=interval_s)
            comment = f"nightly clearway:checkpoint=interval,interval={interval_s}s,last={last},took=3s"
    return {"program": program, "ran_s": ran_s, "time_limit_s": 86_400, "comment": comment, **_who(draw)}


def _who(draw: Random) -> dict[str, Any]:
    return {"user": f"user{draw.randint(1, 99)}", "account": f"account{draw.randint(1, 20)}", "name": "solver"}


def main(database: str, tokens: str | None = None) -> int:
    configure_logging("text", quiet=True)
    clock = SystemClock()
    cluster = SimulatedCluster(now=clock.now())
    cluster.add_nodes(nodes())
    fill(cluster)
    config = Config.model_validate(
        {
            "daemon": {"mode": "approve" if tokens else "automatic", "poll_interval": 0.1, "active_interval": 0.1},
            "store": {"url": f"sqlite:///{database}"},
            "api": {"port": 0},
            "access": {"public": "reading"},
            "preemptors": [{"partition": ["urgent"], "max_delay": "5m"}],
        }
    )
    daemon = bootstrap.build(config, origin="load", backend=SimulatedBackend(cluster, clock), clock=clock)
    urgent(cluster)
    known = Tokens(Path(tokens) if tokens else None)
    return server.serve(daemon.loop, daemon.metrics, known, announce=lambda address: print(address, flush=True))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
