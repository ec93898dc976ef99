"""Room for an urgent job of 200 nodes on a real cluster of 400: Clearway beside Slurm's own preemption, in one run.

Run with ``pytest tests/benchmarks/bench_batches.py -s`` as root on a machine with Slurm. All nodes are full with jobs
of one node each. From sbatch to RUNNING, most of the time goes into the end of 200 jobs, which both ask for.
Clearway is woken by job_submit.lua. CLEARWAY_BENCH_NODES changes the number of nodes.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from tests.slurm.cluster import SlurmCluster
from tests.slurm.daemon import RunningDaemon, config_text
from tests.slurm.machine import missing_requirements

NODES = int(os.environ.get("CLEARWAY_BENCH_NODES", "400"))
URGENT_NODES = NODES // 2
MOST_TIMES_SLURM = 1.1
LONGEST_CYCLE_S = 1.0
WAIT_S = 300.0
SCRIPT = Path(__file__).parents[2] / "plugins" / "slurm" / "job_submit.lua"


@dataclass(frozen=True)
class Served:
    """``seconds``: from sbatch to RUNNING; ``lost_node_s``: what the jobs that left had computed since their start."""

    seconds: float
    left: int
    lost_node_s: float


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    reason = missing_requirements()
    if reason:
        pytest.fail(f"the benchmark needs a real cluster: {reason}")
    settings = (
        "PreemptType=preempt/partition_prio",
        "PreemptMode=REQUEUE",
        "SlurmdDebug=error",
        "MaxNodeCount=2000",
        "SchedulerParameters=batch_sched_delay=0,default_queue_depth=1000",
        "PartitionName=top Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=100",
    )
    with SlurmCluster(nodes=NODES, cpus=1, memory_mib=100, extra_conf=settings) as started:
        with_wake_file(started)
        yield started


def with_wake_file(cluster: SlurmCluster) -> None:
    """As docs/howto/urgent-jobs.md says."""
    script = SCRIPT.read_text()
    assert "WAKE_FILE = nil" in script
    cluster.stop_controller()
    (cluster.root / "job_submit.lua").write_text(
        script.replace("WAKE_FILE = nil", f'WAKE_FILE = "{wake_file(cluster)}"')
    )
    with cluster.conf.open("a") as conf:
        conf.write("JobSubmitPlugins=lua\n")
    cluster.start_controller()


def wake_file(cluster: SlurmCluster) -> Path:
    return cluster.root / "state" / "wake"  # SlurmUser alone can write there


def fill(cluster: SlurmCluster) -> dict[str, float]:
    """A job on every node; by id, when it started, in seconds of the epoch."""
    options = (f"--array=1-{NODES}", "-N1", "--exclusive", "--requeue", "--time=60", "--output=/dev/null")
    cluster.sbatch("exec sleep 3600", *options, user="cwalice")
    cluster.wait_for(lambda: len(starts(cluster)) == NODES, WAIT_S, "a job on every node")
    return starts(cluster)


def starts(cluster: SlurmCluster) -> dict[str, float]:
    """Of the jobs that run in the partition that is left: by id, when they started."""
    rows = cluster.run("squeue", "-h", "-t", "RUNNING", "-p", "batch", "-O", "JobID:.20,StartTime:.40").stdout.split()
    ids, times = rows[::2], rows[1::2]
    return {i: time.mktime(time.strptime(t, "%Y-%m-%dT%H:%M:%S")) for i, t in zip(ids, times, strict=True)}


def served(cluster: SlurmCluster, partition: str) -> Served:
    before = fill(cluster)
    began, at = time.monotonic(), time.time()
    options = (f"--partition={partition}", f"-N{URGENT_NODES}", "--exclusive", "--time=10", "--output=/dev/null")
    urgent = cluster.sbatch("exec sleep 600", *options, user="cwbob")
    wait_quickly(lambda: cluster.state(urgent) == "RUNNING", f"job {urgent} is RUNNING")
    seconds = time.monotonic() - began
    after = starts(cluster)
    gone = [job_id for job_id, start in before.items() if after.get(job_id) != start]
    return Served(seconds, len(gone), sum(max(0.0, at - before[job_id]) for job_id in gone))


def wait_quickly(done: Callable[[], bool], what: str) -> None:
    """The cluster's own wait looks too seldom for a ratio of seconds."""
    end = time.monotonic() + WAIT_S
    while not done():
        assert time.monotonic() < end, f"not within {WAIT_S:g} s: {what}"
        time.sleep(0.05)


def longest_cycle_s(daemon: RunningDaemon) -> float:
    """Of those that are told of: all in which something was done."""
    found = re.findall(r"\bcycle\b.*\bseconds=([0-9.]+)", daemon.log.read_text())
    assert found, daemon.log.read_text()[-1_000:]
    return max(map(float, found))


def test_urgent_job_beside_slurms_own_preemption(cluster: SlurmCluster, tmp_path: Path) -> None:
    own = served(cluster, "top")
    cluster.reset()
    config = config_text(
        tmp_path,
        cluster.conf,
        # With the pauses that are set by default.
        daemon=f'mode = "automatic"\nwake_file = "{wake_file(cluster)}"',
        candidates="min_runtime = 1",
        execution="kill_allowance = 12",
        costs="checkpoint_overhead = 3",
    )
    with RunningDaemon(cluster, tmp_path, config=config) as daemon:
        ours = served(cluster, "urgent")
        longest = longest_cycle_s(daemon)
        requeues = steps_of(daemon).count("requeue")
    table = Table("", "s to RUNNING", "jobs that left", "lost node-s", title=f"{URGENT_NODES} of {NODES} nodes")
    for name, each in (("Slurm's partition_prio", own), ("Clearway", ours)):
        table.add_row(name, f"{each.seconds:.2f}", str(each.left), f"{each.lost_node_s:.0f}")
    Console(width=100).print(table, f"ratio {ours.seconds / own.seconds:.2f}, longest cycle {longest:.2f} s")
    assert ours.left == URGENT_NODES
    assert requeues == URGENT_NODES  # none was asked for twice
    assert ours.left <= own.left
    assert longest <= LONGEST_CYCLE_S
    assert ours.seconds <= MOST_TIMES_SLURM * own.seconds


def steps_of(daemon: RunningDaemon) -> list[str]:
    store = daemon.store()
    try:
        return [step.kind for e in store.evictions() for step in store.steps(e.eviction_id)]
    finally:
        store.close()
