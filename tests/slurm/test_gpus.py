"""Urgent jobs that ask for GPUs or certain nodes, on a real cluster whose GPUs are files: a real daemon makes room."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clearway.model.operations import Eviction, EvictionState
from clearway.model.problem import Amounts
from tests.slurm.cluster import SlurmCluster
from tests.slurm.conftest import skip_or_fail
from tests.slurm.daemon import RunningDaemon, config_text
from tests.slurm.machine import missing_requirements
from tests.slurm.test_end_to_end import LOOP, no_leftovers, start_of
from tests.slurm.urgent import SCRIPT, is_the_best, let_go

GPUS = {f"node{at}": {"a100": 4} for at in range(1, 5)} | {"node5": {"v100": 4}}


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    """Four nodes of four A100 each, one of four V100, and one without GPUs."""
    reason = missing_requirements()
    if reason:
        skip_or_fail(reason)
    with SlurmCluster(nodes=6, gpus=GPUS) as gpu_cluster:
        yield gpu_cluster


def run(cluster: SlurmCluster, *args: str, user: str = "cwalice") -> str:
    fixed = ("--requeue", "--output=/dev/null", "--time=30", "--mem=100")
    job_id = cluster.sbatch(LOOP, *fixed, *args, user=user)
    cluster.wait_state(job_id, "RUNNING")
    return job_id


def urgent(cluster: SlurmCluster, *args: str) -> str:
    fixed = ("-p", "urgent", "--time=5", "--mem=100", "--output=/dev/null")
    return cluster.sbatch(SCRIPT, *fixed, *args, user="cwalice")


def hosts(cluster: SlurmCluster, job_id: str) -> list[str]:
    return cluster.run("scontrol", "show", "hostnames", cluster.job(job_id)["NodeList"]).stdout.split()


def everybody_goes_on(cluster: SlurmCluster, daemon: RunningDaemon, everyone: list[str]) -> Eviction:
    """The last eviction ends, its jobs run again and the others were not touched; returns it."""

    def last() -> Eviction:
        return max(daemon.evictions(), key=lambda e: e.eviction_id)

    daemon.wait_for(lambda: last().state is EvictionState.COMPLETED, 60, "the end of the eviction")
    for job_id in everyone:
        cluster.wait_state(job_id, "RUNNING")
    return last()


def test_parts_of_nodes_are_freed_and_the_others_keep_theirs(cluster: SlurmCluster, tmp_path: Path) -> None:
    # Those of node 3 have run for the longest, on three nodes together: it is never the cheaper one.
    e = run(cluster, "-w", "node[3-4]", "-N2", "--gres=gpu:a100:2")
    f = run(cluster, "-w", "node3", "--gpus-per-task=1", "-n2")
    a = run(cluster, "-w", "node1", "--gres=gpu:a100:2")
    b = run(cluster, "-w", "node1", "--gres=gpu:2")  # of any type: the node has but one
    c = run(cluster, "-w", "node2", "--gres=gpu:a100:1")
    d = run(cluster, "-w", "node2", "--gpus=3")
    g = run(cluster, "-w", "node4", "--gres=gpu:a100:2", user="cwbob")  # protected
    v = run(cluster, "-w", "node5", "--gres=gpu:v100:4")
    everyone = [a, b, c, d, e, f, g, v]
    # Through the commands: pyslurm does not tell of GPUs without Slurm's database.
    slurm = f'backend = "cli"\nconf = "{cluster.conf}"'
    folder = tmp_path / "daemon"
    with RunningDaemon(cluster, folder, config=config_text(folder, cluster.conf, slurm=slurm)) as daemon:
        wide = urgent(cluster, "-N2", "--ntasks-per-node=2", "--gres=gpu:a100:3")
        let_go(cluster, daemon, wide)
        (eviction,) = daemon.evictions()
        problem = eviction.plan.problem
        held = {each.job_id: dict(zip(each.node_names, each.holds, strict=True)) for each in problem.candidates}
        assert held[b]["node1"] == Amounts(1, 100, (("a100", 2),))
        assert held[d]["node2"] == Amounts(1, 100, (("a100", 3),))
        assert held[f]["node3"] == Amounts(2, 100, (("a100", 2),))
        # Nothing frees three GPUs of node 4, whose other two are protected, and nothing any on nodes 5 and 6.
        assert {node.name for node in problem.nodes} == {"node1", "node2", "node3"}
        is_the_best(eviction)
        gone = {planned.job_id for planned in eviction.plan.chosen.actions}
        assert gone == {a, b, d}
        assert eviction.plan.staying == (c,)
        assert hosts(cluster, wide) == ["node1", "node2"] == list(eviction.plan.placement_nodes)
        assert (start_of(cluster, wide) - eviction.created_at).total_seconds() <= 60
        everybody_goes_on(cluster, daemon, everyone)
        for job_id in everyone:
            assert cluster.job(job_id)["Restarts"] == str(int(job_id in gone)), job_id

        # One of the others' nodes, by name: the job of one node goes rather than that of two.
        here = urgent(cluster, "--nodelist=node3", "--gres=gpu:1")
        let_go(cluster, daemon, here)
        last = everybody_goes_on(cluster, daemon, everyone)
        is_the_best(last)
        assert {planned.job_id for planned in last.plan.chosen.actions} == {f}
        assert last.plan.staying == (e,)
        assert hosts(cluster, here) == ["node3"]
        assert cluster.job(e)["Restarts"] == "0"
        no_leftovers(cluster)
