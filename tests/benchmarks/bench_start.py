"""From sbatch of an urgent job to its first line, beside Slurm's own preempt/qos on the same cluster in one run.

The jobs in the way exit at once when they are terminated, so what is measured is Clearway's own share: noticing,
planning, placing and requeueing. The default pause between two cycles of an idle daemon is kept. The limit holds for a
quiet machine: where the yardstick takes longer between the measures, Clearway may take longer by as much.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from tests.benchmarks.yardstick import Pace
from tests.slurm.cluster import SlurmCluster
from tests.slurm.daemon import RunningDaemon, config_text
from tests.slurm.machine import missing_requirements

REPEATS = 5
NODES_NEEDED = 2
MOST_SECONDS_LATER = 2.0  # on a quiet machine, where it is one
BUSY = "exec sleep 3600"


@pytest.fixture(scope="module")
def preempting_cluster() -> Iterator[SlurmCluster]:
    """Eight nodes with slurmdbd, where jobs of the QoS ``pushy`` preempt those of the QoS ``normal``."""
    reason = missing_requirements(accounting=True)
    if reason:
        pytest.fail(f"the benchmark needs a real cluster: {reason}")
    extra = ("PreemptType=preempt/qos", "PreemptMode=REQUEUE")
    with SlurmCluster(accounting=True, extra_conf=extra) as cluster:
        account = ("sacctmgr", "-i")
        cluster.run(*account, "add", "qos", "pushy", "Preempt=normal", "Priority=1000")
        if not cluster.run("sacctmgr", "-nP", "show", "account", "bench").stdout.strip():
            cluster.run(*account, "add", "account", "bench")
        cluster.run(*account, "add", "user", "cwalice", "Account=bench", "QOS=normal,pushy", "DefaultQOS=normal")
        cluster.wait_for(
            lambda: (
                cluster.run(
                    "sbatch", "--test-only", "--qos=pushy", "--wrap=true", user="cwalice", check=False
                ).returncode
                == 0
            ),
            30,
            "the controller to know the QoS",
        )
        yield cluster


def fill(cluster: SlurmCluster) -> dict[str, float]:
    """One job a node, of different ages; returns when each began."""
    began = {}
    for _ in cluster.node_names:
        job_id = cluster.sbatch(BUSY, "--requeue", "--exclusive", "--time=60", "--output=/dev/null", user="cwalice")
        cluster.wait_state(job_id, "RUNNING")
        began[job_id] = time.time()
    time.sleep(3)  # a quiet scheduler for both, and work that can be lost
    return began


def measure(
    cluster: SlurmCluster, pace: Pace, prepare: Callable[[], None], seen: Callable[[str], None], *urgent: str
) -> tuple[float, float]:
    """Seconds from sbatch to the urgent job's first line, and node-seconds that the others lost."""
    cluster.reset()
    began = fill(cluster)
    prepare()
    pace.take()
    mark = cluster.work / "urgent-started"
    mark.unlink(missing_ok=True)
    submitted = time.time()
    job_id = cluster.sbatch(
        f"date +%s.%N > {mark}.new; mv {mark}.new {mark}; sleep 2", f"-N{NODES_NEEDED}", "--exclusive", "--time=5",
        "--output=/dev/null", *urgent, user="cwalice",
    )  # fmt: skip
    cluster.wait_for(mark.exists, 60, f"urgent job {job_id} to start")
    started = float(mark.read_text())
    pace.take()
    seen(job_id)
    preempted = [i for i in began if cluster.job(i)["Restarts"] != "0"]
    assert len(preempted) >= NODES_NEEDED
    return started - submitted, sum(started - began[i] for i in preempted)


def test_clearway_starts_urgent_jobs_about_as_soon_as_slurm_does(
    preempting_cluster: SlurmCluster, tmp_path: Path
) -> None:
    cluster = preempting_cluster
    pace = Pace()
    slurm = [measure(cluster, pace, lambda: None, lambda _: None, "--qos=pushy") for _ in range(REPEATS)]
    folder = tmp_path / "daemon"
    keys = 'mode = "automatic"'  # the default pauses between cycles
    with RunningDaemon(cluster, folder, config=config_text(folder, cluster.conf, daemon=keys)) as daemon:

        def settled() -> None:
            daemon.wait_for(lambda: all(e.state.terminal for e in daemon.evictions()), 60, "earlier evictions to end")

        def seen(job_id: str) -> None:
            """One that is gone before the daemon has seen it run was given up, and its user's next plans wait."""
            mine = lambda: any(e.started_at for e in daemon.evictions() if e.preemptor.job_id == job_id)  # noqa: E731
            daemon.wait_for(mine, 60, "the urgent job to be seen running")

        ours = [measure(cluster, pace, settled, seen, "--partition=urgent") for _ in range(REPEATS)]
    table = Table(title="sbatch to running, 2 of 8 busy nodes (median of 5)", title_justify="left")
    for heading in ("", "seconds", "worst", "lost node-seconds"):
        table.add_column(heading, justify="right")
    for name, figures in (("Slurm preempt/qos", slurm), ("Clearway", ours)):
        seconds = [figure[0] for figure in figures]
        lost = statistics.median(figure[1] for figure in figures)
        table.add_row(name, f"{statistics.median(seconds):.2f}", f"{max(seconds):.2f}", f"{lost:.1f}")
    Console(width=110).print(table)
    later = statistics.median(f[0] for f in ours) - statistics.median(f[0] for f in slurm)
    assert later <= MOST_SECONDS_LATER * pace.slower, (
        f"Clearway starts urgent jobs {later:.2f} s later; the machine x{pace.slower:.1f}"
    )
