"""The budget on a real cluster: however many urgent jobs come at once, no more jobs leave than it allows."""

from __future__ import annotations

from pathlib import Path

import pytest

from clearway.model.operations import EvictionState
from tests.slurm.cluster import SlurmCluster
from tests.slurm.daemon import RunningDaemon, config_text

pytestmark = pytest.mark.one_slurm

OPTIONS = ("-N1", "--exclusive", "--requeue", "--time=60", "--output=/dev/null")


def test_one_job_an_hour_and_four_urgent_jobs(cluster: SlurmCluster, tmp_path: Path) -> None:
    busy = [cluster.sbatch("exec sleep 3600", "--partition=batch", *OPTIONS, user="cwalice") for _ in range(8)]
    for job_id in busy:
        cluster.wait_state(job_id, "RUNNING")
    changes = {"candidates": "min_runtime = 0", "budget": "jobs_per_hour = 1"}
    text = config_text(tmp_path / "daemon", cluster.conf, **changes)
    with RunningDaemon(cluster, tmp_path / "daemon", config=text) as daemon:
        urgent = [cluster.sbatch("exec sleep 3600", "--partition=urgent", *OPTIONS, user="cwalice") for _ in range(4)]

        def decided() -> bool:
            """One runs, and evictions for the others have waited for approval since then."""
            waiting = {e.preemptor.job_id for e in daemon.evictions() if e.state is EvictionState.AWAITING_APPROVAL}
            running = [job_id for job_id in urgent if cluster.state(job_id) == "RUNNING"]
            return len(running) >= 1 and waiting | set(running) == set(urgent)

        daemon.wait_for(decided, 90, "one urgent job to run and three to wait for approval")
        gone = [p.job_id for e in daemon.evictions() for p in e.preemptions if p.requeued_at is not None]
        assert len(gone) == 1
        restarts = [cluster.run("squeue", "-h", "-j", job_id, "-O", "RestartCnt").stdout.strip() for job_id in busy]
        assert sorted(restarts) == ["0"] * 7 + ["1"]
