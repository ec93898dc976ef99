"""Urgent jobs that wait for licenses, on a real cluster where nodes are free: a job leaves for its license alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import SlurmCluster
from tests.slurm.conftest import skip_or_fail
from tests.slurm.daemon import RunningDaemon
from tests.slurm.machine import missing_requirements
from tests.slurm.test_end_to_end import LOOP, no_leftovers, start_of
from tests.slurm.test_gpus import everybody_goes_on, hosts, run, urgent
from tests.slurm.urgent import is_the_best, let_go


@pytest.fixture
def cluster() -> Iterator[SlurmCluster]:
    reason = missing_requirements()
    if reason:
        skip_or_fail(reason)
    with SlurmCluster(nodes=3, extra_conf=("Licenses=matlab:4,abaqus:1",)) as licensed:
        yield licensed


def test_a_job_leaves_for_its_license_and_no_other_job_takes_that(cluster: SlurmCluster, tmp_path: Path) -> None:
    wide = run(cluster, "-w", "node1", "-n2", "-L", "matlab:3")
    small = run(cluster, "-w", "node2", "-n1", "-L", "matlab:1")
    protected = run(cluster, "-w", "node2", "-n1", "-L", "abaqus", user="cwbob")
    # Submitted before the urgent job: without its placement it would have the license first.
    other = cluster.sbatch(LOOP, "--output=/dev/null", "--time=30", "--mem=100", "-L", "matlab:2", user="cwbob")
    everyone = [wide, small, protected]
    with RunningDaemon(cluster, tmp_path / "daemon") as daemon:
        asks = urgent(cluster, "-N1", "--exclusive", "-L", "matlab:2")
        let_go(cluster, daemon, asks)
        (eviction,) = daemon.evictions()
        plan = eviction.plan
        is_the_best(eviction)
        assert [planned.job_id for planned in plan.chosen.actions] == [wide]
        assert plan.placement_nodes == ("node3",), "it was free, and no other node had to be freed"
        assert hosts(cluster, asks) == ["node3"]
        assert (start_of(cluster, asks) - eviction.created_at).total_seconds() <= 60
        cluster.run("scancel", other)
        everybody_goes_on(cluster, daemon, everyone)
        assert [cluster.job(job_id)["Restarts"] for job_id in everyone] == ["1", "0", "0"]
        no_leftovers(cluster)

        # The only license of another kind is held by a protected job: no job leaves for it.
        never = urgent(cluster, "-N1", "--exclusive", "-L", "abaqus")
        told = "license abaqus"
        daemon.wait_for(lambda: told in daemon.get("/api/v1/preemptors").text, 20, "the reason to be told")
        cluster.run("scancel", never)
        assert len(daemon.evictions()) == 1
        no_leftovers(cluster)
