"""An eternal job on a real cluster: preempted twenty times by ordinary jobs, and at the end as if nothing had been."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

import pytest

from clearway.model.operations import EvictionState
from clearway.model.problem import Action
from tests.slurm.cluster import SlurmCluster
from tests.slurm.daemon import RunningDaemon, config_text, install_programs

pytestmark = pytest.mark.one_slurm

TIMES = 20
STEPS = 20_000  # of a twentieth of a second, until the test lets them hurry
WHOLE = ("--exclusive", "--mem=0", "--output=/dev/null")
UNTIL_SEEN = "until [ -e seen.$SLURM_JOB_ID ]; do sleep 0.1; done"
ETERNAL = 'partitions = ["eternal"]\npatience = 0\nmin_runtime = 1\nmax_delay = "60s"'

# Each step takes the state that the one before left; on USR1 it is saved, and a later run goes on from there.
PROGRAM = """\
import os, signal, sys, time
steps, file = int(sys.argv[1]), sys.argv[2]
wanted = False
def ask(*_):
    global wanted
    wanted = True
signal.signal(signal.SIGUSR1, ask)
done, value = 0, 7
if os.path.exists(file):
    done, value = map(int, open(file).read().split())
log = open(file + ".log", "a", buffering=1)
while done < steps:
    time.sleep(0.0 if os.path.exists(file + ".hurry") else float(sys.argv[3]))
    done, value = done + 1, (value * 31 + done) % 1000003
    log.write(f"{done} {os.environ.get('SLURM_RESTART_COUNT', '0')}\\n")
    if wanted:
        wanted = False
        with open(file + ".new", "w") as out:
            out.write(f"{done} {value}")
        os.rename(file + ".new", file)
        signal.raise_signal(signal.SIGSTOP)  # what it did now it would do again
        time.sleep(1)  # Slurm continues what is held a moment before it ends it
with open(file + ".result", "w") as out:
    out.write(str(value))
