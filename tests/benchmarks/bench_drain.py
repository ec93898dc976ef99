"""Time to empty a node: waiting for its jobs, as an ordinary DRAIN does, beside ``clearway drain``.

The Slurm+DMTCP paper's comparison for smigrate, on a real cluster and in one run: two nodes get jobs of the same run
times, drawn from an exponential distribution as the paper's are, and are drained in the same moment. What is moved goes
on elsewhere and must end with the right results.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from tests.slurm.cluster import SlurmCluster
from tests.slurm.daemon import (
    MOST_REPEATED,
    RunningDaemon,
    config_text,
    expected_result,
    install_programs,
    saver_script,
)
from tests.slurm.machine import missing_requirements

JOBS_A_NODE = 4
MEAN_S, SHORTEST_S, LONGEST_S = 90.0, 40, 240
LEAST_TIMES_QUICKER = 2.0
SEED = 3


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    reason = missing_requirements()
    if reason:
        pytest.fail(f"the benchmark needs a real cluster: {reason}")
    with SlurmCluster() as started:
        yield started


def run_times(seed: int) -> list[int]:
    """Whole seconds; one step of the program is one second."""
    draw = random.Random(seed)
    return [min(LONGEST_S, SHORTEST_S + round(draw.expovariate(1 / MEAN_S))) for _ in range(JOBS_A_NODE)]


def submit(cluster: SlurmCluster, steps: int) -> str:
    options = ("--requeue", "--output=/dev/null", "--time=30", "-N1", "-n1", "--mem=500")
    job_id = cluster.sbatch(saver_script(cluster, steps), *options, user="cwalice")
    cluster.wait_state(job_id, "RUNNING")
    return job_id


def repeated_steps(cluster: SlurmCluster, job_id: str, steps: int) -> int:
    """Steps done again; the result must be that of an undisturbed run."""
    result = cluster.work / f"state.{job_id}.result"
    cluster.wait_for(lambda: result.exists() and result.read_text().strip(), LONGEST_S + 60, f"the result of {job_id}")
    assert int(result.read_text()) == expected_result(steps)
    return len((cluster.work / f"state.{job_id}.log").read_text().split()) - steps


def test_time_to_empty_a_node(cluster: SlurmCluster, tmp_path: Path) -> None:
    install_programs(cluster)
    folder = tmp_path / "daemon"
    config = config_text(folder, cluster.conf, drain='operators = ["tester"]')
    times = run_times(SEED)
    with RunningDaemon(cluster, folder, config=config) as daemon:
        waited = [submit(cluster, steps) for steps in times]  # fill the first node
        moved = [submit(cluster, steps) for steps in times]  # ... and the second
        assert {cluster.job(i)["NodeList"] for i in waited} == {"node1"}
        assert {cluster.job(i)["NodeList"] for i in moved} == {"node2"}
        for job_id in moved:
            cluster.wait_for(lambda job_id=job_id: "checkpoint" in cluster.job(job_id).get("Comment", ""), 60)
        began = time.monotonic()
        cluster.run("scontrol", "update", "NodeName=node1", "State=DRAIN", "Reason=the old way")
        assert daemon.post("/api/v1/drains", {"nodes": "node2"}).status_code == 202
        empty_after_s: dict[str, float] = {}

        def both_empty() -> bool:
            for name in ("node1", "node2"):
                state = cluster.node_state(name)
                if name not in empty_after_s and state == "IDLE+DRAIN":
                    empty_after_s[name] = time.monotonic() - began
            return len(empty_after_s) == 2

        cluster.wait_for(both_empty, LONGEST_S + 60, "both nodes to be empty")
        repeated = sum(repeated_steps(cluster, *each) for each in zip(moved, times, strict=True))
    table = Table(title=f"Time to empty a node with {JOBS_A_NODE} jobs of {', '.join(f'{t} s' for t in times)}")
    for column in ("how", "seconds until empty", "seconds of work repeated"):
        table.add_column(column)
    table.add_row("waiting (DRAIN)", f"{empty_after_s['node1']:.1f}", "0")
    table.add_row("clearway drain", f"{empty_after_s['node2']:.1f}", str(repeated))
    Console(width=100).print(table)
    assert empty_after_s["node1"] / empty_after_s["node2"] > LEAST_TIMES_QUICKER
    assert repeated <= JOBS_A_NODE * MOST_REPEATED
