"""Small urgent jobs without GPUs on a real cluster whose nodes are shared: one job leaves, the others there run on."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from clearway.model.operations import EvictionState
from clearway.model.problem import Amounts
from tests.slurm.cluster import SlurmCluster, missing_requirements
from tests.slurm.conftest import skip_or_fail
from tests.slurm.daemon import RunningDaemon
from tests.slurm.test_end_to_end import LOOP, no_leftovers, start_of
from tests.slurm.urgent import SCRIPT, is_the_best, let_go


@pytest.fixture
def cluster() -> Iterator[SlurmCluster]:
    """Two nodes of four processors and 4,000 MiB."""
    reason = missing_requirements()
    if reason:
        skip_or_fail(reason)
    with SlurmCluster(nodes=2) as small_cluster:
        yield small_cluster


def run(cluster: SlurmCluster, *args: str, user: str = "cwalice") -> str:
    job_id = cluster.sbatch(LOOP, "--requeue", "--output=/dev/null", "--time=30", *args, user=user)
    cluster.wait_state(job_id, "RUNNING")
    return job_id


def urgent(cluster: SlurmCluster, *args: str) -> str:
    return cluster.sbatch(SCRIPT, "-p", "urgent", "--time=5", "--output=/dev/null", *args, user="cwalice")


def test_small_urgent_jobs_take_parts_of_nodes_and_the_others_there_run_on(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    half = ("-n2", "--mem=1500")
    on = {name: [run(cluster, "-w", name, *half) for _ in range(2)] for name in ("node1", "node2")}
    everyone = [job_id for jobs in on.values() for job_id in jobs]
    with RunningDaemon(cluster, tmp_path / "daemon") as daemon:
        small = [urgent(cluster, "-N1", "-n2", "--mem=500"), urgent(cluster, "-n2", "--mem-per-cpu=250")]
        let_go(cluster, daemon, *small)  # together: what one leaves would be the other's, without an eviction
        daemon.wait_for(
            lambda: all(e.state is EvictionState.COMPLETED for e in daemon.evictions()), 60, "the end of the evictions"
        )
        evictions = daemon.evictions()
        assert {e.preemptor.job_id for e in evictions} == set(small)
        gone = set()
        for eviction in evictions:
            plan = eviction.plan
            assert plan.problem.needs is not None
            assert plan.problem.needs.per_node == Amounts(2, 500)
            (leaves,) = (planned.job_id for planned in plan.chosen.actions)
            (name,) = plan.placement_nodes
            if not plan.together:
                is_the_best(eviction)
            kills = {each.job_id: each.options[0].lost_work_node_s for each in plan.problem.candidates}
            assert kills[leaves] == min(kills[each] for each in on[name]), "the cheaper of its node"
            assert leaves in on[name]
            assert plan.staying  # the other half of the node: a job, or the urgent job that started there before
            assert leaves not in plan.staying
            assert (start_of(cluster, eviction.preemptor.job_id) - eviction.created_at).total_seconds() <= 60
            gone.add(leaves)
        assert len(gone) == len(small)
        for job_id in everyone:
            cluster.wait_state(job_id, "RUNNING")
            assert cluster.job(job_id)["Restarts"] == str(int(job_id in gone)), job_id
        no_leftovers(cluster)


@pytest.mark.one_slurm
def test_of_two_at_once_neither_takes_what_only_the_other_can_use(cluster: SlurmCluster, tmp_path: Path) -> None:
    """The youngest job runs on the only node that one can use, beside a protected job: turns would not serve both."""
    half = ("-n2", "--mem=1500")
    protected = run(cluster, "-w", "node1", *half, user="cwbob")
    old = [run(cluster, "-w", "node2", *half) for _ in range(2)]
    started = max(start_of(cluster, job_id) for job_id in old)
    cluster.wait_for(lambda: (datetime.now(UTC) - started).total_seconds() > 5, 30, "the others to grow older")
    young = run(cluster, "-w", "node1", *half)
    anywhere = urgent(cluster, "-n2", "--mem=500")
    there = urgent(cluster, "-n2", "--mem=500", "--nodelist=node1")
    with RunningDaemon(cluster, tmp_path / "daemon") as daemon:
        let_go(cluster, daemon, anywhere, there)
        daemon.wait_for(
            lambda: all(e.state is EvictionState.COMPLETED for e in daemon.evictions()), 60, "the end of the evictions"
        )
        plans = {e.preemptor.job_id: e.plan for e in daemon.evictions()}
        assert {job_id: plan.together for job_id, plan in plans.items()} == {anywhere: (there,), there: (anywhere,)}
        assert {e.revision for e in daemon.evictions()} == {0}
        assert (plans[there].placement_nodes, plans[anywhere].placement_nodes) == (("node1",), ("node2",))
        assert [planned.job_id for planned in plans[there].chosen.actions] == [young]
        (gone,) = (planned.job_id for planned in plans[anywhere].chosen.actions)
        assert gone in old
        for job_id in (protected, young, *old):
            cluster.wait_state(job_id, "RUNNING")
            assert cluster.job(job_id)["Restarts"] == str(int(job_id in {young, gone})), job_id
        no_leftovers(cluster)
