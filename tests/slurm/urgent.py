"""An urgent job that runs until the daemon has seen it run: one that ends between two of its looks is gone for it."""

from __future__ import annotations

from tests.slurm.cluster import SlurmCluster
from tests.slurm.daemon import RunningDaemon

SCRIPT = 'until [ -e "let-go.$SLURM_JOB_ID" ]; do sleep 0.2; done'


def let_go(cluster: SlurmCluster, daemon: RunningDaemon, *job_ids: str) -> None:
    """Wait until the daemon knows that they all run, by an eviction of each one's own; then they end."""

    def seen() -> bool:
        return set(job_ids) <= {e.preemptor.job_id for e in daemon.evictions() if e.started_at}

    daemon.wait_for(seen, 75, f"jobs {', '.join(job_ids)} to be seen running")
    for job_id in job_ids:
        (cluster.work / f"let-go.{job_id}").touch()
