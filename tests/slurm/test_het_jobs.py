"""Urgent heterogeneous jobs on a real cluster. Only backfill starts them, and it looks every 30 s."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from clearway.model.operations import EvictionState, PreemptionState
from tests.slurm.cluster import SlurmCluster
from tests.slurm.daemon import RunningDaemon
from tests.slurm.test_arrays import attached, fill, nothing_left, over, requeued
from tests.slurm.test_end_to_end import SILENT, WHOLE, patient
from tests.slurm.urgent import SCRIPT, let_go


def het_job(cluster: SlurmCluster) -> tuple[str, str]:
    """Of one node and of two; the ids of its components."""
    part = ("-p", "urgent", *WHOLE, "--time=5", "--output=/dev/null")
    first = cluster.sbatch(SCRIPT, *part, "-N1", ":", *part, "-N2", user="cwalice")
    return first, str(int(first) + 1)


def test_all_components_start_together_and_everybody_else_goes_on(cluster: SlurmCluster, tmp_path: Path) -> None:
    jobs = fill(cluster)
    with RunningDaemon(cluster, tmp_path / "daemon") as daemon:
        ids = het_job(cluster)
        for job_id in ids:
            cluster.wait_state(job_id, "RUNNING", timeout=120)
        first, last = sorted(datetime.fromisoformat(cluster.job(job_id)["StartTime"]) for job_id in ids)
        assert (last - first).total_seconds() <= 2  # Slurm starts one after the other, and writes whole seconds
        let_go(cluster, daemon, *ids)
        by_job = {e.preemptor.job_id: e for e in daemon.evictions()}
        assert by_job.keys() == set(ids)
        for job_id, eviction in by_job.items():
            used = cluster.run("scontrol", "show", "hostnames", cluster.job(job_id)["NodeList"]).stdout.split()
            assert sorted(used) == sorted(eviction.plan.placement_nodes)
        gone = [p.job_id for e in by_job.values() for p in e.preemptions]
        assert len(gone) == 3
        assert requeued(cluster, jobs) == sorted(gone, key=int)
        daemon.wait_for(lambda: over(daemon), 120, "the end of the evictions")
        assert {p.state for e in daemon.evictions() for p in e.preemptions} == {PreemptionState.RETURNED}
        nothing_left(cluster)


def test_it_is_cancelled_in_the_middle(cluster: SlurmCluster, tmp_path: Path) -> None:
    jobs = fill(cluster, SILENT, "--comment=clearway:checkpoint=signal,took=5")
    for job_id in jobs:
        cluster.wait_begun(job_id)
    with patient(cluster, tmp_path / "daemon") as daemon:
        first, _ = het_job(cluster)
        daemon.wait_for(lambda: len(attached(cluster)) == 2, 30, "both components to be attached")
        assert len({job["Reservation"] for job in attached(cluster)}) == 2
        cluster.run("scancel", first)
        daemon.wait_for(lambda: over(daemon), 60, "the end of the evictions")
        assert {e.state for e in daemon.evictions()} == {EvictionState.CANCELLED}
        assert not requeued(cluster, jobs)
        nothing_left(cluster)


def test_no_job_leaves_where_one_component_cannot_be_served(cluster: SlurmCluster, tmp_path: Path) -> None:
    """The jobs on six of the eight nodes are protected."""
    fixed = ("--requeue", "--output=/dev/null", "--time=30", *WHOLE)
    users = ["cwbob"] * 6 + ["cwalice"] * 2
    jobs = [cluster.sbatch("sleep 600", *fixed, user=user) for user in users]
    for job_id in jobs:
        cluster.wait_state(job_id, "RUNNING")
    with RunningDaemon(cluster, tmp_path / "daemon") as daemon:
        first, second = het_job(cluster)

        def told() -> list[str]:
            waiting = daemon.get("/api/v1/preemptors").json()["items"]
            return [each["why"] for each in waiting if each["job_id"] in (first, second)]

        daemon.wait_for(lambda: len(told()) == 2 and all("component" in why for why in told()), 30, "the reason")
        assert not daemon.evictions()
        assert not requeued(cluster, jobs)
        nothing_left(cluster)
