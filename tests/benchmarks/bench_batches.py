"""Room for an urgent job of 200 nodes on a real cluster of 400, and for many small ones: beside Slurm's own preemption.

Run with ``pytest tests/benchmarks/bench_batches.py -s`` as root on a machine with Slurm. All nodes are full with jobs
of one node each. From sbatch to RUNNING, most of the time goes into the end of 200 jobs, which both ask for. What is
above a limit is measured again, as the machine has other work at times; a ratio is one of the same run, and a cycle is
judged by how slow the machine is meanwhile.
Clearway is woken by job_submit.lua. CLEARWAY_BENCH_NODES changes the number of nodes.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from tests.benchmarks.yardstick import Pace
from tests.slurm.cluster import SlurmCluster
from tests.slurm.daemon import RunningDaemon, config_text
from tests.slurm.machine import missing_requirements

NODES = int(os.environ.get("CLEARWAY_BENCH_NODES", "400"))
URGENT_NODES = NODES // 2
MANY = 60  # urgent jobs of two nodes each
FEW_NODES = 64
RUNS = 3
MEASURES = 3  # of how slow the machine is, before a run and after it
ANSWERS, ANSWER_S = 5, 0.1  # so many quick answers of squeue in a row mean that the machine has settled
MOST_TIMES_SLURM = 1.1
LONGEST_CYCLE_S = 1.0
WAIT_S = 300.0
SCRIPT = Path(__file__).parents[2] / "plugins" / "slurm" / "job_submit.lua"


@dataclass(frozen=True)
class Served:
    """``seconds``: from sbatch to RUNNING; ``lost_node_s``: what the jobs that left had computed since their start.

    ``needless_node_s``: how much less as many jobs could have lost, those that had started last.
    """

    seconds: float
    left: int
    lost_node_s: float
    needless_node_s: float


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with full_cluster(NODES) as started:
        yield started


@contextmanager
def full_cluster(nodes: int) -> Iterator[SlurmCluster]:
    reason = missing_requirements()
    if reason:
        pytest.fail(f"the benchmark needs a real cluster: {reason}")
    settings = (
        "PreemptType=preempt/partition_prio",
        "PreemptMode=REQUEUE",
        "SlurmdDebug=error",
        "MaxNodeCount=2000",
        "MaxArraySize=5000",
        "SchedulerParameters=batch_sched_delay=0,default_queue_depth=1000",
        "PartitionName=top Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=100",
    )
    with SlurmCluster(nodes=nodes, cpus=1, memory_mib=100, extra_conf=settings) as started:
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


def fill(cluster: SlurmCluster, nodes: int = NODES) -> dict[str, float]:
    """A job on every node; by id, when it started, in seconds of the epoch."""
    options = (f"--array=1-{nodes}", "-N1", "--exclusive", "--requeue", "--time=60", "--output=/dev/null")
    cluster.sbatch("exec sleep 3600", *options, user="cwalice")
    cluster.wait_for(lambda: len(starts(cluster)) == nodes, WAIT_S, "a job on every node")
    return starts(cluster)


def starts(cluster: SlurmCluster) -> dict[str, float]:
    """Of the jobs that run in the partition that is left: by id, when they started."""
    rows = cluster.run("squeue", "-h", "-t", "RUNNING", "-p", "batch", "-O", "JobID:.20,StartTime:.40").stdout.split()
    ids, times = rows[::2], rows[1::2]
    return {i: time.mktime(time.strptime(t, "%Y-%m-%dT%H:%M:%S")) for i, t in zip(ids, times, strict=True)}


def served(cluster: SlurmCluster, partition: str) -> Served:
    before = fill(cluster)
    settle(cluster)
    began, at = time.monotonic(), time.time()
    options = (f"--partition={partition}", f"-N{URGENT_NODES}", "--exclusive", "--time=10", "--output=/dev/null")
    urgent = cluster.sbatch("exec sleep 600", *options, user="cwbob")
    wait_quickly(lambda: cluster.state(urgent) == "RUNNING", f"job {urgent} is RUNNING")
    seconds = time.monotonic() - began
    after = starts(cluster)
    gone = [job_id for job_id, start in before.items() if after.get(job_id) != start]
    lost = [max(0.0, at - before[job_id]) for job_id in gone]
    least = sorted(max(0.0, at - start) for start in before.values())[: len(gone)]
    return Served(seconds, len(gone), sum(lost), sum(lost) - sum(least))


def settle(cluster: SlurmCluster) -> None:
    """Until the machine has done with the start of so many jobs."""
    quick = 0
    end = time.monotonic() + WAIT_S
    while quick < ANSWERS:
        assert time.monotonic() < end, f"squeue does not answer within {ANSWER_S:g} s"
        began = time.monotonic()
        starts(cluster)
        quick = quick + 1 if time.monotonic() - began < ANSWER_S else 0
        time.sleep(0.1)


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


def config_for(cluster: SlurmCluster, folder: Path) -> str:
    """With the pauses that are set by default."""
    return config_text(
        folder,
        cluster.conf,
        daemon=f'mode = "automatic"\nwake_file = "{wake_file(cluster)}"',
        candidates="min_runtime = 1",
        execution="kill_allowance = 12",
        costs="checkpoint_overhead = 3",
        budget="user_evictions_per_hour = 1000\nuser_jobs_per_hour = 1000",
    )


def test_urgent_job_beside_slurms_own_preemption(cluster: SlurmCluster, tmp_path: Path) -> None:
    for run in range(RUNS):
        ratio, longest_s = beside_slurms_own(cluster, tmp_path / str(run))
        if ratio <= MOST_TIMES_SLURM and longest_s <= LONGEST_CYCLE_S:
            return
    pytest.fail(f"in {RUNS} runs above {MOST_TIMES_SLURM} of Slurm's own time, or a cycle above {LONGEST_CYCLE_S:g} s")


def beside_slurms_own(cluster: SlurmCluster, folder: Path) -> tuple[float, float]:
    """The ratio of the times from sbatch to RUNNING, and the longest cycle in seconds of a quiet machine."""
    folder.mkdir()
    pace = paced(Pace())
    own = served(cluster, "top")
    cluster.reset()
    with RunningDaemon(cluster, folder, config=config_for(cluster, folder)) as daemon:
        ours = served(cluster, "urgent")
        longest = longest_cycle_s(daemon)
        requeues = steps_of(daemon).count("requeue")
    table = Table(
        "", "s to RUNNING", "jobs that left", "lost node-s", "of it needless", title=f"{URGENT_NODES} of {NODES} nodes"
    )
    for name, each in (("Slurm's partition_prio", own), ("Clearway", ours)):
        table.add_row(
            name, f"{each.seconds:.2f}", str(each.left), f"{each.lost_node_s:.0f}", f"{each.needless_node_s:.0f}"
        )
    slower = paced(pace).slower
    ratio = ours.seconds / own.seconds
    Console(width=100).print(table, f"ratio {ratio:.2f}, longest cycle {longest:.2f} s; the machine x{slower:.1f}")
    assert ours.left == URGENT_NODES
    assert requeues == URGENT_NODES  # none was asked for twice
    assert ours.left <= own.left
    assert ours.needless_node_s <= own.needless_node_s
    cluster.reset()
    return ratio, longest / slower


def paced(pace: Pace) -> Pace:
    for _ in range(MEASURES):
        pace.take()
    return pace


def test_many_urgent_jobs_at_once_leave_cycles_short(tmp_path: Path) -> None:
    """60 of two nodes each on 64 full nodes, beside 2,000 pending tasks: there is room for 32 of them."""
    for run in range(RUNS):
        if many_at_once(tmp_path / str(run)) <= LONGEST_CYCLE_S:
            return
    pytest.fail(f"in {RUNS} runs a cycle above {LONGEST_CYCLE_S:g} s")


def many_at_once(folder: Path) -> float:
    """The longest cycle in seconds of a quiet machine."""
    folder.mkdir()
    pace = paced(Pace())
    with (
        full_cluster(FEW_NODES) as cluster,
        RunningDaemon(cluster, folder, config=config_for(cluster, folder)) as daemon,
    ):
        fill(cluster, FEW_NODES)
        waiting = ("--array=1-2000", "-N1", "--exclusive", "--requeue", "--time=60", "--output=/dev/null")
        cluster.sbatch("exec sleep 3600", *waiting, user="cwalice")
        began = time.monotonic()
        submit = "sbatch --partition=urgent -N2 --exclusive --time=10 --output=/dev/null --wrap='exec sleep 600'"
        cluster.run("bash", "-c", f"for each in $(seq {MANY}); do {submit} & done; wait", user="cwbob")
        wait_quickly(lambda: urgent_running(cluster) == FEW_NODES // 2, f"{FEW_NODES // 2} of {MANY} urgent jobs run")
        seconds, longest = time.monotonic() - began, longest_cycle_s(daemon)
    slower, run = paced(pace).slower, f"{FEW_NODES // 2} of {MANY} run after {seconds:.2f} s"
    Console(width=100).print(f"{run}, longest cycle {longest:.2f} s; the machine x{slower:.1f}")
    return longest / slower


def urgent_running(cluster: SlurmCluster) -> int:
    return len(cluster.run("squeue", "-h", "-t", "RUNNING", "-p", "urgent", "-o", "%A").stdout.split())


def steps_of(daemon: RunningDaemon) -> list[str]:
    store = daemon.store()
    try:
        return [step.kind for e in store.evictions() for step in store.steps(e.eviction_id)]
    finally:
        store.close()