"""


def eternal_job(cluster: SlurmCluster, name: str, steps: int, nodes: str) -> str:
    """On all of these nodes, with a pause between its steps that lets it run for as long as the test does."""
    script = (
        "#!/bin/sh\n#SBATCH --requeue\n#SBATCH --open-mode=append\n#SBATCH --signal=B:USR2@60\n"
        f"exec {cluster.work}/clearway-run --limit-signal USR2 --checkpoint-file {cluster.work}/{name} -- \\\n"
        f"    python3 {cluster.work}/eternal.py {steps} {cluster.work}/{name} 0.05\n"
    )
    args = ("-p", "eternal", "-N1", "-w", nodes, "--exclusive", "--mem=0", "--time=60", f"--output={name}.out")
    return cluster.sbatch(script, *args, user="cwalice")


@pytest.mark.full
@pytest.mark.timeout(3_600)
def test_preempted_twenty_times_it_ends_as_undisturbed(cluster: SlurmCluster, tmp_path: Path) -> None:
    install_programs(cluster)
    (cluster.work / "eternal.py").write_text(PROGRAM)
    cluster.run("scontrol", "create", "PartitionName=eternal", "Nodes=ALL", "PriorityTier=0", "PreemptMode=OFF")
    try:
        busy = ("-N1", "--time=60", *WHOLE)
        others = [cluster.sbatch("sleep 3500", *busy, user="cwalice") for _ in cluster.node_names[1:]]
        for other in others:
            cluster.wait_state(other, "RUNNING")
        (node,) = set(cluster.node_names) - {cluster.job(other)["NodeList"] for other in others}
        undisturbed = cluster.work / "undisturbed"
        cluster.run("python3", f"{cluster.work}/eternal.py", str(STEPS), str(undisturbed), "0")
        job = eternal_job(cluster, "eternal", STEPS, node)
        settings = config_text(tmp_path / "daemon", cluster.conf, eternal=ETERNAL)
        with RunningDaemon(cluster, tmp_path / "daemon", config=settings) as daemon:
            for count in range(TIMES):
                cluster.wait_for(lambda count=count: runs(cluster, job, count), 40, f"run {count} of the eternal job")
                at = time.monotonic()
                ordinary = cluster.sbatch(UNTIL_SEEN, "-N1", "--time=5", *WHOLE, user="cwbob")
                cluster.wait_state(ordinary, "RUNNING", timeout=40)
                assert cluster.job(ordinary)["NodeList"] == node
                assert time.monotonic() - at < 60  # the max delay
                # One that ends before the daemon has seen it run would be one that is gone.
                daemon.wait_for(lambda: daemon.evictions()[0].started_at is not None, 20, "the start to be seen")
                (cluster.work / f"seen.{ordinary}").touch()
            (cluster.work / "eternal.hurry").touch()
            cluster.wait_state(job, "COMPLETED", timeout=90)
            daemon.wait_for(lambda: all(e.state.terminal for e in daemon.evictions()), 60, "all evictions to end")
            evictions = daemon.evictions()
            listed = daemon.get("/api/v1/evictions?limit=100").json()
            metrics = daemon.get("/metrics").text
        result = cluster.work / "eternal.result"
        assert result.read_text() == Path(f"{undisturbed}.result").read_text()
        log = [line.split() for line in (cluster.work / "eternal.log").read_text().splitlines()]
        steps = [int(step) for step, _ in log]
        assert set(steps) == set(range(1, STEPS + 1))
        repeated = [int(last) + 1 - int(first) for (last, run), (first, later) in pairwise(log) if later != run]
        # Its last run, which hurries, was not preempted.
        at_risk = sum(run != str(TIMES) for _, run in log)
        print(f"{sum(repeated)} of {at_risk} steps were repeated in {TIMES} preemptions")
        assert len(repeated) == TIMES
        assert sum(repeated) < at_risk / 100
        assert cluster.job(job)["Restarts"] == str(TIMES)
        assert [e.state for e in evictions] == [EvictionState.COMPLETED] * TIMES
        assert {(p.job_id, p.action, p.eternal) for e in evictions for p in e.preemptions} == {
            (job, Action.APP_CHECKPOINT, True)
        }
        assert {cluster.job(other)["Restarts"] for other in others} == {"0"}
        assert not cluster.scontrol_reservations()
        assert len(listed["items"]) == TIMES
        assert 'partition="eternal"' in metrics
    finally:
        cluster.reset()
        cluster.run("scontrol", "delete", "PartitionName=eternal")


def test_eternal_jobs_begin_at_the_far_end(cluster: SlurmCluster) -> None:
    """Slurm keeps no order of a partition's nodes; a preferred feature does what the opposite order is for."""
    backwards, far = ",".join(reversed(cluster.node_names)), cluster.node_names[4:]
    cluster.run("scontrol", "create", "PartitionName=backwards", f"Nodes={backwards}")
    features = [f"NodeName={','.join(far)}", "AvailableFeatures=far", "ActiveFeatures=far"]
    try:
        cluster.run("scontrol", "update", *features)
        args = ("-p", "backwards", "-N1", "--time=15", *WHOLE)
        plain = cluster.sbatch("sleep 600", *args, user="cwalice")
        cluster.wait_state(plain, "RUNNING")
        assert cluster.job(plain)["NodeList"] == cluster.node_names[0]
        wanted = len(far) + 1
        jobs = [cluster.sbatch("sleep 600", *args, "--prefer=far", user="cwalice") for _ in range(wanted)]
        for job in jobs:
            cluster.wait_state(job, "RUNNING")
        assert [cluster.job(job)["NodeList"] for job in jobs] == [*far, cluster.node_names[1]]
    finally:
        cluster.reset()
        cluster.run("scontrol", "update", features[0], "AvailableFeatures=", "ActiveFeatures=")
        cluster.run("scontrol", "delete", "PartitionName=backwards")


def runs(cluster: SlurmCluster, job: str, count: int) -> bool:
    """Whether the job computes in this run, and has said that it can save itself."""
    log = cluster.work / "eternal.log"
    known = cluster.job(job)
    return (
        known["JobState"] == "RUNNING"
        and known["Restarts"] == str(count)
        and "checkpoint=signal" in known.get("Comment", "")
        and log.exists()
        and log.read_text().splitlines()[-1:] != []
        and log.read_text().splitlines()[-1].endswith(f" {count}")
    )
